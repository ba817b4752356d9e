"""Where the runtime's store is: a file unless a database is named, whose password nobody gets to see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from support.postgres import PASSWORD, PostgresServer
from turnwire.core.settings import explain
from turnwire.runtime.settings import RuntimeSettings

URL = "postgresql://turnwire:s3cret-word@127.0.0.1:1/turnwire"
FILE = Path(".turnwire/runtime.db")


def test_without_a_url_the_store_is_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RuntimeSettings().store.location(FILE) == FILE
    monkeypatch.setenv("TURNWIRE_RUNTIME_STORE__URL", "")
    assert RuntimeSettings().store.location(FILE) == FILE


def test_a_url_comes_from_the_environment_or_from_a_file_and_is_shown_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(f"{URL}\n")
    for name, value in (("URL", URL), ("URL_FILE", str(tmp_path / "url"))):
        with monkeypatch.context() as patch:
            patch.setenv(f"TURNWIRE_RUNTIME_STORE__{name}", value)
            settings = RuntimeSettings()
        assert settings.store.location(FILE) == URL
        assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"URL": URL.replace("postgresql", "mysql")}, "STORE__URL: must be postgresql://"),
        ({"URL": URL, "URL_FILE": "/dev/null"}, "exclude each other"),
        ({"URL_FILE": "/nowhere/at/all"}, "cannot be read: No such file"),
    ],
)
def test_a_wrong_url_is_told_without_its_value(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], text: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"TURNWIRE_RUNTIME_STORE__{name}", value)
    with pytest.raises(ValidationError) as caught:
        RuntimeSettings()
    told = explain(caught.value, RuntimeSettings)
    assert text in told
    assert "s3cret" not in told


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    path = ":".join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def start(tmp_path: Path, url: str) -> subprocess.CompletedProcess[str]:
    return run(
        *("-m", "turnwire.runtime.main", "--data", str(tmp_path), "--port", "0"),
        TURNWIRE_RUNTIME_STORE__URL=url,
    )


def test_a_runtime_whose_database_cannot_be_used_says_so_and_leaves(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    for url, text in (
        (URL, "cannot be reached"),
        (postgres.tcp_url("postgres", "wr0ng-word"), "refuses the user or password"),
        (postgres.tcp_url("nowhere"), "does not exist"),
    ):
        ended = start(tmp_path, url)
        assert ended.returncode == 2, ended
        assert text in ended.stderr
        for secret in ("s3cret", "wr0ng", PASSWORD):
            assert secret not in ended.stdout + ended.stderr
        assert not (tmp_path / "runtime.db").exists()


def test_the_driver_is_loaded_for_a_database_only() -> None:
    code = (
        "import sys; from pathlib import Path; import turnwire.runtime.main, turnwire.storage.database as d;"
        "d.database_at(Path('x.db'), 'turnwire.runtime', on_fatal=print); print('psycopg' in sys.modules)"
    )
    ended = run("-c", code)
    assert ended.stdout.strip() == "False", ended.stderr
