"""What a tool author writes against: a typed function, a command, and what a call tells and returns.

A tool is a plain function; its JSON Schema comes from its signature, so schema and code cannot disagree.
Nothing here runs anything: the executor loads these objects in a worker process.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeVar, get_type_hints, overload

from pydantic import BaseModel, Field

from turnwire.extend.tool_arguments import (
    ArgumentError,
    argument_model,
    description_of,
    model_from_signature,
    plain_schema,
    validated,
)
from turnwire.extend.tool_spec import Mode, Risk, SuspendStep, ToolSpec, as_timeout, checked_name, with_digest

__all__ = [
    "ArgumentError",
    "CommandTool",
    "Mode",
    "Parameter",
    "Risk",
    "Suspend",
    "SuspendStep",
    "Tool",
    "ToolContext",
    "ToolPart",
    "ToolResult",
    "ToolSpec",
    "command_tool",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A part of a result that is not text, such as an image."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool may return when text alone is not enough; `is_error` says that the tool failed."""

    text: str = ""
    parts: tuple[ToolPart, ...] = ()
    is_error: bool = False


class Suspend(Exception):
    """Raised by a tool to stop and wait for an answer.

    The same function is called again with `context.resume` set to the answer and `context.state` to `state`.
    Both are JSON values; `state` is at most 64 KiB and is shown to nobody.
    """

    def __init__(self, step: str, payload: Any = None, state: Any = None) -> None:
        super().__init__(step)
        self.step = step
        self.payload = payload
        self.state = state


@dataclass(frozen=True)
class ToolContext:
    """What a call tells its tool: a parameter annotated with this class receives it, unseen by the model."""

    thread: str = ""
    turn: str = ""
    call_id: str = ""
    agent: str = ""
    workspace: str = ""
    """Folder of the call, as an absolute path; commands start in it."""
    traceparent: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 0.0
    """Seconds from the start after which the call is stopped."""
    deadline: datetime | None = None
    """When that is, by the wall clock, in UTC."""
    resume_step: str = ""
    resume: Any = None
    """The answer to this tool's `Suspend`; None on the first call."""
    state: Any = None
    report: Callable[[str], None] = field(default=lambda text: None, repr=False, compare=False)

    def progress(self, text: str) -> None:
        """Tell the reader of the turn what is going on; the model does not see it. Safe from any thread."""
        self.report(text)


@dataclass(frozen=True, slots=True)
class _Options:
    name: str = ""
    description: str = ""
    timeout: timedelta | None = None
    repeatable: bool = False
    mode: Mode = Mode.EXCLUSIVE
    risk: Risk = Risk.NORMAL
    cancel_note: str = ""
    on_cancel: Callable[[ToolContext], Any] | None = None
    suspend_steps: tuple[SuspendStep, ...] = ()
    version: str = ""


class Tool(Generic[P, R]):
    """A function that a model may call; calling the object calls the function."""

    def __init__(self, function: Callable[P, R], options: _Options) -> None:
        self.function = function
        self.on_cancel = options.on_cancel
        self._options = options
        self.name = checked_name(options.name or function.__name__)
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it stands, for tests and for other tools."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function runs on an event loop."""
        return inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function)

    @cached_property
    def context_parameter(self) -> str:
        """Name of the parameter that receives the `ToolContext`, or empty."""
        hints = get_type_hints(self.function)
        return next((name for name, hint in hints.items() if hint is ToolContext and name != "return"), "")

    @cached_property
    def model(self) -> type[BaseModel]:
        """The model that the arguments are validated by."""
        return model_from_signature(self.name, self.function, self.context_parameter)

    @cached_property
    def spec(self) -> ToolSpec:
        """What the tool promises. Raises TypeError when the signature has no JSON Schema."""
        options = self._options
        description = options.description or description_of(self.function.__doc__ or "") or self.name
        return with_digest(
            ToolSpec(
                name=self.name,
                description=description,
                input_schema=plain_schema(self.model.model_json_schema()),
                mode=options.mode,
                timeout=options.timeout,
                repeatable=options.repeatable,
                risk=options.risk,
                cancel_note=options.cancel_note,
                suspend_steps=options.suspend_steps,
            ),
            options.version or _source(self.function),
        )

    def arguments(self, arguments_json: str) -> dict[str, Any]:
        """Validate a call's arguments. Raises ArgumentError with a text for the model."""
        return validated(self.name, self.model, arguments_json)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    timeout: float | timedelta | None = None,
    repeatable: bool = False,
    mode: Mode = Mode.EXCLUSIVE,
    risk: Risk = Risk.NORMAL,
    cancel_note: str = "",
    on_cancel: Callable[[ToolContext], Any] | None = None,
    suspend_steps: Sequence[SuspendStep] = (),
    version: str = "",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function a tool that a model may call.

    Args:
        name: what the model calls it; default the function's name.
        description: for the model; default the docstring up to its "Args:".
        timeout: longest run of one call, in seconds or as timedelta; default the executor's.
        repeatable: a call whose end is unknown may be run again without harm.
        mode: PARALLEL lets calls run beside others of the same step.
        risk: above NORMAL somebody is asked first; HARDLINE is always denied.
        cancel_note: what the model reads when a call was stopped.
        on_cancel: called once with the context, for at most 2 s, after a started call was stopped.
        suspend_steps: the points at which the function may raise `Suspend`.
        version: change it to void open approvals; default a digest of the source.
    """
    options["timeout"] = as_timeout(options.get("timeout"))
    options["suspend_steps"] = tuple(options.get("suspend_steps", ()))
    wrapped = _Options(**options)
    if function is not None:
        return Tool(function, wrapped)
    return lambda inner: Tool(inner, wrapped)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a command tool; without a default it is required."""

    type: Literal["string", "integer", "number", "boolean", "strings"] = "string"
    description: str = ""
    default: Any = ...
    choices: tuple[str, ...] = ()


_PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "strings": list[str],
}


@dataclass(frozen=True)
class CommandTool:
    """A command that a model may call.

    `argv` holds the words, in which `{name}` stands for an argument; an element that is exactly `{name}` of a
    `strings` parameter becomes one word per item. With `shell` the text runs in bash and each argument is
    quoted. The command sees its arguments in TURNWIRE_ARGUMENTS too, unless they exceed 64 KiB, and on
    standard input when `json_stdin` is set. `env` names variables of the executor that the command may see.
    `cwd` is relative to the workspace.
    """

    name: str
    description: str
    argv: tuple[str, ...] = ()
    shell: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    timeout: timedelta | None = None
    repeatable: bool = False
    mode: Mode = Mode.EXCLUSIVE
    risk: Risk = Risk.NORMAL
    cancel_note: str = ""
    env: tuple[str, ...] = ()
    json_stdin: bool = False
    cwd: str = ""
    version: str = ""

    @cached_property
    def model(self) -> type[BaseModel]:
        """The model that the arguments are validated by."""
        fields: dict[str, tuple[Any, Any]] = {}
        for name, parameter in self.parameters.items():
            kind = _PYTHON_TYPES[parameter.type]
            if parameter.choices:
                kind = Literal[parameter.choices]
            if parameter.description:
                kind = Annotated[kind, Field(description=parameter.description)]
            fields[name] = (kind, parameter.default)
        return argument_model(self.name, fields)

    @cached_property
    def spec(self) -> ToolSpec:
        """What the tool promises."""
        return with_digest(
            ToolSpec(
                name=self.name,
                description=self.description,
                input_schema=plain_schema(self.model.model_json_schema()),
                mode=self.mode,
                timeout=self.timeout,
                repeatable=self.repeatable,
                risk=self.risk,
                cancel_note=self.cancel_note,
            ),
            self.version or json.dumps([self.argv, self.shell, self.env, self.json_stdin, self.cwd]),
        )

    def arguments(self, arguments_json: str) -> dict[str, Any]:
        """Validate a call's arguments. Raises ArgumentError with a text for the model."""
        return validated(self.name, self.model, arguments_json)


def command_tool(
    name: str,
    argv: Sequence[str] | None = None,
    *,
    shell: str = "",
    description: str = "",
    parameters: Mapping[str, Parameter] | None = None,
    timeout: float | timedelta | None = None,
    repeatable: bool = False,
    mode: Mode = Mode.EXCLUSIVE,
    risk: Risk = Risk.NORMAL,
    cancel_note: str = "",
    env: Sequence[str] = (),
    json_stdin: bool = False,
    cwd: str = "",
    version: str = "",
) -> CommandTool:
    """Make a command a tool. Raises ValueError unless exactly one of `argv` and `shell` is given."""
    if bool(argv) == bool(shell):
        raise ValueError(f"command tool {name}: give either argv or shell")
    return CommandTool(
        name=checked_name(name),
        description=description or f"Runs: {shell or ' '.join(argv or ())}",
        argv=tuple(argv or ()),
        shell=shell,
        parameters=dict(parameters or {}),
        timeout=as_timeout(timeout),
        repeatable=repeatable,
        mode=mode,
        risk=risk,
        cancel_note=cancel_note,
        env=tuple(env),
        json_stdin=json_stdin,
        cwd=cwd,
        version=version,
    )


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except OSError:
        return function.__qualname__  # Built where no source is kept, such as an interactive session.
