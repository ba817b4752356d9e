"""What the built-in tools may do without asking: as long as nobody can be asked, all of them run unasked."""

from __future__ import annotations

from pathlib import Path

from turnwire.core.clock import SystemClock
from turnwire.executor.overflow import Overflow
from turnwire.executor.tools import builtin_tools
from turnwire.executor.tools.http import HttpSettings
from turnwire.executor.workspace import Workspaces
from turnwire.extend.tools import Risk
from turnwire.storage.objects import OverflowStore


def test_every_built_in_tool_that_is_on_by_default_can_run_without_an_approval(tmp_path: Path) -> None:
    overflow = Overflow(OverflowStore(tmp_path))
    tools = builtin_tools(Workspaces(tmp_path), HttpSettings(), overflow, SystemClock())
    assert {tool.spec.risk for tool in tools} == {Risk.NORMAL}
    assert "write_file" in {tool.name for tool in tools}
