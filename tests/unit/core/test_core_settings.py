"""Settings are complete, checked before anything starts, and documented from the classes themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from turnwire.core.settings import (
    DrainSettings,
    LinkSettings,
    ListenSettings,
    ProcessSettings,
    explain,
    is_loopback,
    unknown_names,
)
from turnwire.core.settings_docs import render, rows, write_or_check


class SampleSettings(ProcessSettings):
    """A process for tests."""

    model_config = SettingsConfigDict(env_prefix="TURNWIRE_SAMPLE_")

    listen: ListenSettings = ListenSettings(port=50051)
    peer: LinkSettings | None = None
    key: SecretStr | None = None


def test_names_in_the_environment_reach_nested_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWIRE_SAMPLE_LISTEN__HOST", "::1")
    monkeypatch.setenv("TURNWIRE_SAMPLE_PEER__TARGET", "127.0.0.1:50052")
    settings = SampleSettings()
    assert (settings.listen.host, settings.listen.port) == ("::1", 50051)
    assert settings.peer is not None
    assert settings.peer.plaintext


def test_arguments_go_before_the_environment_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWIRE_SAMPLE_LISTEN__PORT", "1")
    monkeypatch.setenv("TURNWIRE_SAMPLE_LISTEN__HOST", "localhost")
    settings = SampleSettings(listen={"port": 2})  # type: ignore[arg-type]
    assert (settings.listen.host, settings.listen.port) == ("localhost", 2)


def test_a_wrong_value_is_explained_by_variable_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWIRE_SAMPLE_LISTEN__PORT", "hunter2")
    with pytest.raises(ValidationError) as caught:
        SampleSettings()
    text = explain(caught.value, SampleSettings)
    assert text.startswith("TURNWIRE_SAMPLE_LISTEN__PORT: ")
    assert "hunter2" not in text


def test_misspelt_names_are_found_and_the_clusters_own_are_not() -> None:
    names = [
        "TURNWIRE_SAMPLE_LISTNE__PORT",
        "TURNWIRE_SAMPLE_LISTEN__PORT",
        "TURNWIRE_SAMPLE_PORT_50051_TCP_ADDR",
        "TURNWIRE_SAMPLE_SERVICE_HOST",
        "TURNWIRE_SAMPLE_HEADLESS_PORT",
        "TURNWIRE_OTHER_X",
        "PATH",
    ]
    assert unknown_names(SampleSettings, names) == ["TURNWIRE_SAMPLE_LISTNE__PORT"]


def test_the_drain_must_fit_into_the_platforms_grace() -> None:
    with pytest.raises(ValidationError, match="termination_grace_seconds"):
        DrainSettings(drain_delay_seconds=5, stop_grace_seconds=51)
    fits = DrainSettings(stop_grace_seconds=50)
    assert (fits.delay(loopback=True), fits.delay(loopback=False)) == (0.0, 5.0)
    assert (fits.last_stop(loopback=True), fits.last_stop(loopback=False)) == (9.0, 4.0)


@pytest.mark.parametrize(
    ("values", "word"),
    [({"tls_cert": "c"}, "tls_key"), ({"tls_client_ca": "a"}, "tls_cert"), ({"port": 65536}, "65535")],
)
def test_half_a_tls_setting_is_refused(values: dict[str, object], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        ListenSettings.model_validate(values)


def test_a_links_token_may_come_from_a_file_but_not_twice(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    link = LinkSettings.model_validate({"target": "x:1", "token_file": file})
    assert link.token is not None
    assert link.token.get_secret_value() == "from-a-file"
    assert "from-a-file" not in link.model_dump_json()
    for wrong in ({"token": "a", "token_file": file}, {"token_file": tmp_path / "none"}):
        with pytest.raises(ValidationError):
            LinkSettings.model_validate({"target": "x:1", **wrong})


@pytest.mark.parametrize(
    ("target", "plain"),
    [
        ("127.0.0.1:50052", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("ipv4:127.0.0.1:1", False),
        ("dns:///localhost:1", True),
        ("dns:///turnwire-control:50052", False),
        ("10.0.0.1:1", False),
    ],
)
def test_a_link_is_plaintext_only_to_loopback_or_by_name(target: str, plain: bool) -> None:
    assert LinkSettings(target=target).plaintext is plain
    assert LinkSettings(target=target, insecure=True).plaintext
    assert not LinkSettings(target=target, tls_ca=Path("ca")).plaintext


def test_only_loopback_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "")))


def test_the_table_has_every_variable_with_type_default_and_meaning(tmp_path: Path) -> None:
    table = {row.name: row for row in rows(SampleSettings)}
    assert table["TURNWIRE_SAMPLE_LISTEN__PORT"][1:3] == ("integer", "`50051`")
    assert table["TURNWIRE_SAMPLE_PEER__TARGET"][1:3] == ("text", "required")
    assert table["TURNWIRE_SAMPLE_PEER__TOKEN"][1:3] == ("secret", "unset")
    assert table["TURNWIRE_SAMPLE_LOG__LEVEL"].type.startswith("`DEBUG`, ")
    assert table["TURNWIRE_SAMPLE_LISTEN__INSECURE"].default == "`false`"
    assert table["TURNWIRE_SAMPLE_TELEMETRY__FILE"].type == "path"
    assert table["TURNWIRE_SAMPLE_DRAIN__STOP_GRACE_SECONDS"][1:3] == ("number", "`40`")
    assert all(row.description for name, row in table.items() if "SAMPLE_KEY" not in name)
    text = render(SampleSettings, "Sample")
    page = tmp_path / "docs" / "page.md"
    assert not write_or_check(page, text, check=True)
    assert write_or_check(page, text, check=False)
    assert write_or_check(page, text, check=True)
    assert not write_or_check(page, text + "x", check=True)
