"""Our own streams give what their index says, whole and byte by byte."""

from __future__ import annotations

import json

import pytest

from support.model_streams import Stream, own_streams, read, said
from turnwire.extend.llm import Finish, StreamFailure


@pytest.mark.parametrize("size", [1, 2, 13, 1 << 20])
@pytest.mark.parametrize("stream", own_streams(), ids=lambda stream: stream.name)
def test_a_stream_gives_what_its_index_says(stream: Stream, size: int) -> None:
    body, expected = stream.body, stream.expected
    got = said(read(stream.normaliser(), (body[i : i + size] for i in range(0, len(body), size))))

    assert got.text == expected["text"]
    assert got.reasoning == expected.get("reasoning", "")
    runnable = [[c.provider_call_id, c.tool_name, c.arguments_json] for c in got.calls if not c.error]
    assert runnable == expected.get("calls", [])
    for call, (call_id, name, why) in zip(
        [c for c in got.calls if c.error], expected.get("broken", []), strict=True
    ):
        assert (call.provider_call_id, call.tool_name) == (call_id, name)
        assert why in call.error
    if "failure" in expected:
        assert isinstance(got.end, StreamFailure)
        assert got.end.kind.value == expected["failure"]
        assert got.end.partial_content == expected["text"]
    else:
        assert isinstance(got.end, Finish)
        assert got.end.reason.value == expected["finish"]
        assert got.end.refusal == expected.get("refusal", "")
        assert (json.loads(got.end.replay_json) if got.end.replay_json else None) == expected.get("replay")
    if "usage" in expected:
        assert got.usage is not None
        usage = got.usage.usage
        assert expected["usage"] == [
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_creation_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
        ]
    else:
        assert got.usage is None
