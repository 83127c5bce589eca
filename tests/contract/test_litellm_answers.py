"""The litellm transport against providers on loopback: what comes back."""

import json
from typing import Any

import pytest

from proxy.engine.exchange import Call
from proxy.kit.errors import InvalidRequest, NotFound
from proxy.models import Deployment, Transport
from proxy.protocol.providers import NONE
from proxy.protocol.response.usage import Usage, usage_of
from proxy.upstream.litellm_ import LitellmUpstream
from tests.contract.litellm_calls import (
    CLAUDE,
    FAMILIES,
    GPT,
    HELLO,
    KEY,
    LITELLM,
    call,
    deployment,
    events,
    read,
    serving,
)
from tests.contract.litellm_fakes import ANTHROPIC_USAGE, REQUEST_ID, anthropic_events, named_event, openai_events

pytestmark = LITELLM

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
CLAUDE_USAGE = {"prompt_tokens": 2098, "completion_tokens": 7, "total_tokens": 2105}


def check_claude_usage(usage: dict[str, Any]) -> None:
    """litellm's normalised form: inclusive, with the split of the writes."""
    assert {name: usage[name] for name in CLAUDE_USAGE} == CLAUDE_USAGE
    details = usage["prompt_tokens_details"]
    assert details["cached_tokens"] == ANTHROPIC_USAGE["cache_read_input_tokens"]
    assert details["cache_creation_tokens"] == details["cache_write_tokens"] == 248
    assert details["cache_creation_token_details"] == ANTHROPIC_USAGE["cache_creation"]
    assert usage_of(usage) == Usage(prompt=2098, output=7, read=1800, write_5m=200, write_1h=48)


async def test_claudes_answer_becomes_a_chat_completion() -> None:
    async with serving() as (fake, upstream):
        answer = await upstream.open(call(CLAUDE, fake.base, {**HELLO, "tools": [TOOL]}))
        completion = json.loads(await read(answer))
        assert answer.status == 200
        headers = dict(answer.headers)
        assert (headers["content-type"], headers["request-id"]) == ("application/json", REQUEST_ID)
        assert "set-cookie" not in headers
        assert completion["object"] == "chat.completion"
        (choice,) = completion["choices"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "hello")
        (tool_call,) = choice["message"]["tool_calls"]
        assert json.loads(tool_call["function"]["arguments"]) == {"path": "a.py"}
        check_claude_usage(completion["usage"])


async def test_claudes_stream_becomes_chat_chunks() -> None:
    async with serving() as (fake, upstream):
        request = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
        answer = await upstream.open(call(CLAUDE, fake.base, request))
        headers = dict(answer.headers)
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["request-id"] == REQUEST_ID
        chunks = events(await read(answer))
        assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
        *content, usage = chunks
        deltas = [chunk["choices"][0]["delta"] for chunk in content]
        assert "".join(delta.get("content") or "" for delta in deltas) == "hello"
        assert deltas[0]["role"] == "assistant"
        assert [c["choices"][0]["finish_reason"] for c in content] == [None] * (len(content) - 1) + ["stop"]
        assert usage["choices"] == []
        check_claude_usage(usage["usage"])


@FAMILIES
async def test_without_include_usage_a_stream_has_no_usage_chunk(model: str) -> None:
    async with serving() as (fake, upstream):
        chunks = events(await read(await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))))
        assert chunks
        assert not [chunk for chunk in chunks if chunk.get("usage") or not chunk["choices"]]


async def test_a_usage_that_only_litellm_has_counted_is_left_out() -> None:
    script = [one for one in openai_events("hel", "lo") if '"usage": {' not in one]
    async with serving(events=script) as (fake, upstream):
        request = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
        chunks = events(await read(await upstream.open(call(GPT, fake.base, request))))
        assert [chunk for chunk in chunks if chunk.get("usage")] == []
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "hello"


@FAMILIES
async def test_half_a_character_passes(model: str) -> None:
    """Servers that count in units of UTF-16 cut an emoji in two."""
    script = (anthropic_events if model == CLAUDE else openai_events)("a\ud83d", "\ude00b")
    async with serving(events=script) as (fake, upstream):
        chunks = events(await read(await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))))
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "a\ud83d\ude00b"


@pytest.mark.parametrize("stream", [False, True])
async def test_openais_usage_and_fields_are_kept(stream: bool) -> None:
    async with serving(headers={"x-ratelimit-remaining-tokens": "5"}) as (fake, upstream):
        request = {**HELLO, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
        answer = await upstream.open(call(GPT, fake.base, request))
        assert dict(answer.headers)["x-ratelimit-remaining-tokens"] == "5"
        raw = await read(answer)
        last = events(raw)[-1] if stream else json.loads(raw)
        usage = last["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2100, 9)
        assert usage["prompt_tokens_details"]["cached_tokens"] == 1920
        assert usage["prompt_tokens_details"]["cache_write_tokens"] == 100
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 4
        if not stream:
            assert last["vendor_field"] == {"kept": True}


async def test_thinking_blocks_come_back_with_their_signature() -> None:
    thinking = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}},
        {"type": "content_block_stop", "index": 0},
    ]
    script = anthropic_events("hello")
    script[1:1] = [named_event(event) for event in thinking]
    async with serving(events=script) as (fake, upstream):
        request = {**HELLO, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        chunks = events(await read(await upstream.open(call(CLAUDE, fake.base, request))))
        assert fake.seen[0].body["thinking"] == request["thinking"]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "hm"
        assert "sig==" in [b.get("signature") for delta in deltas for b in delta.get("thinking_blocks", [])]


@FAMILIES
async def test_a_model_may_repeat_itself(model: str) -> None:
    script = (anthropic_events if model == CLAUDE else openai_events)(*["again "] * 150)
    async with serving(events=script) as (fake, upstream):
        raw = await read(await upstream.open(call(model, fake.base, {**HELLO, "stream": True})))
        assert sum(chunk["choices"][0]["delta"].get("content") == "again " for chunk in events(raw)) == 150


async def test_embeddings() -> None:
    async with serving() as (fake, upstream):
        answer = await upstream.open(
            call("openai/text-embedding-3-small", fake.base, {"input": ["a", "b"]}, "/embeddings")
        )
        listed = json.loads(await read(answer))
        assert [entry["embedding"] for entry in listed["data"]] == [[0.5, 0.0], [0.5, 1.0]]
        assert fake.seen[0].body == {"model": "text-embedding-3-small", "input": ["a", "b"]}
        assert listed["usage"]["prompt_tokens"] == 3


async def test_the_provider_may_stand_beside_the_model() -> None:
    async with serving() as (fake, upstream):
        deployed = Deployment(
            "m",
            "some-model",
            Transport.LITELLM,
            NONE,
            base_url=f"{fake.base}/v1",
            api_key=KEY,
            params={"custom_llm_provider": "openai"},
        )
        raw = json.dumps({**HELLO, "brand_new": 1}).encode()
        assert (await upstream.open(Call(deployed, "POST", "/chat/completions", (), raw, False, 0.0))).status == 200
        assert fake.seen[0].body == {"model": "some-model", **HELLO, "brand_new": 1}


async def test_a_model_without_a_provider_is_refused() -> None:
    deployed = Deployment("m", "nobodys/model", Transport.LITELLM, NONE, api_key=KEY)
    raw = json.dumps(HELLO).encode()
    answer = await LitellmUpstream().open(Call(deployed, "POST", "/chat/completions", (), raw, False, 0.0))
    assert answer.status == 400
    assert "nobodys/model" in json.loads(await read(answer))["error"]["message"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"1"])
async def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    spoken = Call(deployment(GPT, "http://127.0.0.1:9"), "POST", "/chat/completions", (), raw, False, 0.0)
    with pytest.raises(InvalidRequest):
        await LitellmUpstream().open(spoken)


async def test_another_path_needs_another_transport() -> None:
    with pytest.raises(NotFound, match="http transport"):
        await LitellmUpstream().open(call(GPT, "http://127.0.0.1:9", {}, "/audio/speech"))
