"""The page about providers tells what the code does."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from support.doc_pages import blocks, page, table
from turnwire.runtime.models.capabilities import CAPABILITIES, FORMATS
from turnwire.runtime.models.capture import CapturePolicy
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import ModelSettings, ProviderProfile

PAGE = page("docs/providers.md")


def test_the_table_has_each_capability_with_its_words() -> None:
    rows = {row[0].strip("*` "): row[1 : len(FORMATS) + 1] for row in table(PAGE, "capability")}
    assert rows == {row.name: list(row.words) for row in CAPABILITIES}


def test_the_profiles_of_the_page_are_profiles_and_make_models() -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    (text,) = blocks(PAGE, "json")
    profiles: dict[str, Any] = json.loads(text)
    registry = ModelRegistry(
        ModelSettings(providers={name: ProviderProfile(**fields) for name, fields in profiles.items()})
    )
    for name, fields in profiles.items():
        assert registry.resolve(f"{name}:m").name == f"{name}:m"
        sdk = __import__(fields["transport"])
        assert hasattr(sdk, fields["client"])


def test_the_page_names_each_policy_of_capture() -> None:
    told = [row[0].partition(",")[0].strip("`") for row in table(PAGE, "value")]
    assert told == list(get_args(CapturePolicy))
