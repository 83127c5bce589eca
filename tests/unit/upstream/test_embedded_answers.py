import asyncio
import copy
import json
import lzma
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.engine.ports import Answer
from proxy.kit.errors import UpstreamUnavailable
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, OPENAI, OPENAI_EXPLICIT, PROFILES
from proxy.protocol.request.tokens import bytes_over_four
from tests.examples import examples, for_every
from tests.unit.upstream.embedded_client import (
    EDIT,
    MARK,
    SEARCH,
    SMALL,
    Provider,
    called,
    part,
    read,
    result,
    system,
    user,
)


class TestAnswers:
    def test_a_stream_and_its_body_say_the_same(self):
        whole = Provider().chat(user()).json
        events = Provider().chat(user(), stream=True).events
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
        assert text == whole["choices"][0]["message"]["content"]
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
        assert all("usage" not in event for event in events)
        assert {event["id"] for event in events} == {whole["id"]}

    def test_the_usage_event_comes_when_asked_for(self):
        reply = Provider().chat(user(), stream=True, stream_options={"include_usage": True})
        *others, last = reply.events
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] > 0
        assert all(event["usage"] is None for event in others)
        assert reply.headers["content-type"].startswith("text/event-stream")

    @pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
    def test_the_sdk_knows_every_object(self, profile):
        provider = Provider(profile)
        for choice in ("auto", "required"):
            asked = {"tools": [SEARCH, EDIT], "tool_choice": choice}
            ChatCompletion.model_validate(provider.chat(user(), **asked).json, strict=True)
            options = {"stream": True, "stream_options": {"include_usage": True}}
            for event in provider.chat(user(), **asked, **options).events:
                ChatCompletionChunk.model_validate(event, strict=True)

    def test_length(self):
        words = len  # one token a character
        usage = Provider(encode=words, output_tokens=400).chat(user()).usage
        assert 380 <= usage["completion_tokens"] <= 400
        short = Provider(encode=words, output_tokens=400).chat(user(), max_tokens=50).json
        assert short["usage"]["completion_tokens"] <= 50
        assert short["choices"][0]["finish_reason"] == "length"

    def test_choices(self):
        first, second = Provider().chat(user(), n=2).json["choices"]
        assert (first["index"], second["index"]) == (0, 1)
        assert first["message"]["content"] != second["message"]["content"]

    def test_tool_calls(self):
        reply = Provider().chat(user(), tools=[SEARCH, EDIT], tool_choice="required").json["choices"][0]
        (call,) = reply["message"]["tool_calls"]
        assert call["function"] == {"name": "search", "arguments": "{}"}
        assert reply["finish_reason"] == "tool_calls"
        assert reply["message"]["content"] is None

    def test_a_tool_call_in_a_stream(self):
        events = Provider().chat(user(), tools=[SEARCH, EDIT], tool_choice="required", stream=True).events
        named, argued = (call for event in events for call in event["choices"][0]["delta"].get("tool_calls", []))
        assert named["function"] == {"name": "search", "arguments": ""}
        assert argued == {"index": named["index"], "function": {"arguments": "{}"}}

    def test_after_the_results_it_answers(self):
        reply = Provider().chat(user(), called("a"), result("a"), tools=[SEARCH], tool_choice="required")
        assert reply.json["choices"][0]["message"]["content"]

    @pytest.mark.parametrize(
        ("choice", "names"),
        [("none", []), ("required", ["search"]), ({"type": "function", "function": {"name": "edit"}}, ["edit"])],
    )
    def test_tool_choice(self, choice, names):
        message = Provider().chat(user(), tools=[SEARCH, EDIT], tool_choice=choice).json["choices"][0]["message"]
        assert [call["function"]["name"] for call in message.get("tool_calls", [])] == names

    @pytest.mark.parametrize("kind", ["json_object", "json_schema"])
    def test_an_object_where_json_is_asked_for(self, kind):
        whole = Provider().chat(user(), response_format={"type": kind}).json["choices"][0]["message"]["content"]
        assert isinstance(json.loads(whole), dict)

    def test_it_serves_chat_alone(self):
        provider = Provider()
        for path, method in (("/embeddings", "POST"), ("/chat/completions", "GET")):
            reply = provider.send(b"", path=path, method=method)
            assert reply.status == 404
            assert set(reply.json["error"]) == {"message", "type", "param", "code"}


@for_every(
    [
        (b"", None),
        (b"[]", None),
        (b'{"model": "\\ud800", "messages": [{"role": "user", "content": "hi"}]}', "model"),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [user([part("x"), {"type": "text"}])]}, "messages[0].content[1].text"),
        ({"messages": [user()], "model": None}, "model"),
        ({"messages": [user()], "max_tokens": "9"}, "max_tokens"),
        ({"messages": [user()], "tools": {}}, "tools"),
        ({"messages": [user()], "stratiform": {}}, "stratiform"),
        ({"messages": [user()], "stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": [user(), called("a")]}, "messages"),
        ({"messages": [user(), called("a"), user()]}, "messages[2].role"),
        ({"messages": [user(), called("a"), result("b")]}, "messages[2].role"),
        ({"messages": [user(), result("a")]}, "messages[1].role"),
    ]
)
def test_requests_that_no_provider_takes(body, param):
    for profile in (SMALL, OPENAI, DEEPSEEK):
        reply = Provider(profile).send(body)
        assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
        assert reply.json["error"]["param"] == param


async def drain_cut(answer: Answer) -> list[bytes]:
    """The chunks up to where the line breaks, which it must."""
    received = []
    try:
        async for chunk in answer.chunks():
            received.append(chunk)
    except UpstreamUnavailable:
        return received
    raise AssertionError("the line did not break")


fields = st.sampled_from(
    ["role", "content", "type", "text", "cache_control", "ttl", "tool_calls", "id", "function", "name", "tool_call_id",
     "thinking_blocks", "json_schema"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=4),
    max_leaves=12,
)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
kinds = st.sampled_from(["text", "image_url", "thinking"])
odd_parts = st.lists(st.fixed_dictionaries({"type": kinds}, optional={"text": st.text(), "cache_control": values}))
odd_messages = st.fixed_dictionaries(
    {"role": roles, "content": values | odd_parts},
    optional={"tool_calls": values, "cache_control": values, "thinking_blocks": values, "tool_call_id": values},
)
odd_bodies = st.fixed_dictionaries(
    {"messages": values | st.lists(values | odd_messages, min_size=1)},
    optional={"tools": values | st.lists(values), "tool_choice": values, "n": values, "max_tokens": values,
              "response_format": values, "stream": values, "stream_options": values, "thinking": values,
              "prompt_cache_options": values, "parallel_tool_calls": values, "input": values, "prompt": values},
)  # fmt: skip


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(odd_bodies, st.sampled_from([SMALL, OPENAI, OPENAI_EXPLICIT, DEEPSEEK]))
@example({"messages": [{"role": "system", "content": []}, {"role": "user", "content": []}]}, OPENAI_EXPLICIT)
def test_any_json_gets_an_answer(body, profile):
    reply = Provider(profile, output_tokens=5).send(json.dumps({"model": "model", **body}).encode())
    assert reply.status in (200, 400)
    if reply.status == 400:
        assert reply.json["error"]["message"]


def test_nesting_without_end_is_refused():
    deep = b"[" * 5000 + b"]" * 5000
    for field in (b'"tools":[{"x":%s}]' % deep, b'"response_format":%s' % deep):
        reply = Provider().send(b'{"model":"m","messages":[{"role":"user","content":"x"}],%s}' % field)
        assert reply.status == 400


class TestFaults:
    body = {"messages": [user("hello", cache_control=MARK)], "stream": True}

    def test_rate_limit_for_the_first_requests(self):
        provider = Provider(faults=["rate-limit;n=2;seconds=7"])
        replies = [provider.send(self.body) for _ in range(3)]
        assert [reply.status for reply in replies] == [429, 429, 200]
        assert replies[0].headers["retry-after"] == "7"
        assert replies[0].json["error"]["code"] == "rate_limit_exceeded"
        assert (provider.ledger.requests, provider.ledger.answered) == (3, 1)

    def test_error_by_header(self):
        provider = Provider()
        assert provider.send(self.body, fault="error").status == 500
        assert provider.send(self.body, fault="error;status=503").status == 503
        assert [provider.send(self.body, fault="error;n=1").status for _ in range(2)] == [500, 200]
        assert provider.send(self.body, fault="nonsense").status == 400

    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_cut_answer_breaks_off(self, stream):
        provider = Provider()
        body = {**self.body, "stream": stream}
        answer = await provider.upstream.open(provider.call(body, fault="cut;after=2"))
        received = await drain_cut(answer)
        await answer.aclose()
        assert answer.status == 200
        assert len(received) == 2
        assert provider.ledger.cancelled == 0
        assert read(await provider.ask({**self.body, "stream": False})) > 0

    async def test_a_cut_never_delivers_everything(self):
        provider = Provider()
        answer = await provider.upstream.open(provider.call(self.body, fault="cut;after=9999"))
        received = await drain_cut(answer)
        assert b"[DONE]" not in b"".join(received)

    def test_empty_streams(self):
        provider = Provider()
        assert provider.send(self.body, fault="empty-stream").body == b"data: [DONE]\n\n"
        assert provider.send(self.body, fault="no-bytes").body == b""
        assert provider.ledger.prompt == 0
        assert read(provider.send({**self.body, "stream": False})) == 0

    def test_refuse_rewrite(self):
        provider = Provider(faults="refuse-rewrite;n=1")
        assert [provider.chat(user()).status, provider.send(self.body).status] == [200, 400]
        assert provider.send(self.body).status == 200

    async def test_slow_headers_can_be_cancelled(self):
        provider = Provider()
        opening = asyncio.ensure_future(
            provider.upstream.open(provider.call(self.body, fault="slow-headers;seconds=60"))
        )
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert (provider.ledger.requests, provider.ledger.cancelled) == (1, 1)

    async def test_hanging_up_in_the_middle_stops_production(self):
        provider = Provider(pace_s=0.001, output_tokens=1000)
        answer = await provider.upstream.open(provider.call(self.body))
        chunks = answer.chunks()
        for _ in range(3):
            await anext(chunks)
        await answer.aclose()
        with pytest.raises(UpstreamUnavailable):
            await anext(chunks)
        assert provider.ledger.cancelled == 1
        assert 0 < provider.ledger.output < 50
        assert provider.ledger.answered == 1


def test_known_text_is_not_counted_again():
    counted: list[int] = []

    def encode(text: str) -> int:
        counted.append(len(text))
        return bytes_over_four(text)

    provider = Provider(ANTHROPIC, encode=encode)
    paragraphs = [f"Paragraph {i}: " + "word " * 100 + "\n\n" for i in range(800)]
    assert len("".join(paragraphs)) > 400_000
    messages = [system("".join(paragraphs)), user()]
    total = provider.chat(*messages).usage["prompt_tokens"]
    assert sum(counted) < 450_000
    counted.clear()
    assert provider.chat(*messages).usage["prompt_tokens"] == total
    assert counted == []
    paragraphs[400] = "Another paragraph.\n\n"
    provider.chat(system("".join(paragraphs)), user())
    assert sum(counted) < 100


TRACES = Path(os.environ.get("STRATIFORM_TRACES") or Path(__file__).parents[3] / ".." / "shared" / "traces")


@pytest.mark.parametrize("name", ["opencode-click-aug", "aider-datasette-views-cachectl"])
def test_recorded_sessions_with_markers_on_system_and_last(name):
    path = TRACES / f"{name}.jsonl.xz"
    if not path.is_file():
        pytest.skip("no recorded sessions here")
    with lzma.open(path) as lines:
        rows = sorted((json.loads(line) for _, line in zip(range(20), lines, strict=False)), key=lambda row: row["t"])
    provider = Provider(ANTHROPIC)
    prompts = []
    for row in rows:
        body = copy.deepcopy(row["request"])
        body.pop("stream", None), body.pop("stream_options", None)
        for message in (body["messages"][0], body["messages"][-1]):
            message["cache_control"] = MARK
        provider.now = row["t"]
        usage = provider.send(body).usage
        lives = usage["cache_creation"]
        kinds = usage["cache_read_input_tokens"], lives["ephemeral_5m_input_tokens"], lives["ephemeral_1h_input_tokens"]
        assert sum(kinds) <= usage["prompt_tokens"] - 3
        prompts.append(usage["prompt_tokens"])
    ledger = provider.ledger
    assert ledger.answered == len(rows) == 20
    assert ledger.prompt == sum(prompts)
    share = (0.1 * ledger.read + 1.25 * ledger.write_5m + ledger.plain) / ledger.prompt
    if name.startswith("opencode"):
        assert share < 0.45  # append-only: what was written is read
    else:
        assert share > 1.0  # files in front of the end change all the time: what was written is lost
