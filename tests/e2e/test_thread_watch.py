"""A thread is followed over restarts and deaths of its runtime, by the clients and on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.cli_process import start as start_program
from support.cli_process import turnwire
from support.client_view import ClientView
from support.strict_provider import Hold, says
from support.turn_rig import TurnRig, turn_rig
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.api.runtime.v1.thread_pb2 import Thread
from turnwire_client import AsyncClient, Client
from turnwire_client.thread_stream import AsyncThreadStream

pytestmark = pytest.mark.e2e


@pytest.fixture
async def own_rig(tmp_path: Path) -> AsyncIterator[TurnRig]:
    async with turn_rig(tmp_path) as rig:
        yield rig


async def seen(rig: TurnRig, thread: str) -> ClientView:
    return ClientView.of(await rig.threads.GetThread(pb.GetThreadRequest(name=thread), wait_for_ready=True))


async def follow_to(stream: AsyncThreadStream, view: ClientView, version: int) -> None:
    """Take changes in until a version."""
    while view.version < version:
        change = await anext(stream)
        assert change.version > view.version
        view.apply(change)


async def test_a_watcher_follows_its_thread_over_a_restart_and_a_kill_of_the_runtime(
    own_rig: TurnRig,
) -> None:
    rig = own_rig
    view = ClientView()
    hold = Hold()
    rig.provider.queue("first", says("one ", "two"))
    rig.provider.queue("second", says("three ", hold, "four"), says("three ", "four"))
    rig.provider.queue("third", says("five"))
    async with asyncio.timeout(100), AsyncClient(rig.cluster.runtime.target) as client:
        thread = (await client.create_thread(Thread(title="mine"))).name
        async with client.watch_thread(thread) as stream:
            await rig.whole("openai:first", thread=thread)
            await follow_to(stream, view, (await seen(rig, thread)).version)
            await rig.cluster.runtime.restart()
            rig.connect()
            await client.update_thread(Thread(name=thread, title="renamed"), "title")
            await follow_to(stream, view, (await seen(rig, thread)).version)
            assert view.title == "renamed"
            running = rig.run(rig.request("openai:second", thread=thread))
            turn = (await running.opened()).turn
            await hold.reached.wait()
            await rig.cluster.runtime.kill()
            await rig.cluster.runtime.start()
            rig.connect()
            await client.get_turn(turn, wait=60)
            await rig.whole("openai:third", thread=thread)
            now = await seen(rig, thread)
            await follow_to(stream, view, now.version)
            assert view == now
            assert view.turns[turn][1] == (await client.get_turn(turn)).state
        await client.delete_thread(thread)


async def test_a_thread_and_its_queue_are_looked_after_on_the_command_line(own_rig: TurnRig) -> None:
    rig = own_rig
    hold = Hold()
    rig.provider.queue("long", says("begun ", hold, "ended"))
    rig.provider.queue("short", says("done"))
    target = rig.cluster.runtime.target
    async with asyncio.timeout(100):
        running = rig.run(rig.request("openai:long"))
        thread = (await running.opened()).thread
        await hold.reached.wait()
        waiting = rig.run(rig.request("openai:short", thread=thread, text="first words"))
        turn = (await waiting.opened()).turn
        listed = await turnwire("queue", "list", thread, target=target)
        assert (listed.code, listed.out.split("\t")[:2]) == (0, [turn, "1"])
        edited = await turnwire("queue", "edit", turn, "other", "words", target=target)
        assert (edited.code, edited.out) == (0, f"{turn} waits at place 1\n")
        following = await start_program("follow", thread, "--json", target=target)
        assert following.stdout is not None
        hold.set()
        await waiting.rest()
        version = (await seen(rig, thread)).version
        versions = [0]
        while versions[-1] < version:
            versions.append(int(json.loads(await following.stdout.readline())["version"]))
        assert versions == sorted(set(versions))
        said = [m.parts[0].content.text.text for m in await rig.messages(thread)]
        assert said == ["hello", "begun ended", "other words", "done"]
        with Client(target) as client:
            await asyncio.to_thread(client.delete_thread, thread)
        last = json.loads((await following.stdout.read()).splitlines()[-1])
        assert "deleted" in last
        assert await following.wait() == 0
