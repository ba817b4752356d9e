"""The packages that the services stand on are used where they belong, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from source_tree import imports, is_under, sources

SERVICES = ("turnwire.runtime", "turnwire.control", "turnwire.executor")


@dataclass(frozen=True)
class Home:
    """Where a package belongs: it is used under each of `needed`, and only under `allowed`."""

    needed: tuple[str, ...]
    allowed: tuple[str, ...]


HOMES = {
    # Servers and channels, the runtime's links to its peers, and the client at the other end.
    "grpc": Home(
        ("turnwire.wire", "turnwire.runtime", "turnwire_client"),
        ("turnwire.wire", *SERVICES, "turnwire_client", "turnwire.cli"),
    ),
    # Generated messages meet the domain in the codecs.
    "google.protobuf": Home(SERVICES, ("turnwire.wire", *SERVICES, "turnwire_client", "turnwire.cli")),
    # Settings, files of agents, arguments of tools: what people write. Nothing that runs per token.
    "pydantic": Home(
        ("turnwire.core.settings", "turnwire.extend", "turnwire.runtime.domain.agent"), ("turnwire",)
    ),
    # Repeats: of model calls before anything was seen, and of commits.
    "tenacity": Home(
        ("turnwire.runtime.models.retry", "turnwire.storage"), ("turnwire.runtime.models", "turnwire.storage")
    ),
    # The server's spans; links add the trace by hand.
    "opentelemetry.instrumentation.grpc": Home(("turnwire.wire",), ("turnwire.wire",)),
}


@cache
def imported() -> tuple[tuple[str, str, str], ...]:
    """Module, imported name and place of every import of ours."""
    return tuple((s.module, name, s.at(node)) for s in sources() for node, name in imports(s))


def users(package: str) -> dict[str, str]:
    """Module name to place, for each module of ours that imports the package."""
    return {module: place for module, name, place in imported() if is_under(name, package)}


@pytest.mark.parametrize("package", HOMES)
def test_a_core_package_is_used_where_it_belongs(package: str) -> None:
    found = users(package)
    for home in HOMES[package].needed:
        assert any(is_under(module, home) for module in found), f"{home} does not use {package}"


@pytest.mark.parametrize("package", HOMES)
def test_a_core_package_is_used_nowhere_else(package: str) -> None:
    strangers = [
        place
        for module, place in users(package).items()
        if not any(is_under(module, home) for home in HOMES[package].allowed)
    ]
    assert not strangers, "\n".join(strangers)
