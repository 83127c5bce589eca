"""The call for a summary has the prompt of ours, and of the client's request only what says who may read it."""

import orjson
import pytest

from proxy.core.structured.history.compaction_proposal import CompactionQuestion, call_body
from proxy.core.wire.json_body import parse_members

QUESTION = CompactionQuestion(b'[{"role":"user","content":"q"}]', (0,), 1, 1_200)
SENT = {
    "model": "alias", "messages": [{"role": "user", "content": "secret"}], "stream": True, "tools": [{}],
    "tool_choice": "auto", "max_tokens": 9, "temperature": 1, "response_format": {"type": "json_object"}, "n": 4,
    "store": True, "thinking": {"type": "enabled"}, "service_tier": "priority", "metadata": {"a": "b"},
    "prompt_cache_key": "k", "cache_control": {"type": "ephemeral"}, "stratiform": {"compaction": True},
}  # fmt: skip


def body_of(profile: str = "anthropic", **sent: object) -> dict[str, object]:
    body = call_body(parse_members(orjson.dumps({**SENT, **sent})), "real-model", QUESTION, profile)
    found: dict[str, object] = orjson.loads(body)
    return found


def test_of_the_clients_request_nothing_goes_with_it_that_shapes_an_answer() -> None:
    assert body_of() == {
        "model": "real-model",
        "messages": [{"role": "user", "content": "q"}],
        "max_tokens": 1_200,
    }


def test_who_may_read_the_prompt_is_said_again() -> None:
    kept = {"provider": {"zdr": True}, "inference_geo": "eu", "user": "u", "safety_identifier": "s"}
    assert {name: value for name, value in body_of(**kept).items() if name in kept} == kept


@pytest.mark.parametrize(("profile", "sent", "name"), [
    ("anthropic", {}, "max_tokens"),
    ("openai-gpt-5", {}, "max_completion_tokens"),
    ("azure", {}, "max_completion_tokens"),
    ("none", {"max_completion_tokens": 5}, "max_completion_tokens"),
])  # fmt: skip
def test_the_limit_has_the_name_that_the_server_knows(profile: str, sent: dict[str, object], name: str) -> None:
    found = body_of(profile, **sent)
    assert [each for each in found if each.startswith("max_")] == [name]
    assert found[name] == 1_200
