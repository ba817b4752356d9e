"""The catalog of errors against the sources: what is raised is documented with its code, and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import grpc
import pytest

from support.bad_input_registry import NOT_SERVED_YET, UNSERVED_METHODS
from support.descriptors import ROOT, contract
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.stop import state_of
from turnwire.runtime.failure_codec import failure_status
from turnwire.storage.units import StoreUnavailable
from turnwire.wire.status import CODES

REASONS = contract().reasons
METHODS = contract().methods
SOURCES = (ROOT / "services/turnwire", ROOT / "clients/python/turnwire_client")
CLASSES = {error.__name__: code.name for error, code in CODES.items()} | {
    StoreUnavailable.__name__: "UNAVAILABLE"
}

# In the catalog for clients that are older or newer than this version, and raised by nothing in it.
KEPT = {"MODEL_UNAVAILABLE"}


@cache
def _trees() -> dict[Path, ast.Module]:
    paths = (path for root in SOURCES for path in sorted(root.rglob("*.py")))
    ours = (path for path in paths if ROOT / "services/turnwire/api" not in path.parents)
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in ours}


def _raised() -> Iterator[tuple[str, str, str]]:
    """Yield place, reason and, where a class of errors is called, its code."""
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                for keyword in node.keywords:
                    if keyword.arg in ("reason", "error_reason") and (word := _word(keyword.value)):
                        yield f"{path}:{node.lineno}", word, CLASSES.get(name, "")
            elif isinstance(node, ast.ClassDef):
                for statement in node.body:
                    if isinstance(statement, ast.Assign | ast.AnnAssign) and "default_reason" in ast.unparse(
                        statement
                    ):
                        word = _word(statement.value) if statement.value is not None else ""
                        if word:
                            yield f"{path}:{statement.lineno}", word, CLASSES.get(node.name, "")


def _word(node: ast.expr) -> str:
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("[A-Z][A-Z_]+", node.value)
    ):
        return node.value
    return ""


def _in_turns() -> set[str]:
    """Reasons of failed turns that are made from the stop reason."""
    words = {error.stop_reason for error in AgentControlError.__subclasses__()} | {"error"}
    return {word.upper().replace("-", "_") for word in words if state_of(word) is TurnState.FAILED}


def test_every_reason_that_is_raised_is_in_the_catalog_with_the_code_of_its_class() -> None:
    found = list(_raised())
    assert len(found) > 60
    unknown = [f"{place}: {word}" for place, word, _ in found if word not in REASONS]
    assert unknown == []
    wrong = [
        f"{place}: {word} is {code} here and {REASONS[word].code} in the catalog"
        for place, word, code in found
        if code and REASONS[word].code != code
    ]
    assert wrong == []
    assert _in_turns() <= REASONS.keys()


def test_every_reason_of_the_catalog_is_raised_or_belongs_to_a_part_that_is_not_served() -> None:
    constants = {
        node.value
        for path, tree in _trees().items()
        if "cli" not in path.parts and path.name != "policy.py"  # these only react to reasons
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    used = (constants & REASONS.keys()) | _in_turns()
    later = {reason for short in UNSERVED_METHODS for _, reason in METHODS[short].answers}
    later |= {reason for _, reason in NOT_SERVED_YET}
    assert REASONS.keys() - used - later - KEPT == set()
    assert used & KEPT == set(), "it is raised now: take it off the list"


def test_every_answer_that_a_method_lists_is_in_the_catalog_under_the_same_code() -> None:
    wrong = [
        f"{method.short}: {code} / {reason}"
        for method in METHODS.values()
        for code, reason in method.allowed
        if reason not in REASONS or REASONS[reason].code != code
    ]
    assert wrong == []


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_begins_with_a_code_and_is_short_enough_for_the_wire(name: str) -> None:
    reason = REASONS[name]
    assert reason.code in grpc.StatusCode.__members__
    assert re.match(rf"{reason.code}(, at start|, in a failed turn)?: ", reason.comment)
    assert len(name) <= 63


def test_the_error_of_a_failed_turn_has_the_code_of_the_catalog() -> None:
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    named = {name: reason.code for name, reason in REASONS.items() if ", in a failed turn:" in reason.comment}
    assert {name: codes[failure_status(name, "text").code] for name in named} == named


def test_the_page_of_errors_is_made_from_the_catalog() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    assert page == _docs().errors_page()
    assert [row[1] for row in re.finditer(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)] == list(REASONS)


def _docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts/docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
