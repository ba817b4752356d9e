"""A service loads what it always needs, and nothing that only some deployments do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.cli_process import environment

SERVICES = ("runtime", "control", "executor")
# Tools of other servers, object stores, migrations, exporters and the SDKs of model providers.
ABSENT = (
    "mcp",
    "obstore",
    "alembic",
    "sqlalchemy",
    "opentelemetry.exporter",
    "opentelemetry.sdk",
    "openai",
    "anthropic",
    "google.genai",
    "litellm",
    "yaml",
    "typer",
    "rich",
    "pytest",
)
PRESENT = ("grpc.aio", "google.protobuf.message", "pydantic", "opentelemetry.trace")


def loaded(service: str) -> list[str]:
    """The modules that stand in memory when the main module of a service has been imported."""
    code = f"import turnwire.{service}.main, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules: list[str] = json.loads(done.stdout)
    return modules


@pytest.mark.e2e
@pytest.mark.parametrize("service", SERVICES)
def test_the_main_of_a_service_loads_no_more_than_it_always_needs(service: str) -> None:
    modules = loaded(service)
    heavy = [m for m in modules if any(m == name or m.startswith(f"{name}.") for name in ABSENT)]
    assert heavy == []
    assert set(PRESENT) - set(modules) == set()
    # No service loads another one.
    others = [f"turnwire.{other}" for other in SERVICES if other != service]
    assert [m for m in modules if any(m == o or m.startswith(f"{o}.") for o in others)] == []
