"""Any request body gives the provider's answer or an error in OpenAI's shape, and is settled once."""

import asyncio
import json

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC
from proxy.core.request.tokens import bytes_over_four
from proxy.planning.planner_port import Planning
from tests.doubles import ModelList, make_deployment
from tests.unit.engine.parts import JSON, Bench, MemoryClient, answers

KEYS = st.sampled_from(
    ["model", "messages", "tools", "stream", "stream_options", "role", "content", "text", "type", "stratiform", "x"]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=9),
    st.sampled_from(["m", "user", "system", "assistant", "tool", "text", "image_url"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": VALUES}, optional={"tools": VALUES, "stream": VALUES}
)
BODIES = st.one_of((REQUESTS | VALUES).map(orjson.dumps), st.binary(max_size=50))
ANSWER = b'{"choices": []}'


def exchange(body: bytes, *, chat: bool) -> tuple[int, bytes]:
    """Status and body of the answer."""
    bench = Bench(
        answers(ANSWER, headers=JSON),
        planner=Planning(TierPlanner(bytes_over_four, [])),
        models=ModelList({"*": make_deployment(profile=ANTHROPIC)}),
    )
    client = MemoryClient(body)
    asyncio.run(bench.engine.chat(client) if chat else bench.engine.relay(client))
    assert client.has_ended
    assert (bench.ledger.open, len(bench.ledger.ended)) == (0, 1)
    return client.status, client.answer


@given(BODIES)
def test_a_chat_request_is_answered_or_refused(body: bytes) -> None:
    status, answer = exchange(body, chat=True)
    if status == 200:
        assert answer == ANSWER
    else:
        assert status in (400, 404)
        error = orjson.loads(answer)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"


@given(BODIES)
@example(b"\x00\x00")
@example(b"\x00\x00\x00\x18ftypisom")
@example(b"\x00\x00\x00{")
@example(b'{"stratiform":false}')
def test_other_paths_take_anything_but_wide_encodings_and_structured_context(body: bytes) -> None:
    status, answer = exchange(body, chat=False)
    if status == 200:
        assert answer == ANSWER
        return
    code = orjson.loads(answer)["error"]["code"]
    is_wide = not json.detect_encoding(body).startswith("utf-8")
    assert (status, code) == (400, "invalid_encoding" if is_wide else "structured_form_unavailable")
    assert is_wide or b"stratiform" in body.lower() or b"\\u" in body
