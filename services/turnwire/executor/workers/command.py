"""Commands: words from arguments, one shim each, and a truthful reading of how the command ended."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turnwire.executor.bodies import STOP_GRACE_SECONDS, Seat
from turnwire.executor.domain import Call, Ending, Outcome
from turnwire.executor.limits import Captured
from turnwire.executor.stopping import StopSwitch
from turnwire.executor.workers.host import ProcessHost
from turnwire.executor.workers.launcher import SpawnFailed
from turnwire.executor.workers.tree import kill_marked
from turnwire.executor.workspace import OutsideWorkspace
from turnwire.extend.tools import ArgumentError, CommandTool, ToolSpec

__all__ = ["CommandBody", "render_argv", "said"]

logger = logging.getLogger(__name__)

_PLACE = re.compile(r"\{(\w+)\}")
_ARGUMENTS_IN_ENV_BYTES = 64 << 10
_SO_FAR_CHARS = 8_000
# Beyond limit and grace the shim itself gives up on unkillable processes; after this it is taken for dead.
_SHIM_PATIENCE_SECONDS = 8.0


def render_argv(tool: CommandTool, arguments: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Give the words of the command and the variables that carry arguments into a shell text.

    A shell never parses an argument: each place becomes a quoted variable.
    """
    if tool.shell:
        names = {name: f"TURNWIRE_ARG_{name.upper()}" for name in tool.parameters}
        text = _PLACE.sub(
            lambda match: f'"${{{names[match[1]]}}}"' if match[1] in names else match[0], tool.shell
        )
        return ["bash", "-c", text], {names[name]: _word(value) for name, value in arguments.items()}
    argv: list[str] = []
    for item in tool.argv:
        whole = _PLACE.fullmatch(item)
        if whole is not None and isinstance(arguments.get(whole[1]), list):
            argv.extend(_word(value) for value in arguments[whole[1]])
            continue
        argv.append(
            _PLACE.sub(lambda match: _word(arguments[match[1]]) if match[1] in arguments else match[0], item)
        )
    return argv, {}


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(_word(item) for item in value)
    return "" if value is None else str(value)


class CommandBody:
    """One command tool of the catalog."""

    inline = False

    def __init__(self, tool: CommandTool, host: ProcessHost) -> None:
        self._tool = tool
        self._host = host

    @property
    def spec(self) -> ToolSpec:
        """What the tool promises."""
        return self._tool.spec

    def try_reserve(self) -> Seat | None:
        """Take room if there is some."""
        return _CommandSeat(self._tool, self._host) if self._host.commands.take() else None

    async def reserve(self) -> Seat:
        """Wait for room among the commands."""
        await self._host.commands.acquire()
        return _CommandSeat(self._tool, self._host)


class _CommandSeat:
    def __init__(self, tool: CommandTool, host: ProcessHost) -> None:
        self._tool = tool
        self._host = host
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._host.commands.release()

    async def run(self, call: Call, stop: StopSwitch) -> Ending:
        try:
            arguments = self._tool.arguments(call.arguments_json)
            spec = self._shim_spec(call, arguments)
        except (ArgumentError, OutsideWorkspace) as error:
            return said(Outcome.FAILED, str(error))
        except OSError as error:
            return said(Outcome.NOT_STARTED, f"The workspace cannot be used: {error.strerror}")
        if stop.cause:
            return said(Outcome.NOT_STARTED, "The call was stopped before the command started.")
        try:
            stream = await self._host.launcher.launch(spec)
        except SpawnFailed as error:
            return said(Outcome.NOT_STARTED, f"The command could not be started: {error}")
        stop.on_set(lambda: stream.send({"op": "stop", "cause": "cancel"}))
        so_far = ""
        try:
            async with asyncio.timeout(call.timeout + STOP_GRACE_SECONDS + _SHIM_PATIENCE_SECONDS):
                while (message := await stream.receive()) is not None:
                    if message["kind"] == "end":
                        return self._read_end(message)
                    if message["kind"] == "progress":
                        so_far = (so_far + message["text"])[-_SO_FAR_CHARS:]
                        call.report(message["text"])
        except TimeoutError:
            logger.error("executor.shim.stuck", extra={"execution": call.key.execution_id})
        finally:
            stream.close()
        return await self._lost(call, so_far)

    def _shim_spec(self, call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
        host, tool = self._host, self._tool
        workspace = host.workspaces.folder(call.context.workspace)
        argv, variables = render_argv(tool, arguments)
        env = {**host.environment.for_call(call, workspace, tool.env), **variables}
        text = call.arguments_json or "{}"
        if len(text) <= _ARGUMENTS_IN_ENV_BYTES:
            env["TURNWIRE_ARGUMENTS"] = text
        return {
            "argv": host.isolation.wrap(argv, workspace),
            "env": env,
            "cwd": str(workspace / tool.cwd),
            "stdin": text if tool.json_stdin else None,
            "timeout": call.timeout,
            "grace": STOP_GRACE_SECONDS,
            "staging": str(host.staging),
            "limits": host.limits_for(call).to_dict(),
            "rlimits": host.isolation.rlimits(),
            "worker": False,
        }

    def _read_end(self, message: dict[str, Any]) -> Ending:
        cause = message["cause"]
        if cause == "start-error":
            return said(Outcome.NOT_STARTED, f"The command could not be started: {message['error']}")
        captured = Captured.from_dict(message["captured"])
        code = message["exit_code"]
        notes = []
        if message["leftovers"]:
            notes.append(f"{message['leftovers']} processes that the command left behind were ended")
        if message["survivors"]:
            notes.append(f"{message['survivors']} processes hang in the kernel and could not be ended")
        outcome = {"deadline": Outcome.TIMED_OUT, "cancel": Outcome.STOPPED}.get(cause)
        if outcome is None:
            outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
            if code:
                notes.insert(0, f"exit status {code}" if code > 0 else f"ended by signal {-code}")
        for note in notes:
            captured = _with_note(captured, note)
        return Ending(
            outcome=outcome,
            captured=captured,
            is_error=outcome is not Outcome.SUCCEEDED,
            exit_code=code,
            cancel_note=self._tool.cancel_note if outcome is Outcome.STOPPED else "",
        )

    async def _lost(self, call: Call, so_far: str) -> Ending:
        """The shim has gone without a word: end what it left and admit that the end is unknown."""
        mark = self._host.environment.mark_of(call.key)
        await asyncio.to_thread(kill_marked, mark)
        return replace(said(Outcome.OUTCOME_UNKNOWN, so_far), lost=True)


def said(outcome: Outcome, text: str) -> Ending:
    """Make an ending whose whole text is ours."""
    return Ending(
        outcome=outcome,
        captured=Captured(head=text, total_chars=len(text), total_bytes=len(text.encode())),
        is_error=True,
    )


def _with_note(captured: Captured, note: str) -> Captured:
    text = captured.tail if captured.truncated else captured.head
    gap = "" if not text or text.endswith("\n") else "\n"
    text = f"{text}{gap}[{note}]"
    return replace(captured, tail=text) if captured.truncated else replace(captured, head=text)
