"""The litellm transport against providers on loopback: what arrives on the wire, and what comes back."""

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.core.profiles import ANTHROPIC, NONE
from proxy.core.usage import Usage, usage_of
from proxy.errors import InvalidRequest, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.ports import Answer, Call, Deployment, Transport
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.upstream.litellm_.library import Library
from tests.contract.litellm_fakes import (
    ANTHROPIC_USAGE,
    REQUEST_ID,
    Provider,
    anthropic_events,
    named_event,
    openai_events,
    provider,
)

# litellm silences these two of its own when it is imported (litellm/_process_defaults.py); pytest undoes that.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*attribute on the instance is deprecated:DeprecationWarning"),
]

CLAUDE = "anthropic/claude-sonnet-4-5"
GPT = "openai/gpt-4o"
KEY = "sk-operator-0123456789"
FAMILIES = pytest.mark.parametrize("model", [CLAUDE, GPT])
BETA = "fine-grained-tool-streaming-2025-05-14"
MARK = {"type": "ephemeral"}
MARK_1H = {"type": "ephemeral", "ttl": "1h"}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("write", "read")
]


@pytest.fixture(scope="session", autouse=True)
def _litellm() -> None:
    """One import of litellm for all of these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(LitellmUpstream().warm())


def deployment(model: str, base: str, **further: Any) -> Deployment:
    values = {"api_key": KEY, "timeout_s": 20.0, **further}
    base_url = base if model.startswith("anthropic/") else f"{base}/v1"
    profile = ANTHROPIC if model.startswith("anthropic/") else NONE
    return Deployment(model, model, Transport.LITELLM, profile, base_url=base_url, **values)


def call(model: str, base: str, body: dict[str, Any], path: str = "/chat/completions", **further: Any) -> Call:
    sent = further.pop("sent", ())
    raw = json.dumps({"model": "alias", **body}).encode()
    stream = bool(body.get("stream"))
    return Call(deployment(model, base, **further), "POST", path, sent, raw, stream, 0.0)


@asynccontextmanager
async def serving(**script: Any) -> AsyncIterator[tuple[Provider, LitellmUpstream]]:
    upstream = LitellmUpstream()
    async with provider(**script) as fake:
        try:
            yield fake, upstream
        finally:
            await upstream.aclose()


async def read(answer: Answer) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


async def keep(answer: Answer, came: list[bytes]) -> None:
    async for chunk in answer.chunks():
        came.append(chunk)


def events(raw: bytes) -> list[dict[str, Any]]:
    parts = raw.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await body()

    asyncio.run(limited())


# What arrives on the wire


def marked_request() -> dict[str, Any]:
    """The safe dialect: parts of system and user, the tool message itself, the last tool."""
    return {
        "max_tokens": 100,
        "messages": [
            {"role": "system", "content": [text("rules"), text("more rules", MARK_1H)]},
            {"role": "user", "content": [text("files"), text("more files", MARK)]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "a file", "cache_control": MARK},
            {"role": "user", "content": "go on"},
        ],
        "tools": [TOOLS[0], {**TOOLS[1], "cache_control": MARK_1H}],
    }


def text(value: str, mark: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": value, **({"cache_control": mark} if mark else {})}


@pytest.mark.parametrize("stream", [False, True])
def test_markers_reach_anthropic_where_they_belong(stream: bool) -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            await read(await upstream.open(call(CLAUDE, fake.base, {**marked_request(), "stream": stream})))
            wire = fake.seen[0].body
            assert fake.seen[0].path == "/v1/messages"
            assert wire["system"] == [text("rules"), text("more rules", MARK_1H)]
            assert wire["messages"][0]["content"] == [text("files"), text("more files", MARK)]
            assert "cache_control" not in json.dumps(wire["messages"][1])
            (result, last) = wire["messages"][2]["content"]
            assert result["type"] == "tool_result"
            assert result["cache_control"] == MARK
            assert "cache_control" not in json.dumps(result["content"])
            assert last == text("go on")
            assert [tool.get("cache_control") for tool in wire["tools"]] == [None, MARK_1H]
            assert json.dumps(wire).count("cache_control") == 4

    run(body)


def test_markers_reach_an_openai_compatible_server() -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            request = marked_request()
            await read(await upstream.open(call(GPT, fake.base, request)))
            del request["messages"][2]["content"]  # litellm leaves out a content of null
            assert fake.seen[0].body["messages"] == request["messages"]
            assert fake.seen[0].body["tools"] == request["tools"]

    run(body)


def test_native_breakpoints_reach_an_openai_compatible_server() -> None:
    part = {"type": "text", "text": "rules", "prompt_cache_breakpoint": {"mode": "explicit"}}
    request = {"messages": [{"role": "system", "content": [part]}, *HELLO["messages"]], "prompt_cache_key": "k"}

    async def body() -> None:
        async with serving() as (fake, upstream):
            further = {"prompt_cache_options": {"mode": "explicit"}}
            await read(await upstream.open(call("openai/gpt-5.6-sol", fake.base, {**request, **further})))
            assert fake.seen[0].path == "/v1/chat/completions"
            assert fake.seen[0].body == {"model": "gpt-5.6-sol", **request, **further}

    run(body)


@FAMILIES
def test_unknown_fields_reach_the_provider(model: str) -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            await read(await upstream.open(call(model, fake.base, {**HELLO, "brand_new": {"a": [1, None]}})))
            assert fake.seen[0].body["brand_new"] == {"a": [1, None]}
            assert fake.seen[0].body["model"] == model.split("/")[1]

    run(body)


def test_parameters_unknown_to_litellm_reach_an_openai_compatible_server() -> None:
    fields = {"metadata": {"session": "s"}, "verbosity": "low", "store": True, "top_k": 3, "cache": {"a": 1}}

    async def body() -> None:
        async with serving() as (fake, upstream):
            await read(await upstream.open(call(GPT, fake.base, {**HELLO, **fields, "temperature": 0.5})))
            assert fake.seen[0].body == {"model": "gpt-4o", **HELLO, **fields, "temperature": 0.5}

    run(body)


def test_a_parameter_that_claude_has_not_is_refused_with_its_name() -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            answer = await upstream.open(call(CLAUDE, fake.base, {**HELLO, "logit_bias": {"1": 2}}))
            error = json.loads(await read(answer))["error"]
            assert (answer.status, error["type"], error["code"]) == (
                400,
                "invalid_request_error",
                "unsupported_parameter",
            )
            assert "logit_bias" in error["message"]
            dropping = call(CLAUDE, fake.base, {**HELLO, "logit_bias": {"1": 2}}, params={"drop_params": True})
            assert (await upstream.open(dropping)).status == 200
            assert "logit_bias" not in fake.seen[0].body

    run(body)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_base", "http://127.0.0.1:9"),
        ("base_url", "http://127.0.0.1:9"),
        ("api_key", "sk-of-the-client"),
        ("mock_response", "made up"),
        ("fallbacks", [{"model": GPT, "api_base": "http://127.0.0.1:9"}]),
        ("extra_headers", {"x-api-key": "other"}),
        ("custom_llm_provider", "openai"),
        ("timeout", 0.001),
    ],
)
@FAMILIES
def test_a_client_cannot_steer_litellm(model: str, name: str, value: object) -> None:
    """The call goes to the deployment's address with the deployment's key, or not at all."""

    async def body() -> None:
        async with serving() as (fake, upstream):
            attempt = call(model, fake.base, {**HELLO, name: value})
            if model == CLAUDE:
                with pytest.raises(InvalidRequest) as caught:
                    await upstream.open(attempt)
                assert caught.value.param == name
                assert not fake.seen
                return
            assert (await upstream.open(attempt)).status == 200
            assert fake.seen[0].body[name] == value
            assert fake.seen[0].headers["authorization"] == f"Bearer {KEY}"

    run(body)


def test_the_deployment_gives_defaults_headers_and_key() -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            further = {"params": {"temperature": 0.1, "top_p": 0.5}, "headers": (("x-team", "blue"),)}
            sent = [("anthropic-beta", BETA), ("authorization", "Bearer client-key"), ("cookie", "c")]
            await upstream.open(call(CLAUDE, fake.base, {**HELLO, "top_p": 0.9}, sent=sent, **further))
            seen = fake.seen[0]
            assert (seen.body["temperature"], seen.body["top_p"]) == (0.1, 0.9)
            assert (seen.headers["x-team"], seen.headers["x-api-key"]) == ("blue", KEY)
            assert seen.headers["anthropic-beta"] == BETA
            assert "cookie" not in seen.headers
            assert "client-key" not in json.dumps(seen.headers)

    run(body)


def test_without_a_key_of_its_own_the_deployment_uses_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [("Authorization", "Bearer client-key")]

    async def body() -> None:
        async with serving() as (fake, upstream):
            monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
            await upstream.open(call(CLAUDE, fake.base, HELLO, sent=sent, api_key=None))
            monkeypatch.setenv("ANTHROPIC_API_KEY", "environment-key")
            await upstream.open(call(CLAUDE, fake.base, HELLO, sent=sent, api_key=None))
            assert [seen.headers["x-api-key"] for seen in fake.seen] == ["client-key", "environment-key"]

    run(body)


@pytest.mark.parametrize(
    ("model", "provider_name", "extra_body", "takes_key"),
    [
        (CLAUDE, "anthropic", False, True),
        (GPT, "openai", True, True),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter", True, True),
        ("deepseek/deepseek-chat", "deepseek", True, True),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock", False, False),
        ("vertex_ai/claude-sonnet-4-5", "vertex_ai", False, False),
    ],
)
def test_routes(model: str, provider_name: str, extra_body: bool, takes_key: bool) -> None:
    async def body() -> None:
        library = Library()
        await library.module()
        route = library.route(Deployment("m", model, Transport.LITELLM, NONE))
        assert (route.provider, route.extra_body, route.takes_key) == (provider_name, extra_body, takes_key)
        assert {"api_base", "api_key", "fallbacks", "mock_response", "metadata"} <= route.owned
        assert library.route(Deployment("m", model, Transport.LITELLM, NONE)) is route

    run(body)


# What comes back

CLAUDE_USAGE = {"prompt_tokens": 2098, "completion_tokens": 7, "total_tokens": 2105}


def check_claude_usage(usage: dict[str, Any]) -> None:
    """litellm's normalised form: inclusive, with the split of the writes."""
    assert {name: usage[name] for name in CLAUDE_USAGE} == CLAUDE_USAGE
    details = usage["prompt_tokens_details"]
    assert details["cached_tokens"] == ANTHROPIC_USAGE["cache_read_input_tokens"]
    assert details["cache_creation_tokens"] == details["cache_write_tokens"] == 248
    assert details["cache_creation_token_details"] == ANTHROPIC_USAGE["cache_creation"]
    assert usage_of(usage) == Usage(prompt=2098, output=7, read=1800, write_5m=200, write_1h=48)


def test_claudes_answer_becomes_a_chat_completion() -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            answer = await upstream.open(call(CLAUDE, fake.base, {**HELLO, "tools": TOOLS}))
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

    run(body)


def test_claudes_stream_becomes_chat_chunks() -> None:
    async def body() -> None:
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

    run(body)


@FAMILIES
def test_without_include_usage_a_stream_has_no_usage_chunk(model: str) -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            chunks = events(await read(await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))))
            assert chunks
            assert not [chunk for chunk in chunks if chunk.get("usage") or not chunk["choices"]]

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_openais_usage_and_fields_are_kept(stream: bool) -> None:
    async def body() -> None:
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

    run(body)


def test_thinking_blocks_come_back_with_their_signature() -> None:
    thinking = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}},
        {"type": "content_block_stop", "index": 0},
    ]
    script = anthropic_events("hello")
    script[1:1] = [named_event(event) for event in thinking]

    async def body() -> None:
        async with serving(events=script) as (fake, upstream):
            request = {**HELLO, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 1024}}
            chunks = events(await read(await upstream.open(call(CLAUDE, fake.base, request))))
            assert fake.seen[0].body["thinking"] == request["thinking"]
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "hm"
            assert "sig==" in [b.get("signature") for delta in deltas for b in delta.get("thinking_blocks", [])]

    run(body)


@FAMILIES
def test_a_model_may_repeat_itself(model: str) -> None:
    script = (anthropic_events if model == CLAUDE else openai_events)(*["again "] * 150)

    async def body() -> None:
        async with serving(events=script) as (fake, upstream):
            raw = await read(await upstream.open(call(model, fake.base, {**HELLO, "stream": True})))
            assert sum(chunk["choices"][0]["delta"].get("content") == "again " for chunk in events(raw)) == 150

    run(body)


def test_embeddings() -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            answer = await upstream.open(
                call("openai/text-embedding-3-small", fake.base, {"input": ["a", "b"]}, "/embeddings")
            )
            listed = json.loads(await read(answer))
            assert [entry["embedding"] for entry in listed["data"]] == [[0.5, 0.0], [0.5, 1.0]]
            assert fake.seen[0].body == {"model": "text-embedding-3-small", "input": ["a", "b"]}
            assert listed["usage"]["prompt_tokens"] == 3

    run(body)


def test_the_provider_may_stand_beside_the_model() -> None:
    async def body() -> None:
        async with serving() as (fake, upstream):
            deployed = Deployment(
                "m",
                "some-model",
                Transport.LITELLM,
                NONE,
                f"{fake.base}/v1",
                api_key=KEY,
                params={"custom_llm_provider": "openai"},
            )
            raw = json.dumps({**HELLO, "brand_new": 1}).encode()
            assert (await upstream.open(Call(deployed, "POST", "/chat/completions", (), raw, False, 0.0))).status == 200
            assert fake.seen[0].body == {"model": "some-model", **HELLO, "brand_new": 1}

    run(body)


def test_a_model_without_a_provider_is_refused() -> None:
    async def body() -> None:
        deployed = Deployment("m", "nobodys/model", Transport.LITELLM, NONE, api_key=KEY)
        raw = json.dumps(HELLO).encode()
        answer = await LitellmUpstream().open(Call(deployed, "POST", "/chat/completions", (), raw, False, 0.0))
        assert answer.status == 400
        assert "nobodys/model" in json.loads(await read(answer))["error"]["message"]

    run(body)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"1"])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    async def body() -> None:
        spoken = Call(deployment(GPT, "http://127.0.0.1:9"), "POST", "/chat/completions", (), raw, False, 0.0)
        with pytest.raises(InvalidRequest):
            await LitellmUpstream().open(spoken)

    run(body)


def test_another_path_needs_another_transport() -> None:
    async def body() -> None:
        with pytest.raises(InvalidRequest, match="http transport") as caught:
            await LitellmUpstream().open(call(GPT, "http://127.0.0.1:9", {}, "/audio/speech"))
        assert caught.value.status == 404

    run(body)


# What goes wrong


def refusal(model: str, status: int) -> object:
    said = {"type": "rate_limit_error" if status == 429 else "some_error", "message": f"no, not with {KEY}"}
    if model == CLAUDE:
        return {"type": "error", "error": said, "request_id": REQUEST_ID}
    return {"error": {**said, "param": "messages", "code": "some_code"}}


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
def test_a_refusal_keeps_the_providers_status_and_words(model: str, stream: bool) -> None:
    headers = {"retry-after": "7", "request-id": REQUEST_ID, "x-ratelimit-remaining-requests": "0", "set-cookie": "a=b"}
    own = (None, None) if model == CLAUDE else ("messages", "some_code")

    async def body() -> None:
        async with serving(headers=headers) as (fake, upstream):
            for count, status in enumerate((400, 401, 403, 404, 413, 422, 429, 500, 503, 529), 1):
                fake.status, fake.error = status, refusal(model, status)
                answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": stream}))
                error = json.loads(await read(answer))["error"]
                assert answer.status == status
                assert error["type"] == ("rate_limit_error" if status == 429 else "some_error")
                assert error["message"].startswith("no, not with ")
                assert KEY not in error["message"]
                assert (error["param"], error["code"]) == own
                passed = dict(answer.headers)
                assert (passed["retry-after"], passed["request-id"]) == ("7", REQUEST_ID)
                assert passed["x-ratelimit-remaining-requests"] == "0"
                assert "set-cookie" not in passed
                assert len(fake.seen) == count, "litellm must not retry"

    run(body)


@FAMILIES
def test_a_refusal_that_is_no_json_is_still_an_openai_error(model: str) -> None:
    async def body() -> None:
        async with serving(status=502, error="<html>bad gateway</html>") as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, HELLO))
            error = json.loads(await read(answer))["error"]
            assert (answer.status, error["type"]) == (502, "server_error")

    run(body)


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
def test_silence_is_a_timeout(model: str, stream: bool) -> None:
    async def body() -> None:
        async with serving(silent=True) as (fake, upstream):
            with pytest.raises(UpstreamTimeout):
                await upstream.open(call(model, fake.base, {**HELLO, "stream": stream}, timeout_s=0.2))
            await fake.gone.wait()

    run(body)


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
def test_a_closed_port_is_unavailable(model: str, stream: bool) -> None:
    async def body() -> None:
        async with serving() as (_, upstream):
            with pytest.raises(UpstreamUnavailable) as caught:
                await upstream.open(call(model, "http://127.0.0.1:9", {**HELLO, "stream": stream}))
            assert "127.0.0.1" not in caught.value.message

    run(body)


def begun(model: str) -> list[str]:
    return anthropic_events("hel", end=False) if model == CLAUDE else openai_events("hel", end=False)


@pytest.mark.parametrize("ending", ["cut", "done"])
@FAMILIES
def test_a_stream_that_breaks_off_raises_after_what_came(model: str, ending: str) -> None:
    async def body() -> None:
        async with serving(events=begun(model), ending=ending) as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
            came = []
            with pytest.raises(UpstreamUnavailable):
                await keep(answer, came)
            assert b'"hel"' in b"".join(came)
            assert b"[DONE]" not in b"".join(came)
            await answer.aclose()

    run(body)


@FAMILIES
def test_an_error_event_in_a_stream_raises_the_providers_words(model: str) -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    last = named_event(event) if model == CLAUDE else f"data: {json.dumps({'error': event['error']})}\n\n"

    async def body() -> None:
        async with serving(events=[*begun(model), last]) as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
            with pytest.raises(UpstreamRejected, match="Overloaded"):
                await read(answer)
            await answer.aclose()

    run(body)


@FAMILIES
def test_an_error_event_before_anything_else_is_a_refusal(model: str) -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    only = named_event(event) if model == CLAUDE else f"data: {json.dumps({'error': event['error']})}\n\n"

    async def body() -> None:
        async with serving(events=[only]) as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
            assert answer.status >= 500
            assert json.loads(await read(answer))["error"]["message"] == "Overloaded"

    run(body)


@FAMILIES
def test_a_stream_without_a_chunk_is_an_empty_answer(model: str) -> None:
    async def body() -> None:
        async with serving(events=[]) as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
            assert answer.status == 200
            assert await read(answer) == b""

    run(body)


# Hanging up


@FAMILIES
def test_closing_a_stream_hangs_up_on_the_provider(model: str) -> None:
    async def body() -> None:
        async with serving(events=begun(model), ending="hold") as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
            async for chunk in answer.chunks():
                if b"hel" in chunk:
                    break
            assert not fake.gone.is_set()
            await answer.aclose()
            async with asyncio.timeout(2):
                await fake.gone.wait()
            await answer.aclose()

    run(body)


@FAMILIES
def test_closing_while_a_chunk_is_awaited_hangs_up_on_the_provider(model: str) -> None:
    async def body() -> None:
        async with serving(events=begun(model), ending="hold") as (fake, upstream):
            answer = await upstream.open(call(model, fake.base, {**HELLO, "stream": True}))
            reading = asyncio.ensure_future(read(answer))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await answer.aclose()
            async with asyncio.timeout(2):
                await fake.gone.wait()

    run(body)


@pytest.mark.parametrize("stream", [False, True])
@FAMILIES
def test_cancelling_a_call_that_waits_hangs_up_on_the_provider(model: str, stream: bool) -> None:
    async def body() -> None:
        async with serving(silent=True) as (fake, upstream):
            opening = asyncio.ensure_future(upstream.open(call(model, fake.base, {**HELLO, "stream": stream})))
            await fake.asked.wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            async with asyncio.timeout(2):
                await fake.gone.wait()

    run(body)


def test_cancelling_before_the_first_chunk_hangs_up_on_the_provider() -> None:
    async def body() -> None:
        async with serving(events=[], ending="hold") as (fake, upstream):
            opening = asyncio.ensure_future(upstream.open(call(CLAUDE, fake.base, {**HELLO, "stream": True})))
            await fake.asked.wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            async with asyncio.timeout(2):
                await fake.gone.wait()

    run(body)
