"""Every reason that a method's comment lists, provoked against the real services, and no row left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import (
    bad_input_actions,
    bad_input_control,
    bad_input_executor,
    bad_input_history,
    bad_input_threads,
    bad_input_turns,
    bad_input_view,
)
from support.bad_input_registry import (
    CASES,
    FAULTS,
    GENERIC,
    NOT_SERVED_YET,
    UNSERVED_METHODS,
    Key,
    caller_of,
)
from support.bad_input_rig import Bad, Rig
from support.descriptors import ROOT, Method, contract

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODULES = (
    bad_input_actions,
    bad_input_control,
    bad_input_executor,
    bad_input_history,
    bad_input_threads,
    bad_input_turns,
    bad_input_view,
)  # each registers its cases
METHODS = contract().methods
SERVED = {short: method for short, method in METHODS.items() if short not in UNSERVED_METHODS}
ELSEWHERE: dict[Key, str] = {key: name for name, keys in FAULTS.items() for key in keys}


@pytest.fixture(name="rig")
def _rig(bad_input_rig: Rig) -> Rig:
    return bad_input_rig


def _listed() -> Iterator[tuple[Method, str, str, bool]]:
    """Every (method, code, reason) of served methods; the flag says that the whole service lists it."""
    for method in SERVED.values():
        for code, reason in method.answers:
            yield method, code, reason, False
        for code, reason in method.service_answers:
            yield method, code, reason, True


def _service(method: Method) -> str:
    return method.short.partition(".")[0]


def _provokers(method: Method, reason: str, wide: bool) -> list[str]:
    key = (_service(method), reason) if wide else (method.short, reason)
    found = ["case"] if not wide and key in CASES else []
    found += ["generic"] if reason in GENERIC else []
    found += ["fault"] if key in ELSEWHERE else []
    return found + (["not served yet"] if key in NOT_SERVED_YET else [])


async def test_every_listed_reason_has_exactly_one_provoker_and_no_provoker_is_superfluous() -> None:
    wrong = [
        f"{method.short} {reason}: {found or 'nothing provokes it'}"
        for method, _, reason, wide in _listed()
        if len(found := _provokers(method, reason, wide)) != 1
    ]
    known = {(method.short, reason) for method, _, reason, wide in _listed() if not wide}
    known |= {
        (_service(method), reason) for method in METHODS.values() for _, reason in method.service_answers
    }
    wrong += [
        f"{key}: no comment lists it" for key in (*CASES, *ELSEWHERE, *NOT_SERVED_YET) if key not in known
    ]
    wrong += [f"{short}: no such method" for short in UNSERVED_METHODS - METHODS.keys()]
    assert wrong == []


@pytest.mark.parametrize("key", [key for key in NOT_SERVED_YET if key[1] != "INTERNAL"], ids=".".join)
async def test_what_is_not_served_yet_is_raised_nowhere(key: Key) -> None:
    service, _, _ = key[0].partition(".")
    if (service, key[1]) == ("GraphService", "FEATURE_NOT_SERVED"):
        assert {short for short in METHODS if short.startswith(service)} <= UNSERVED_METHODS
        return
    area = next(m.service.split(".")[2] for m in METHODS.values() if _service(m) == service)
    sources = [
        path
        for name in (area, "wire", "storage")
        for path in (ROOT / "services/turnwire" / name).rglob("*.py")
    ]
    raising = [str(path) for path in sources if f'"{key[1]}"' in path.read_text(encoding="utf-8")]
    assert raising == [], "it can be provoked now: give it a case"


@pytest.mark.parametrize("key", CASES, ids=".".join)
async def test_the_case_is_refused_as_documented_and_leaves_no_row(rig: Rig, key: Key) -> None:
    method = METHODS[key[0]]
    refusal = await rig.refusal(method.short, await CASES[key](rig, method))
    assert refusal.reason == key[1], refusal
    if key[1] == "INVALID_REQUEST" and method.short != "AgentService.GetServerInfo":
        assert refusal.fields, f"no BadRequest names the field: {refusal}"


@pytest.mark.parametrize("short", METHODS)
async def test_callers_without_standing_are_refused_before_the_request_is_read(rig: Rig, short: str) -> None:
    method = METHODS[short]
    listed = {reason for _, reason in method.allowed}
    for reason, provoke in GENERIC.items():
        # Whoever has several scopes has no role for what only processes say.
        expected = reason if reason in listed else "ROLE_MISSING"
        refusal = await rig.refusal(short, await provoke(rig, method))
        assert refusal.reason == expected, refusal


@pytest.mark.parametrize("short", sorted(UNSERVED_METHODS))
async def test_a_method_that_is_not_served_says_so(rig: Rig, short: str) -> None:
    method = METHODS[short]
    bad = Bad.of(method.new_request(), caller=caller_of(method))
    refusal = await rig.refusal(short, bad)
    assert refusal.answer == ("UNIMPLEMENTED", "FEATURE_NOT_SERVED")
    assert refusal.metadata == {"feature": method.name}
