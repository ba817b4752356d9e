"""A turn as a person sees one: a file, thinking, one tool call, each paragraph once; and one trace of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.strict_provider import says
from support.turn_rig import TurnRig, arms, turn_rig
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

README = "# Title\n\n## First\n\nOne thing.\n\n## Second\n\nAnother thing.\n\n## Third\n\nMore.\n"
PARAGRAPHS = ["The first section says: one thing.", "The second section says: another thing."]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    folder = tmp_path_factory.mktemp("example")
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / "README.md").write_text(README, encoding="utf-8")
    runtime = {"TURNWIRE_RUNTIME_TELEMETRY__FILE": str(folder / "runtime.spans")}
    executor = {
        "TURNWIRE_EXECUTOR_TELEMETRY__FILE": str(folder / "executor.spans"),
        "TURNWIRE_EXECUTOR_WORKSPACE_ROOT": str(workspace),
    }
    async with turn_rig(folder, runtime=runtime, executor=executor) as rig:
        yield rig


async def test_an_attached_readme_is_thought_about_read_and_answered_once(rig: TurnRig) -> None:
    rig.provider.queue(
        "example",
        says(
            *("<th", "ink>They want the first ", "two sections.</thi", "nk>", "I read the file."),
            calls=[("read_file", {"path": "README.md"})],
        ),
        says(*PARAGRAPHS[0], "\n\n", *PARAGRAPHS[1]),
    )
    request = rig.request("openai:example", "Extract the first two sections of README.")
    part = request.spec.input.parts.add()
    part.blob.media_type, part.blob.filename, part.blob.data = "text/markdown", "README.md", README.encode()
    async with asyncio.timeout(60):
        events = await rig.run(request).rest()
        messages = await rig.messages(events[0].turn.partition("/turns/")[0])
    first = [event.llm for event in events if event.step == 1]
    assert "".join(e.reasoning_delta.text for e in first) == "They want the first two sections."
    assert "".join(e.text_delta.text for e in first) == "I read the file."
    kinds = arms(events)
    counts = [kinds.count(k) for k in ("tool_call_complete", "tool_call_started", "tool_call_finished")]
    assert counts == [1, 1, 1]
    assert kinds.index("reasoning_delta") < kinds.index("text_delta") < kinds.index("tool_call_started")
    result = next(e.tool_call_finished for e in events if e.HasField("tool_call_finished"))
    assert (result.outcome, result.content) == (ToolOutcome.TOOL_OUTCOME_SUCCEEDED, README)
    streamed = "".join(e.llm.text_delta.text for e in events if e.step == 2)
    assert streamed == "\n\n".join(PARAGRAPHS)
    end = events[-1].turn_finished
    assert (end.state, end.text) == (TurnState.TURN_STATE_COMPLETED, streamed)
    check_transcript(messages)
    check_requests(rig.provider.requests["example"])
    assert rig.provider.refusals == []


def check_transcript(messages: list[Any]) -> None:
    """The file stays with the question; the answer holds each thing once, in order."""
    asked, answered = messages
    blob = asked.parts[1].content.blob
    assert (asked.parts[0].content.text.text, blob.filename) == (
        "Extract the first two sections of README.",
        "README.md",
    )
    assert blob.data == README.encode() or not blob.data
    kinds = [(part.step, part.WhichOneof("part")) for part in answered.parts]
    assert kinds == [(1, "reasoning"), (1, "content"), (1, "tool_call"), (2, "content")]
    texts = [part.content.text.text for part in answered.parts if part.HasField("content")]
    assert texts == ["I read the file.", "\n\n".join(PARAGRAPHS)]


def check_requests(requests: list[dict[str, Any]]) -> None:
    """The model was sent the file, and later its own call with the result right after it."""
    first, second = requests
    told, file = first["messages"][-1]["content"]
    assert told["text"] == "Extract the first two sections of README."
    assert README in file["text"]
    assert [message["role"] for message in second["messages"]][-3:] == ["user", "assistant", "tool"]
    assert second["messages"][-1]["content"] == README
    assert "<think>" not in json.dumps(second["messages"])


async def test_a_call_that_lost_its_result_does_not_trouble_the_next_turn(
    rig: TurnRig, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    calls = [("held", {"file": str(tmp_path / "notes"), "pipe": str(pipe)}), ("shout", {"text": "hey"})]
    rig.provider.queue("example-lost", says("<think>hm</think>", "Wait.", calls=calls))
    async with asyncio.timeout(90):
        stream = rig.run(rig.request("openai:example-lost"))
        await stream.until("tool_call_progress")
        thread = stream.header.thread
        # With its executor the tool dies: nobody knows what it had done.
        await rig.cluster.executor.kill()
        await rig.cluster.runtime.kill()
        await rig.cluster.executor.start()
        await rig.cluster.runtime.start()
        rig.connect()
        whole = await rig.watch(stream.header.turn).rest()
        events = await rig.whole("openai:example-next", "And now?", thread=thread)
        # The same history in the other format, which is as strict.
        again = await rig.whole("anthropic:example-other", "And now?", thread=thread)
    assert [e[-1].turn_finished.text for e in (whole, events, again)] == ["done", "done", "done"]
    ended = {e.tool_call_finished.outcome for e in whole if e.HasField("tool_call_finished")}
    assert ended == {ToolOutcome.TOOL_OUTCOME_OUTCOME_UNKNOWN, ToolOutcome.TOOL_OUTCOME_SUCCEEDED}
    assert rig.provider.refusals == []
    roles = [message["role"] for message in rig.provider.requests["example-next"][0]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]


def spans(path: Path) -> list[dict[str, Any]]:
    """The finished spans of a process."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def trace_of(span: dict[str, Any]) -> str:
    return str(span["context"]["trace_id"]).removeprefix("0x")


async def test_one_trace_crosses_the_runtime_and_the_executor(rig: TurnRig) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    pair = (rig.cluster.runtime, rig.cluster.executor)
    async with asyncio.timeout(90):
        rig.provider.queue("example-trace", says(calls=[("shout", {"text": "a"})]))
        request = rig.request("openai:example-trace")
        call = rig.turns.RunTurn(request, metadata=(("traceparent", f"00-{trace}-{parent}-01"),))
        events = [event async for message in call for event in message.events]
        assert events[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
        # Leaving in order is what writes the last spans.
        async with asyncio.TaskGroup() as tasks:
            codes = [tasks.create_task(process.terminate()) for process in pair]
        assert [code.result() for code in codes] == [0, 0]
        async with asyncio.TaskGroup() as tasks:
            for process in pair:
                tasks.create_task(process.start())
        rig.connect()
    runtime, executor = (
        [span for span in spans(Path(file)) if trace_of(span) == trace]
        for process in pair
        for name, file in process.environment.items()
        if name.endswith("TELEMETRY__FILE")
    )
    assert {"turn", "model.call"} <= {span["name"] for span in runtime}
    assert any("RunTurn" in span["name"] for span in runtime)
    executes = [span for span in executor if "Execute" in span["name"]]
    # The execution is a child of a span of the runtime, not only of the same trace.
    assert {span["parent_id"] for span in executes} <= {span["context"]["span_id"] for span in runtime}
    assert len(executes) == 1
