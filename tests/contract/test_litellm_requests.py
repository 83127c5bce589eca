"""The litellm transport against providers on loopback: what arrives on the wire."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.kit.errors import InvalidRequest, ProxyError
from proxy.models import Deployment, Transport
from proxy.protocol.providers import NONE, PROFILES, fitted
from proxy.upstream.litellm_library import Library
from tests.contract.litellm_calls import (
    CLAUDE,
    FAMILIES,
    GPT,
    HELLO,
    KEY,
    LITELLM,
    call,
    read,
    serving,
)

pytestmark = LITELLM

BETA = "fine-grained-tool-streaming-2025-05-14"
MARK = {"type": "ephemeral"}
MARK_1H = {"type": "ephemeral", "ttl": "1h"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("write", "read")
]


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


async def test_system_text_of_a_bridged_call_goes_where_its_model_caches_it() -> None:
    """Before 1.110, litellm makes ``instructions`` of system messages for the Responses API, which GPT-6.2 does not
    cache."""
    async with serving() as (fake, upstream):
        for name in ("gpt-6.2-sol", "gpt-6.1-sol"):
            profile = fitted(PROFILES["openai-explicit"], name)
            messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "hello"}]
            asked = call(f"openai/responses/{name}", fake.base, {"messages": messages})
            asked = replace(asked, deployment=replace(asked.deployment, profile=profile))
            with contextlib.suppress(ProxyError):  # the fake answers with a chat completion
                await read(await upstream.open(asked))
        new, old = (seen.body for seen in fake.seen)
        assert "instructions" not in new
        assert new["input"][0]["role"] == "system"
        assert new["input"][0]["content"][0]["text"] == "rules"
        assert old.get("instructions") == "rules" or old["input"] == new["input"]


@pytest.mark.parametrize("stream", [False, True])
async def test_markers_reach_anthropic_where_they_belong(stream: bool) -> None:
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


async def test_markers_reach_an_openai_compatible_server() -> None:
    async with serving() as (fake, upstream):
        request = marked_request()
        await read(await upstream.open(call(GPT, fake.base, request)))
        del request["messages"][2]["content"]  # litellm leaves out a content of null
        assert fake.seen[0].body["messages"] == request["messages"]
        assert fake.seen[0].body["tools"] == request["tools"]


async def test_native_breakpoints_reach_an_openai_compatible_server() -> None:
    part = {"type": "text", "text": "rules", "prompt_cache_breakpoint": {"mode": "explicit"}}
    request = {"messages": [{"role": "system", "content": [part]}, *HELLO["messages"]], "prompt_cache_key": "k"}
    async with serving() as (fake, upstream):
        further = {"prompt_cache_options": {"mode": "explicit"}}
        await read(await upstream.open(call("openai/gpt-5.6-sol", fake.base, {**request, **further})))
        assert fake.seen[0].path == "/v1/chat/completions"
        assert fake.seen[0].body == {"model": "gpt-5.6-sol", **request, **further}


@FAMILIES
async def test_unknown_fields_reach_the_provider(model: str) -> None:
    async with serving() as (fake, upstream):
        await read(await upstream.open(call(model, fake.base, {**HELLO, "brand_new": {"a": [1, None]}})))
        assert fake.seen[0].body["brand_new"] == {"a": [1, None]}
        assert fake.seen[0].body["model"] == model.split("/")[1]


async def test_parameters_unknown_to_litellm_reach_an_openai_compatible_server() -> None:
    fields = {"metadata": {"session": "s"}, "verbosity": "low", "store": True, "top_k": 3, "cache": {"a": 1}}
    async with serving() as (fake, upstream):
        await read(await upstream.open(call(GPT, fake.base, {**HELLO, **fields, "temperature": 0.5})))
        assert fake.seen[0].body == {"model": "gpt-4o", **HELLO, **fields, "temperature": 0.5}


async def test_a_parameter_that_claude_has_not_is_refused_with_its_name() -> None:
    async with serving() as (fake, upstream):
        answer = await upstream.open(call(CLAUDE, fake.base, {**HELLO, "logit_bias": {"1": 2}}))
        error = json.loads(await read(answer))["error"]
        assert (answer.status, error["type"], error["code"]) == (400, "invalid_request_error", "unsupported_parameter")
        assert "logit_bias" in error["message"]
        dropping = call(CLAUDE, fake.base, {**HELLO, "logit_bias": {"1": 2}}, params={"drop_params": True})
        assert (await upstream.open(dropping)).status == 200
        assert "logit_bias" not in fake.seen[0].body


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
async def test_a_client_cannot_steer_litellm(model: str, name: str, value: object) -> None:
    """The call goes to the deployment's address with the deployment's key, or not at all."""
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


async def test_the_deployment_gives_defaults_headers_and_key() -> None:
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


async def test_without_a_key_of_its_own_the_deployment_uses_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [("Authorization", "Bearer client-key")]
    async with serving() as (fake, upstream):
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        await upstream.open(call(CLAUDE, fake.base, HELLO, sent=sent, api_key=None))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "environment-key")
        await upstream.open(call(CLAUDE, fake.base, HELLO, sent=sent, api_key=None))
        assert [seen.headers["x-api-key"] for seen in fake.seen] == ["client-key", "environment-key"]


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
async def test_routes(model: str, provider_name: str, extra_body: bool, takes_key: bool) -> None:
    library = Library()
    await library.module()
    route = library.route(Deployment("m", model, Transport.LITELLM, NONE))
    assert (route.provider, route.extra_body, route.takes_key) == (provider_name, extra_body, takes_key)
    assert {"api_base", "api_key", "fallbacks", "mock_response", "metadata"} <= route.owned
    assert library.route(Deployment("m", model, Transport.LITELLM, NONE)) is route


async def test_half_a_character_reaches_a_provider_that_is_sent_ascii() -> None:
    async with serving() as (fake, upstream):
        said = {"messages": [{"role": "user", "content": "a \ud83d b \U0001f600"}]}
        for model, stream in (("deepseek/deepseek-chat", False), ("hosted_vllm/qwen", False), (CLAUDE, True)):
            answer = await upstream.open(call(model, fake.base, {**said, "stream": stream}))
            await read(answer)
            assert answer.status == 200
            assert "a \\ud83d b \\ud83d\\ude00" in json.dumps(fake.seen[-1].body["messages"])


@pytest.mark.parametrize(("model", "stream"), [(CLAUDE, False), (GPT, False), (GPT, True)])
async def test_half_a_character_that_a_provider_cannot_be_sent_is_named(model: str, stream: bool) -> None:
    async with serving() as (fake, upstream):
        said = {"messages": [{"role": "user", "content": "a \ud83d b"}], "stream": stream}
        with pytest.raises(InvalidRequest, match="half of a surrogate pair") as caught:
            await upstream.open(call(model, fake.base, said))
        assert (caught.value.status, caught.value.code) == (400, "invalid_unicode")
        assert not fake.seen


async def test_what_is_no_json_is_refused() -> None:
    async with serving() as (fake, upstream):
        asked = call(GPT, fake.base, HELLO)
        for raw in (b"{", b'{"messages":NaN}', b'["\\ud83d"]'):
            with pytest.raises(InvalidRequest) as caught:
                await upstream.open(replace(asked, body=raw))
            assert caught.value.code == "invalid_json"
