"""Every wait has an end and every task an owner."""

from __future__ import annotations

import ast

from source_tree import dotted, imports, sources, suite_sources

BANNED = {
    "asyncio.wait_for": "use asyncio.timeout: wait_for may lose a result on cancellation",
    "asyncio.gather": "use asyncio.TaskGroup: gather leaves siblings running",
    "asyncio.get_event_loop": "use asyncio.get_running_loop",
}

# Modules that, besides those named supervisor, start tasks outside a TaskGroup: each keeps the reference and
# ends the task before it returns. They start theirs to cancel them one by one, which a group cannot.
TASK_OWNERS = (
    "turnwire.runtime.control_link",
    "turnwire.runtime.engine.cancel",
    "turnwire.runtime.engine.tools",
    "turnwire.runtime.store.thread_watch",
)

# A longer constant sleep in a test stands for something that hangs and is cut off.
HANG_SECONDS = 60


def test_no_call_that_loses_results_or_tasks() -> None:
    found = [
        f"{source.at(node)} {dotted(node)}: {BANNED[dotted(node)]}"
        for source in sources() + suite_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and dotted(node) in BANNED
    ]
    found += [
        f"{source.at(node)} imports {name}: {BANNED[name]}"
        for source in sources() + suite_sources()
        for node, name in imports(source)
        if name in BANNED
    ]
    assert not found, "\n".join(found)


def test_tasks_start_in_a_group_or_under_a_named_owner() -> None:
    starters = {"asyncio.create_task", "asyncio.ensure_future", "asyncio.get_running_loop().create_task"}
    found = [
        f"{source.at(node)} {dotted(node.func)}"
        for source in sources()
        if source.module not in TASK_OWNERS and source.parts[-1] != "supervisor"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and (dotted(node.func) in starters or dotted(node.func).endswith("loop.create_task"))
    ]
    assert not found, "\n".join(found)


def test_tests_wait_for_events_and_never_for_the_clock() -> None:
    found = []
    for source in suite_sources():
        if source.parts[0] == "support":
            continue  # holds what tests run, such as tools that are slow on purpose
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            argument = node.args[0]
            seconds = (
                argument.value
                if isinstance(argument, ast.Constant) and isinstance(argument.value, int | float)
                else 0
            )
            if dotted(node.func) == "time.sleep":
                found.append(f"{source.at(node)} time.sleep")
            elif dotted(node.func) == "asyncio.sleep" and 0 < seconds < HANG_SECONDS:
                found.append(f"{source.at(node)} asyncio.sleep({seconds})")
    assert not found, "\n".join(found)
