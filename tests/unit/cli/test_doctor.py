"""What doctor looks at, with the world around it set up by hand."""

from __future__ import annotations

import asyncio
from importlib import metadata
from pathlib import Path

import pytest

from turnwire.cli import doctor
from turnwire.cli.connect import Connection
from turnwire.cli.doctor import Finding, Grade


@pytest.mark.parametrize("found", ["1.82.7", "1.82.8"])
def test_a_malicious_litellm_is_wrong_and_the_way_out_is_named(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: found)
    finding = doctor._litellm()
    assert finding.grade is Grade.BAD
    for word in ("uninstall", "rotate", "1.82.9"):
        assert word in finding.way_out


def test_another_litellm_or_none_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._litellm().grade is Grade.GOOD
    monkeypatch.setattr(metadata, "version", lambda name: "1.82.9")
    assert doctor._litellm().grade is Grade.GOOD


async def test_a_port_in_foreign_hands_is_wrong_and_a_free_one_is_good() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        taken = await asyncio.to_thread(doctor._port, "runtime", port)
    free = await asyncio.to_thread(doctor._port, "runtime", port)
    assert taken.grade is Grade.BAD
    assert "--runtime-port" in taken.way_out
    assert free.grade is Grade.GOOD


def test_a_server_that_is_not_there_is_a_note() -> None:
    finding = doctor._server(Connection("127.0.0.1:1"))
    assert finding.grade is Grade.NOTE
    assert "turnwire up" in finding.way_out


def test_keys_are_named_and_never_shown() -> None:
    environment = {"OPENAI_API_KEY": "sk-secret", "ANTHROPIC_API_KEY": "sk-other\n"}
    findings = list(doctor._keys(environment))
    assert [finding.grade for finding in findings] == [Grade.GOOD, Grade.GOOD, Grade.BAD]
    assert not [finding for finding in findings if "sk-" in finding.text + finding.way_out]
    assert next(iter(doctor._keys({}))).grade is Grade.NOTE


def test_a_data_folder_is_tried_by_writing(tmp_path: Path) -> None:
    (fine,) = doctor._data(tmp_path)
    assert fine.subject == "data"
    assert fine.grade in (Grade.GOOD, Grade.NOTE)
    assert list(tmp_path.iterdir()) == []
    (missing,) = doctor._data(tmp_path / "nowhere")
    assert missing.grade is Grade.NOTE
    file = tmp_path / "file"
    file.touch()
    (wrong,) = doctor._data(file)
    assert wrong == Finding(Grade.BAD, "data", wrong.text, "change its owner, or use --data")
