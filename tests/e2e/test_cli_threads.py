"""Threads edited from the command line: an answer made anew, a turn tried again, a copy, a deletion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli_process import turnwire
from support.cluster import Cluster

pytestmark = pytest.mark.e2e

SCRIPT = {"calls": [[{"text": "Hello"}]]}
BROKEN = {"calls": [[{"text": "so f"}, {"fail": {"kind": "invalid-request"}}]]}


def agent(script: object) -> str:
    return f"model: 'scripted:{json.dumps(script)}'\norganization_id: '*'\n"


async def test_threads_are_edited_copied_and_deleted(tmp_path: Path) -> None:
    async with Cluster(tmp_path, {"plain": agent(SCRIPT), "broken": agent(BROKEN)}) as cluster:
        target = cluster.runtime.target

        async def run(*words: str) -> str:
            done = await turnwire(*words, target=target)
            assert done.code == 0, (words, done)
            return done.out

        first = await run("run", "--agent", "plain", "--json", "hi")
        thread = json.loads(first.splitlines()[0])["turn"].partition("/turns/")[0]
        assert "Hello" in await run("regenerate", thread)
        copy = (await run("fork", thread)).strip()
        assert copy.startswith("threads/")
        assert copy != thread
        refused = await turnwire("delete", thread, target=target, stdin="")
        assert refused.code == 2
        await run("delete", thread, "--yes")
        gone = await turnwire("regenerate", thread, target=target)
        assert (gone.code, "Traceback" in gone.err) == (5, False)
        assert copy in await run("threads")
        failed = await turnwire("run", "--agent", "broken", "--json", "hi", target=target)
        turn = json.loads(failed.out.splitlines()[0])["turn"]
        again = await turnwire("retry", turn, target=target)
        assert (failed.code, again.code) == (1, 1)
        assert "so f" in again.out
