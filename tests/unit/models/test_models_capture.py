"""What of prompts and answers stands in logs and spans: nothing, until a setting says so."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.model_replay import Answer, replay_server
from support.runtime_rig import command
from support.runtime_turns import rig
from turnwire.core.logs import JsonFormatter
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine import step, turn
from turnwire.runtime.models.capture import MAX_CAPTURED_BYTES, CapturedModel, CapturePolicy
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import ModelSettings, ProviderProfile, RetrySettings

PROMPT, ANSWER, THOUGHT = "QUESTIONWORD", "ANSWERWORD", "THOUGHTWORD"


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


GOOD = Answer(
    event({"choices": [{"delta": {"reasoning_content": f"{THOUGHT} "}}]})
    + event({"choices": [{"delta": {"content": f"{ANSWER} it is"}, "finish_reason": "stop"}]})
    + b"data: [DONE]\n\n"
)
# Providers quote what they were asked.
BAD = Answer(
    json.dumps({"error": {"message": f"{PROMPT} is not allowed"}}).encode(),
    status=400,
    content_type="application/json",
)
BUSY = replace(BAD, status=503)
BROKEN = Answer(event({"choices": [{"delta": {"content": ANSWER}}]}) + event({"error": {"message": PROMPT}}))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for module in (step, turn):
        monkeypatch.setattr(module, "tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


async def run(
    tmp_path: Path, policy: CapturePolicy, *answers: Answer, text: str = f"{PROMPT} of the day"
) -> TurnState:
    """Run one turn over a real socket."""
    async with replay_server(*answers) as server:
        settings = ModelSettings(
            providers={"local": ProviderProfile(base_url=server.url)},
            retries=RetrySettings(attempts=2, first_delay_seconds=0, longest_delay_seconds=0),
            capture=policy,
        )
        registry = ModelRegistry(settings)
        model: Any = registry.resolve("local:m")
        try:
            async with rig(tmp_path, model) as made:
                wanted = command()
                parts = (InputPart(kind="text", text=text),)
                wanted = replace(wanted, spec=wanted.spec.model_copy(update={"parts": parts}))
                admitted = await made.supervisor.start(wanted)
                return await made.ended(admitted.key)
        finally:
            await registry.close()


def lines(caplog: pytest.LogCaptureFixture) -> str:
    """All lines as they would be written, tracebacks too."""
    return "\n".join(map(JsonFormatter().format, caplog.records))


def written(spans: InMemorySpanExporter) -> str:
    return "\n".join(span.to_json() for span in spans.get_finished_spans())


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ((GOOD,), TurnState.COMPLETED),
        ((BAD,), TurnState.FAILED),
        ((BUSY, GOOD), TurnState.COMPLETED),
        ((BROKEN,), TurnState.FAILED),
    ],
    ids=["good", "refused", "repeated", "broken"],
)
async def test_off_leaves_no_word_of_prompt_or_answer_in_logs_and_spans(
    answers: tuple[Answer, ...],
    state: TurnState,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spans: InMemorySpanExporter,
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert await run(tmp_path, "off", *answers) is state
    assert "model.call" in written(spans)
    for word in (PROMPT, ANSWER, THOUGHT):
        assert word not in lines(caplog)
        assert word not in written(spans)


def test_off_is_the_default_and_costs_nothing() -> None:
    settings = ModelSettings(providers={"local": ProviderProfile(base_url="http://127.0.0.1:9")})
    assert settings.capture == "off"
    assert not isinstance(ModelRegistry(settings).resolve("local:m"), CapturedModel)


async def test_hash_tells_sizes_and_hashes_and_no_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    with caplog.at_level(logging.INFO):
        await run(tmp_path, "hash", GOOD)
    for place in (lines(caplog), written(spans)):
        assert "prompt_sha256" in place
        assert "answer_sha256" in place
        for word in (PROMPT, ANSWER, THOUGHT):
            assert word not in place


async def test_summary_tells_how_they_begin_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    with caplog.at_level(logging.INFO):
        await run(tmp_path, "summary", GOOD, text=PROMPT + " " + "x" * 300 + "ENDWORD")
    for place in (lines(caplog), written(spans)):
        assert PROMPT in place
        assert ANSWER in place
        assert "ENDWORD" not in place
        assert "gen_ai.input.messages" not in place


async def test_full_puts_all_of_it_into_spans_within_a_bound_and_never_into_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    with caplog.at_level(logging.INFO):
        await run(tmp_path, "full", GOOD, text=PROMPT + "é" * 100_000)
    (call,) = [span for span in spans.get_finished_spans() if span.name == "model.call"]
    assert call.attributes is not None
    prompt, answer = call.attributes["gen_ai.input.messages"], call.attributes["gen_ai.output.messages"]
    assert isinstance(prompt, str)
    assert PROMPT in prompt
    assert len(prompt.encode()) <= MAX_CAPTURED_BYTES
    assert json.loads(str(answer))["text"] == f"{ANSWER} it is"
    assert "gen_ai" not in lines(caplog)
    assert len(lines(caplog)) < 20_000


async def test_what_a_repeat_voided_is_no_part_of_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Answer(event({"choices": [{"delta": {"content": "VOIDWORD"}}]}) + event({"error": {"code": 503}}))
    with caplog.at_level(logging.INFO):
        assert await run(tmp_path, "summary", first, GOOD) is TurnState.COMPLETED
    (told,) = [record for record in caplog.records if record.getMessage() == "model.answer"]
    assert vars(told)["answer_head"] == f"{ANSWER} it is"
