"""One tour through turnwire, without any key: three processes, real tools, a cancel and a deadline.

Every number is drawn anew, every check is made on what came over the wire, and the data stays for a replay.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwire_client import Client, TurnView, TurnwireError
from turnwire_client.messages import OutcomeKind, ToolCallFinished, ToolOutcome, TurnEvent, TurnState

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
START_SECONDS = 40.0
STOP_SECONDS = 30.0


class DemoFailed(Exception):
    """Something was not as promised; the text says what."""


def main() -> int:
    """Run the tour; returns 0 when everything was as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder for the stores; kept. Default: a new one")
    data = parser.parse_args().data or new_folder()
    data.mkdir(parents=True, exist_ok=True)
    try:
        with services(data) as target, Client(target) as client:
            turns = tour(client)
        replay_commands(data, turns)
    except (DemoFailed, TurnwireError) as error:
        print(f"\nThe demo failed: {error}\nThe services' log: {shown(data / 'up.log')}", file=sys.stderr)
        return 1
    return 0


def new_folder() -> Path:
    """Make a folder that stays, inside the one that git ignores."""
    parent = ROOT / ".turnwire"
    parent.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="demo-", dir=parent))


@contextmanager
def services(data: Path) -> Iterator[str]:
    """Start the three services on free ports and stop them at the end; gives the runtime's address."""
    ready, log = data / "ready.json", data / "up.log"
    ready.unlink(missing_ok=True)
    with log.open("wb") as out:
        up = subprocess.Popen(
            up_command(data, ready), stdout=out, stderr=subprocess.STDOUT, env=quiet_environment()
        )
        try:
            facts = await_ready(up, ready)
            title("Three processes serve on loopback")
            for name, address in facts["addresses"].items():
                print(f"  turnwire-{name:<9} {address:<16} pid {facts['pids'][name]}")
            yield facts["addresses"]["runtime"]
        finally:
            up.send_signal(signal.SIGINT)
            code = stop(up)
    if code != 0:
        raise DemoFailed(f"the services did not stop in good order: exit code {code}")


def up_command(data: Path, ready: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "turnwire.cli.main", "up", "--data", str(data)),
        *("--runtime-port", "0", "--control-port", "0", "--executor-port", "0"),
        *("--agents", str(HERE / "agents"), "--tools", str(HERE / "tools.py"), "--ready-file", str(ready)),
    ]


def quiet_environment() -> dict[str, str]:
    """Leave out settings of other deployments, which the demo must not follow."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


def await_ready(up: subprocess.Popen[bytes], ready: Path) -> dict[str, dict[str, str]]:
    """Wait for the ready file and read it."""
    ends = time.monotonic() + START_SECONDS
    while not ready.exists():
        if up.poll() is not None:
            raise DemoFailed(f"the services ended with exit code {up.returncode} before they were ready")
        if time.monotonic() > ends:
            raise DemoFailed(f"the services were not ready after {START_SECONDS:g} s")
        time.sleep(0.05)
    facts: dict[str, dict[str, str]] = json.loads(ready.read_text(encoding="utf-8"))
    return facts


def stop(up: subprocess.Popen[bytes]) -> int:
    """Wait for the services to drain, and end them when they do not."""
    try:
        return up.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        up.kill()
        up.wait()
        return -signal.SIGKILL


def tour(client: Client) -> list[str]:
    """Run the four turns and read them again from the log; gives their names."""
    a, b = random.randint(100, 999), random.randint(100, 999)
    told = [
        calculation(client, "multiply", f"multiply {a} by {b}", a * b),
        calculation(client, "add", f"add {b} and {a}", a + b),
        cancelled_story(client),
        late_report(client),
    ]
    title("Everything is in the log: each turn is read again from event 1")
    for events in told:
        turn = events[0].turn
        with client.watch(turn, after=0) as stream:
            check(list(stream) == events, f"{turn} reads differently from the log than it was streamed")
        print(f"  {turn}: {len(events)} events, the same")
    return [events[0].turn for events in told]


def calculation(client: Client, tool: str, question: str, expected: int) -> list[TurnEvent]:
    """Have a tool compute something; the result must come from the executor and reach the answer."""
    title(f"A turn that calls a tool: {question}")
    events = streamed(client, question)
    view = TurnView(events)
    results = [call.result for call in view.calls.values() if call.tool_name == tool and call.result]
    check(len(results) == 1, f"{tool} was called {len(results)} times, not once")
    check(results[0].content.strip() == str(expected), f"{tool} gave {results[0].content!r}, not {expected}")
    check(view.state == TurnState.TURN_STATE_COMPLETED, f"the turn ended as {view.stop_reason}")
    check(str(expected) in view.text, f"the answer {view.text!r} does not hold {expected}")
    return events


def cancelled_story(client: Client) -> list[TurnEvent]:
    """Let a story begin and stop it by CANCEL_TURN."""
    title("A turn that is cancelled in the middle of its stream")
    events: list[TurnEvent] = []
    words, asked = 0, 0.0
    with client.run_turn(agent="demo", text="tell me a long story") as stream:
        for event in stream:
            events.append(event)
            show(event)
            words += bool(event.llm.text_delta.text)
            if words == 40 and not asked:
                asked = time.monotonic()
                outcome = client.cancel(stream.turn, cause="the demo has heard enough")
                applied = outcome is not None and outcome.kind == OutcomeKind.OUTCOME_KIND_APPLIED
                check(applied, f"CANCEL_TURN was not applied: {outcome}")
    view = TurnView(events)
    check(
        view.state == TurnState.TURN_STATE_CANCELLED, f"the turn ended as {view.stop_reason}, not cancelled"
    )
    check(bool(view.text), "the text so far was lost")
    print(
        f"  CANCEL_TURN to the end of the stream: {(time.monotonic() - asked) * 1000:.0f} ms; the text stays"
    )
    return events


def late_report(client: Client) -> list[TurnEvent]:
    """Run a tool into its limit of one second; the turn itself goes on."""
    title("A tool that is cut off by its deadline of 1 s")
    events = streamed(client, "run the slow report")
    view = TurnView(events)
    results = [call.result for call in view.calls.values() if call.result]
    check(len(results) == 1, f"slow_report was called {len(results)} times, not once")
    outcome, content = results[0].outcome, results[0].content
    timed_out = outcome == ToolOutcome.TOOL_OUTCOME_TIMED_OUT
    check(timed_out, f"slow_report ended as {ToolOutcome.Name(outcome)}, not TIMED_OUT")
    check("page 1 of the report" in content, "what the tool had printed was lost")
    check(seconds_of(results[0]) < 5, f"the tool ran for {seconds_of(results[0]):.1f} s")
    check(view.state == TurnState.TURN_STATE_COMPLETED, f"the turn ended as {view.stop_reason}")
    return events


def streamed(client: Client, text: str) -> list[TurnEvent]:
    """Run a turn, show it as it happens, and give its events."""
    events = []
    with client.run_turn(agent="demo", text=text) as stream:
        for event in stream:
            events.append(event)
            show(event)
    return events


def show(event: TurnEvent) -> None:
    """Print what a person wants to see of an event."""
    match event.WhichOneof("event"):
        case "llm":
            call = event.llm.tool_call_complete
            if call.tool_name:
                print(f"\n  -> {call.tool_name} {call.arguments_json}")
            print(event.llm.text_delta.text, end="", flush=True)
        case "tool_call_finished":
            result = event.tool_call_finished
            outcome = ToolOutcome.Name(result.outcome).removeprefix("TOOL_OUTCOME_").lower()
            first, *more = result.content.strip().splitlines() or [""]
            print(f"  <- {outcome} after {seconds_of(result):.3f} s: {first}" + (" ..." if more else ""))
        case "turn_finished":
            print(f"\n  {event.turn}: {event.turn_finished.stop_reason}")
        case _:
            pass


def seconds_of(result: ToolCallFinished) -> float:
    return result.elapsed_duration.ToTimedelta().total_seconds()


def replay_commands(data: Path, turns: list[str]) -> None:
    """Say how to look at it all again."""
    title("The services have stopped; replay every turn from the stores")
    print(f"  {shlex.join(['turnwire', 'up', '--data', shown(data)])}")
    for turn in turns:
        print(f"  turnwire watch {turn} --after 0 --json")


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def check(holds: bool, text: str) -> None:
    if not holds:
        raise DemoFailed(text)


def shown(path: Path) -> str:
    """Give a path as one would type it here."""
    return os.path.relpath(path)


if __name__ == "__main__":
    sys.exit(main())
