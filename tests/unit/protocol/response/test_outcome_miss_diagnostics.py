import orjson

from proxy.protocol.response import BodyFold, StreamFold
from proxy.protocol.response.outcome import CAUSES, OTHER, UNTOLD, cause_of
from tests.examples import for_every

MISS = {"diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}}}


@for_every(
    [
        ({}, UNTOLD),
        ({"diagnostics": None}, UNTOLD),
        ({"diagnostics": {"cache_miss_reason": None}}, UNTOLD),
        ({"diagnostics": "x", "message": 3}, UNTOLD),
        (MISS, "tools-changed"),
        ({"type": "message_start", "message": MISS}, "tools-changed"),
        ({"diagnostics": {"cache_miss_reason": {"type": "the moon"}}}, OTHER),
        ({"prompt_cache_diagnostics": {"type": "cache_hit"}}, "hit"),
        ({"prompt_cache_diagnostics": {"type": "cache_miss", "reason": "prompt_cache_key_changed"}}, "key-changed"),
        ({"response": {"prompt_cache_diagnostics": {"type": "unavailable"}}}, "unavailable"),
    ]
)
def test_causes(payload: dict[str, object], cause: str) -> None:
    assert cause_of(payload) == cause
    assert cause in CAUSES


def test_an_answer_tells_in_either_form() -> None:
    body = BodyFold()
    body.feed(orjson.dumps({"choices": [], "usage": {"prompt_tokens": 3}, **MISS}))
    body.close()
    assert body.outcome().cache_cause == "tools-changed"
    stream = StreamFold()
    stream.feed(b"data: " + orjson.dumps({"usage": {"prompt_tokens": 3}, **MISS}) + b"\n\n")
    stream.feed(b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\n')
    stream.close()
    assert stream.outcome().cache_cause == "tools-changed"
