"""The command line as a process, against a scripted server: what goes where, and which exit code ends it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format

from support.cli_process import Finished, start, turnwire
from support.scripted_runtime import CUT, Failure, Leg, ScriptedRuntime, serving
from support.turn_story import TURN, Story, multiplication
from turnwire.api.common.v1.tool_pb2 import Tool
from turnwire.api.control.v1 import control_service_pb2 as control
from turnwire.api.control.v1.command_pb2 import CommandOutcome, CommandRecord, OutcomeKind
from turnwire.api.runtime.v1 import agent_service_pb2 as agents
from turnwire.api.runtime.v1 import thread_service_pb2 as threads
from turnwire.api.runtime.v1 import turn_service_pb2 as turns
from turnwire.api.runtime.v1.agent_pb2 import Agent
from turnwire.api.runtime.v1.thread_pb2 import Thread
from turnwire.api.runtime.v1.turn_event_pb2 import TurnEvent
from turnwire.api.runtime.v1.turn_pb2 import Turn, TurnState

pytestmark = pytest.mark.e2e
STORY = multiplication().events


async def against(runtime: ScriptedRuntime, *words: str, stdin: str | None = None) -> Finished:
    async with asyncio.timeout(60), serving(runtime) as target:
        return await turnwire(*words, target=target, stdin=stdin)


def parsed(line: str) -> TurnEvent:
    return json_format.Parse(line, TurnEvent())


async def test_run_gives_the_answer_to_stdout_and_all_else_to_stderr() -> None:
    done = await against(ScriptedRuntime(STORY), "run", "--agent", "demo", "6", "times", "7?")
    assert done.code == 0
    assert done.out == "6 times 7 is 42.\n"
    assert "multiply(a=6, b=7)" in done.err
    assert "20 ms" in done.err
    assert "I should multiply." in done.err
    assert "\x1b" not in done.out + done.err


async def test_run_as_json_prints_every_event_on_a_line_of_its_own() -> None:
    done = await against(ScriptedRuntime(STORY), "run", "--agent", "demo", "--json", "hello")
    assert done.code == 0
    assert [parsed(line) for line in done.out.splitlines()] == STORY


async def test_run_survives_a_lost_connection() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=4, failure=CUT), Leg(until=9, failure=CUT))
    done = await against(runtime, "run", "--agent", "demo", "--json", "hello")
    assert [parsed(line).sequence for line in done.out.splitlines()] == [e.sequence for e in STORY]


async def test_run_reads_stdin_and_sends_a_task() -> None:
    runtime = ScriptedRuntime(STORY)
    done = await against(runtime, "run", "--agent", "demo", "--task", stdin="from a pipe\n")
    assert done.code == 0
    assert runtime.requests[0].spec.task.description == "from a pipe"


async def test_run_with_a_schema_gives_the_answer_that_fits_to_stdout_and_nothing_else(
    tmp_path: Path,
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}', encoding="utf-8")
    story = Story().accepted().started().step_started().text("no").model_stopped()
    story.step_started().text('```json\n{"n": 1}\n```').model_stopped().finished('{"n": 1}')
    runtime = ScriptedRuntime(story.events)
    done = await against(runtime, "run", "--agent", "demo", "--schema", str(schema), "hello")
    assert (done.code, done.out) == (0, '{"n": 1}\n')
    assert "no" in done.err
    assert runtime.requests[0].spec.response_schema_json == '{"type": "object"}'


async def test_run_with_a_schema_gives_nothing_to_stdout_when_no_answer_fits(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text("{}", encoding="utf-8")
    story = Story().accepted().started().step_started().text("no").model_stopped()
    story.finished("no", TurnState.TURN_STATE_FAILED, "answer-invalid")
    done = await against(
        ScriptedRuntime(story.events), "run", "--agent", "demo", "--schema", str(schema), "hello"
    )
    assert (done.code, done.out) == (1, "")
    assert "answer-invalid" in done.err


async def test_run_sends_what_a_task_expects_and_names_a_schema_that_cannot_be_read(tmp_path: Path) -> None:
    runtime = ScriptedRuntime(STORY)
    await against(runtime, "run", "--agent", "demo", "--expect", "a number", "6", "times", "7")
    task = runtime.requests[0].spec.task
    assert (task.description, task.expected_output) == ("6 times 7", "a number")
    gone = str(tmp_path / "gone.json")
    done = await against(runtime, "run", "--agent", "demo", "--schema", gone, "hello")
    assert done.code == 2
    assert "gone.json" in done.err


async def test_run_attaches_files_named_with_at(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# One\n", encoding="utf-8")
    runtime = ScriptedRuntime(STORY)
    await against(runtime, "run", "--agent", "demo", f"summarise @{notes}")
    text, blob = runtime.requests[0].spec.input.parts
    assert text.text.text == f"summarise @{notes}"
    assert (blob.blob.filename, blob.blob.media_type, blob.blob.data) == (
        "notes.md",
        "text/markdown",
        b"# One\n",
    )


async def test_run_chooses_an_agent_when_none_is_named() -> None:
    runtime = ScriptedRuntime(STORY)
    runtime.answers["ListAgents"] = agents.ListAgentsResponse(
        agents=[Agent(name="agents/demo"), Agent(name="agents/other")]
    )
    await against(runtime, "run", "hello")
    assert runtime.requests[-1].spec.agent == "agents/demo"


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (TurnState.TURN_STATE_FAILED, "model-error", 1),
        (TurnState.TURN_STATE_CANCELLED, "cancelled", 3),
    ],
)
async def test_run_tells_by_its_exit_code_how_the_turn_ended(
    state: TurnState, reason: str, code: int
) -> None:
    story = Story().accepted().started().finished("", state, reason)
    done = await against(ScriptedRuntime(story.events), "run", "--agent", "demo", "hello")
    assert done.code == code
    assert reason in done.err


async def test_detach_prints_the_name_of_the_turn() -> None:
    done = await against(ScriptedRuntime(STORY), "run", "--agent", "demo", "--detach", "hello")
    assert (done.code, done.out) == (0, TURN + "\n")


async def test_watch_shows_a_turn_from_a_point_on() -> None:
    runtime = ScriptedRuntime(STORY)
    done = await against(runtime, "watch", TURN, "--after", "12", "--json")
    assert [parsed(line).sequence for line in done.out.splitlines()] == list(range(13, len(STORY) + 1))
    assert runtime.requests[0].after_sequence == 12


async def test_a_model_cannot_control_the_terminal() -> None:
    story = Story().accepted().started().step_started().text("a\x1b[2Jb\x07").committed().finished("x")
    done = await against(ScriptedRuntime(story.events), "run", "--agent", "demo", "hello")
    assert done.out == "a\\x1b[2Jb\\x07\n"


async def test_a_reader_of_the_output_may_leave_early() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=3, silent=True))
    async with asyncio.timeout(60), serving(runtime) as target:
        process = await start("watch", TURN, "--json", target=target)
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err


async def test_ctrl_c_cancels_the_turn_and_shows_its_end() -> None:
    cancelled = Story()
    cancelled.events = list(STORY[:4])
    end = cancelled.finished("", TurnState.TURN_STATE_CANCELLED, "cancelled").events[-1]
    runtime = ScriptedRuntime(STORY, Leg(until=4, after_command=[end]))
    async with asyncio.timeout(60), serving(runtime) as target:
        process = await start("run", "--agent", "demo", "--json", "hello", target=target)
        assert process.stdout is not None
        lines = [await process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 3
    assert len(lines) == 4
    assert parsed(out.decode()).turn_finished.stop_reason == "cancelled"
    assert b"Traceback" not in err
    command = runtime.requests[-1].command
    assert (command.target.turn, command.cancel_turn.cause) == (TURN, "Ctrl-C")


async def test_a_second_ctrl_c_detaches_and_says_how_to_come_back() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=4, silent=True))
    async with asyncio.timeout(60), serving(runtime) as target:
        process = await start("run", "--agent", "demo", "--json", "hello", target=target)
        assert process.stdout is not None
        for _ in range(4):
            await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        await runtime.commanded.wait()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert f"turnwire watch {TURN}" in err.decode()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (OutcomeKind.OUTCOME_KIND_APPLIED, 0),
        (OutcomeKind.OUTCOME_KIND_ALREADY_FINISHED, 0),
        (OutcomeKind.OUTCOME_KIND_NO_ACTIVE_TURN, 5),
    ],
)
async def test_cancel_prints_the_outcome(kind: OutcomeKind, code: int) -> None:
    runtime = ScriptedRuntime(STORY)
    outcome = CommandOutcome(kind=kind, turn=TURN, applied_sequence=9)
    runtime.answers["SendCommand"] = control.SendCommandResponse(command=CommandRecord(outcome=outcome))
    done = await against(runtime, "cancel", TURN)
    assert done.code == code
    word = OutcomeKind.Name(kind).removeprefix("OUTCOME_KIND_").lower().replace("_", " ")
    assert done.out == f"{word} at 9 {TURN}\n"


async def test_lists_are_cells_between_tabs_in_a_pipe_and_json_on_request() -> None:
    runtime = ScriptedRuntime(STORY)
    state = TurnState.TURN_STATE_COMPLETED
    turn = Turn(name=TURN, state=state, agent="agents/demo", stop_reason="completed", step=2)
    runtime.answers["ListTurns"] = turns.ListTurnsResponse(turns=[turn])
    runtime.answers["ListThreads"] = threads.ListThreadsResponse(
        threads=[Thread(name="threads/abcd", title="a\tb")]
    )
    agent = Agent(
        name="agents/demo", model="demo:", tools=[Tool(name="multiply", description="Multiplies.\nMore.")]
    )
    runtime.answers["ListAgents"] = agents.ListAgentsResponse(agents=[agent])
    runtime.answers["GetAgent"] = agents.GetAgentResponse(agent=agent)
    async with asyncio.timeout(60), serving(runtime) as target:
        tables = [
            (await turnwire(what, target=target)).out for what in ("turns", "threads", "agents", "tools")
        ]
        lines = [
            (await turnwire(what, "--json", target=target)).out
            for what in ("turns", "threads", "agents", "tools")
        ]
    assert tables[0].rstrip("\n").split("\t") == [TURN, "completed", "completed", "agents/demo", "2", "0", ""]
    assert tables[1].split("\t")[1] == "a b"
    assert tables[2].split("\t")[:3] == ["agents/demo", "demo:", "multiply"]
    assert tables[3].split("\t")[0] == "multiply"
    assert "Multiplies." in tables[3]
    assert [json.loads(line)["name"] for line in lines] == [TURN, "threads/abcd", "agents/demo", "multiply"]


async def test_nothing_at_the_address_ends_with_4_and_the_way_out() -> None:
    async with asyncio.timeout(60):
        done = await turnwire("turns", target="127.0.0.1:1")
    assert done.code == 4
    assert done.err.startswith("UNAVAILABLE / UNREACHABLE: ")
    assert "turnwire up" in done.err
    assert "Traceback" not in done.err


async def test_what_the_server_refuses_ends_with_5_code_reason_and_the_way_out() -> None:
    refusal = Failure(grpc.StatusCode.NOT_FOUND, "no agent agents/nobody", "AGENT_NOT_FOUND")
    runtime = ScriptedRuntime(STORY, Leg(until=0, failure=refusal))
    done = await against(runtime, "run", "--agent", "nobody", "hello")
    assert done.code == 5
    assert done.err.startswith("NOT_FOUND / AGENT_NOT_FOUND: no agent agents/nobody\n")
    assert "turnwire agents" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["watch"],
        ["run", "--no-such-option"],
        ["run", "--agent", "demo", "look at @./no/such/file"],
        ["--token", "чат", "turns"],
        ["--target", "far.example.com:1", "--token", "secret", "turns"],
    ],
)
async def test_wrong_usage_ends_with_2_and_no_traceback(words: list[str]) -> None:
    async with asyncio.timeout(60):
        done = await turnwire(*words)
    assert done.code == 2
    assert done.err.strip()
    assert "Traceback" not in done.err


async def test_help_tells_the_exit_codes_and_version_the_version() -> None:
    async with asyncio.timeout(60):
        helped, versioned = await turnwire("--help"), await turnwire("version")
    assert helped.code == versioned.code == 0
    assert "Exit codes: 0 done, 1 the turn failed" in helped.out
    assert versioned.out.startswith("turnwire ")
