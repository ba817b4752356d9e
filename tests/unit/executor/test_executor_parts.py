"""Settings, words of commands, environments, isolation, and the loading of users' tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from turnwire.core.errors import WrongState
from turnwire.executor.domain import Call, ExecutionContext, ExecutionKey
from turnwire.executor.settings import ExecutorSettings
from turnwire.executor.workers.command import render_argv
from turnwire.executor.workers.environment import ProcessEnvironment
from turnwire.executor.workers.host import Isolation, IsolationSettings
from turnwire.executor.workers.loading import LoadProblem, load_tools
from turnwire.extend.tools import Parameter, command_tool

CALL = Call(
    key=ExecutionKey("default-org", "threads/abcd/turns/abcd/c", 1),
    arguments_json="{}",
    context=ExecutionContext(
        turn="the turn", variables={"EXTRA": "1", "bad name": "2", "TURNWIRE_TURN": "lie", "N": "\0"}
    ),
    timeout=5.0,
    max_result_chars=1_000,
    report=print,
)


def test_settings_come_from_the_environment_as_people_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TOOLS": "./a.py, ./b.py",
        "PROCESS_ENV": '["PATH", "TZ"]',
        "TIME__DEFAULT_TIMEOUT_SECONDS": "5",
        "LISTEN__PORT": "0",
    }.items():
        monkeypatch.setenv(f"TURNWIRE_EXECUTOR_{name}", value)
    settings = ExecutorSettings()
    assert settings.tools == ("./a.py", "./b.py")
    assert settings.process_env == ("PATH", "TZ")
    assert settings.time.default_timeout_seconds == 5
    assert settings.workspaces == Path(".turnwire/workspace")
    with pytest.raises(ValidationError):
        settings.shell_enabled = True  # type: ignore[misc]


def test_defaults_are_those_of_the_documentation() -> None:
    settings = ExecutorSettings()
    assert settings.listen.port == 50053
    assert settings.time.default_timeout_seconds == 540
    assert settings.result.max_chars == 50_000
    assert (settings.result.head_ratio, settings.result.tail_ratio) == (0.10, 0.15)
    assert settings.time.queue_timeout_seconds == 60
    assert settings.time.heartbeat_seconds == 10
    assert not settings.shell_enabled
    assert not settings.http.allow_private


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonsense": 1},
        {"time": {"default_timeout_seconds": 10, "max_timeout_seconds": 5}},
        {"result": {"max_chars": 10}},
        {"isolation": {"mode": "magic"}},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ExecutorSettings(**wrong)


def test_words_take_arguments_and_a_shell_text_takes_variables() -> None:
    parameters = {"a": Parameter(), "many": Parameter("strings"), "on": Parameter("boolean")}
    words = command_tool(
        "words", ["run", "--a={a}", "{many}", "{on}", "{other}", "{{a}}"], parameters=parameters
    )
    arguments = {"a": "x y", "many": ["1", "2 3"], "on": True}
    assert render_argv(words, arguments)[0] == ["run", "--a=x y", "1", "2 3", "true", "{other}", "{x y}"]
    shell = command_tool("shell", shell="grep {a} ${HOME} {other}", parameters=parameters)
    argv, variables = render_argv(shell, {**arguments, "a": '\'; rm -rf "$HOME"'})
    assert argv == ["bash", "-c", 'grep "${TURNWIRE_ARG_A}" ${HOME} {other}']
    assert variables["TURNWIRE_ARG_A"] == '\'; rm -rf "$HOME"'


def test_environments_hold_what_is_allowed_and_what_the_call_tells(tmp_path: Path) -> None:
    environment = ProcessEnvironment({"PATH": "/bin", "SECRET": "s", "KEY": "k"}, ("PATH",), "mark")
    seen = environment.for_call(CALL, tmp_path, ["KEY"])
    assert seen["PATH"] == "/bin"
    assert seen["KEY"] == "k"
    assert seen["EXTRA"] == "1"
    assert seen["TURNWIRE_TURN"] == "the turn"
    assert seen["TURNWIRE_WORKSPACE"] == str(tmp_path)
    assert seen["TURNWIRE_EXECUTION_MARK"].startswith("mark.")
    assert not {"SECRET", "bad name", "N", "TRACEPARENT"} & set(seen)
    first, second = environment.for_worker([]), environment.for_worker([])
    assert first["TURNWIRE_EXECUTION_MARK"] != second["TURNWIRE_EXECUTION_MARK"]


def test_marks_differ_by_attempt_and_scope() -> None:
    environment = ProcessEnvironment({}, (), "mark")
    keys = [
        ExecutionKey("default-org", "threads/abcd/turns/abcd/c", 1),
        ExecutionKey("default-org", "threads/abcd/turns/abcd/c", 2),
        ExecutionKey("other-org", "threads/abcd/turns/abcd/c", 1),
    ]
    assert len({environment.mark_of(key) for key in keys}) == 3


def test_isolation_wraps_commands_or_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = Isolation(IsolationSettings(max_cpu_seconds=3))
    assert plain.wrap(["ls"], tmp_path) == ["ls"]
    assert plain.rlimits() == {"CPU": 3, "NOFILE": 1024, "CORE": 0}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WrongState, match="bwrap is not installed"):
        Isolation(IsolationSettings(mode="bubblewrap"))
    program = tmp_path / "bwrap"
    program.touch(mode=0o755)
    wrapped = Isolation(IsolationSettings(mode="bubblewrap")).wrap(["ls"], tmp_path)
    assert wrapped[0] == "bwrap"
    assert "--unshare-net" in wrapped
    assert wrapped[-2:] == ["--", "ls"]
    open_ = Isolation(IsolationSettings(mode="bubblewrap", network=True)).wrap(["ls"], tmp_path)
    assert "--unshare-net" not in open_


def test_tools_are_loaded_from_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'hi'\n")
    file = tmp_path / "tools_one.py"
    file.write_text(
        "from turnwire.extend.tools import tool, command_tool\n"
        "from neighbour import WORD\n"
        "@tool\ndef say(name: str) -> str:\n    return WORD + name\n"
        "alias = say\n"
        "listing = command_tool('listing', ['ls'])\n"
    )
    assert list(load_tools([str(file)], with_entry_points=False)) == ["say", "listing"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise ValueError('no')", "ValueError: no at .*broken_tools.py:1"),
        (
            "from turnwire.extend.tools import tool\n@tool\ndef f(*a: int): ...\n",
            "no usable schema.*ordinary named",
        ),
        (
            "from turnwire.extend.tools import tool\n@tool\ndef f(): ...\n@tool(name='f')\ndef g(): ...\n",
            "tool f stands in",
        ),
    ],
)
def test_files_that_do_not_load_say_why(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "broken_tools.py"
    file.write_text(text)
    with pytest.raises(LoadProblem, match=words):
        load_tools([str(file)], with_entry_points=False)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(LoadProblem, match="there is no such file"):
        load_tools(["absent_tools.py"], with_entry_points=False)


def test_installed_packages_bring_tools_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brought.py").write_text(
        "from turnwire.extend.tools import tool\n@tool\ndef brought() -> str:\n    return 'x'\n"
    )
    info = tmp_path / "brought-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[turnwire.tools]\nours = brought\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "brought" in load_tools([], with_entry_points=True)
    (info / "entry_points.txt").write_text("[turnwire.tools]\nours = not_there\n")
    with pytest.raises(LoadProblem, match="entry point ours"):
        load_tools([], with_entry_points=True)
