import asyncio
import base64
import copy
import json
import lzma
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.core.profiles import ANTHROPIC, DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT, CacheProfile
from proxy.core.tokens import IMAGE_TOKENS, bytes_over_four
from proxy.errors import UpstreamUnavailable
from proxy.ports import Answer, Call, Deployment, Transport
from proxy.upstream.embedded import ANONYMOUS, EmbeddedUpstream, account_name

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SMALL = replace(ANTHROPIC, min_tokens=1)
SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
EDIT = {"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": {}}}}


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = [line.removeprefix(b"data: ") for line in self.body.split(b"\n\n") if line]
        assert lines[-1] == b"[DONE]"
        return [orjson.loads(line) for line in lines[:-1]]

    @property
    def usage(self) -> dict[str, Any]:
        assert self.status == 200, self.body
        return self.json["usage"]


class Provider:
    """A running embedded provider and a clock."""

    def __init__(self, profile: CacheProfile = SMALL, encode=bytes_over_four, **params: object) -> None:
        self.upstream = EmbeddedUpstream(encode)
        self.deployment = Deployment("model", "model", Transport.EMBEDDED, profile, params=params)
        self.now = 1000.0

    def call(self, body: object, *, path="/chat/completions", method="POST", key="k", fault: str = "") -> Call:
        headers = [("Authorization", f"Bearer {key}")] if key else []
        headers += [("x-embedded-fault", fault)] if fault else []
        if isinstance(body, dict) and "model" not in body:
            body = {"model": "model", **body}
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        return Call(self.deployment, method, path, headers, raw, False, self.now)

    async def ask(self, body: object, **kind: Any) -> Reply:
        answer = await self.upstream.open(self.call(body, **kind))
        data = b"".join([chunk async for chunk in answer.chunks()])
        await answer.aclose()
        self.now += 1
        return Reply(answer.status, dict(answer.headers), data)

    def send(self, body: object, **kind: Any) -> Reply:
        return asyncio.run(self.ask(body, **kind))

    def chat(self, *messages: dict[str, Any], **rest: Any) -> Reply:
        return self.send({"messages": list(messages), **rest})

    @property
    def ledger(self):
        return self.upstream.ledger(account_name("k"))


def system(text: str = "Be brief. " * 10, **rest: Any) -> dict[str, Any]:
    return {"role": "system", "content": text, **rest}


def user(content: Any = "What now?", **rest: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **rest}


def part(text: str, **rest: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **rest}


def called(*names: str, content: Any = None, **rest: Any) -> dict[str, Any]:
    calls = [{"id": name, "type": "function", "function": {"name": "search", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": content, "tool_calls": calls, **rest}


def result(name: str, content: Any = "found it", **rest: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content, **rest}


def written(reply: Reply) -> int:
    return reply.usage["cache_creation_input_tokens"]


def read(reply: Reply) -> int:
    return reply.usage["prompt_tokens_details"]["cached_tokens"]


class TestAnthropicUsage:
    def test_inclusive_with_anthropics_own_counters(self):
        provider = Provider()
        usage = provider.chat(system("a" * 400, cache_control=HOUR), user("b" * 200, cache_control=MARK)).usage
        lives = {"ephemeral_5m_input_tokens": 54, "ephemeral_1h_input_tokens": 104}
        assert usage["prompt_tokens"] == 104 + 54 + 3
        assert usage["prompt_tokens_details"] == {
            "cached_tokens": 0,
            "cache_creation_tokens": 158,
            "cache_creation_token_details": lives,
        }
        assert usage["cache_creation"] == lives
        assert (usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]) == (158, 0)
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]

    def test_the_second_request_reads_all_but_the_tail(self):
        provider = Provider()
        messages = [system(cache_control=MARK), user(cache_control=MARK)]
        first, second = provider.chat(*messages), provider.chat(*messages)
        assert read(second) == written(first) == first.usage["prompt_tokens"] - 3
        assert written(second) == 0
        assert provider.ledger.plain == 6

    def test_without_markers_nothing_is_cached(self):
        provider = Provider()
        for _ in range(2):
            assert (read(reply := provider.chat(system(), user())), written(reply)) == (0, 0)

    def test_the_minimum(self):
        provider = Provider(ANTHROPIC)
        assert written(provider.chat(system("a" * 4000, cache_control=MARK), user())) == 0
        assert written(provider.chat(system("a" * 4200, cache_control=MARK), user())) == 1054


def marked_positions() -> list[tuple[str, list[dict[str, Any]], int]]:
    """Placement of a marker, messages, and how many of the prompt's tokens it writes (litellm 1.109's table)."""
    text = "x" * 40
    return [
        ("part in user", [user([part(text, cache_control=MARK), part(text)])], 14),
        ("part in system", [system([part(text, cache_control=MARK)]), user()], 14),
        ("string in user", [user(text, cache_control=MARK)], 14),
        ("string in system", [system(text, cache_control=MARK), user()], 14),
        ("message beside a list in user", [user([part(text)], cache_control=MARK)], 0),
        ("message beside a list in system", [system([part(text)], cache_control=MARK), user()], 0),
        ("tool message", [user(text), called("a"), result("a", text, cache_control=MARK)], -1),
        ("tool message with a list", [user(text), called("a"), result("a", [part(text)], cache_control=MARK)], -1),
        ("assistant text", [user(text), called("a", content=text, cache_control=MARK), result("a")], 28),
        ("assistant without text", [user(text), called("a", cache_control=MARK), result("a")], 0),
        ("assistant with empty text", [user(text), called("a", content="", cache_control=MARK), result("a")], 0),
    ]


@pytest.mark.parametrize(("messages", "tokens"), [row[1:] for row in marked_positions()],
                         ids=[row[0] for row in marked_positions()])  # fmt: skip
def test_where_a_marker_counts(messages, tokens):
    reply = Provider().chat(*messages)
    assert written(reply) == (tokens if tokens >= 0 else reply.usage["prompt_tokens"] - 3)


def test_markers_on_tools_and_calls():
    provider = Provider()
    tool_mark = written(provider.chat(user(), tools=[{**SEARCH, "cache_control": MARK}, EDIT]))
    function_mark = {**SEARCH, "function": {**SEARCH["function"], "cache_control": MARK}}
    assert 0 < tool_mark < provider.ledger.prompt / 2
    assert read(provider.chat(user(), tools=[function_mark, EDIT])) == tool_mark
    call = called("a", "b")
    call["tool_calls"][0]["cache_control"] = MARK
    reply = Provider().chat(user("x" * 40), call, result("a"), result("b"))
    assert 14 < written(reply) < reply.usage["prompt_tokens"] - 30


REFUSED = [
    ("five markers", [user([part(f"{i}", cache_control=MARK) for i in range(5)])], "maximum of 4"),
    ("1h behind 5m", [system(cache_control=MARK), user(cache_control=HOUR)], "must not come after"),
    ("empty text", [user("", cache_control=MARK)], "empty text"),
    ("empty part", [user([part(" ", cache_control=MARK)])], "empty text"),
    ("inside a tool result", [user(), called("a"), result("a", [part("x", cache_control=MARK)])], "tool_result"),
    (
        "thinking",
        [user(), {"role": "assistant", "thinking_blocks": [{"type": "thinking", "cache_control": MARK}]}],
        "Extra inputs",
    ),
    ("unknown type", [user(cache_control={"type": "durable"})], "ephemeral"),
    ("unknown ttl", [user(cache_control={"type": "ephemeral", "ttl": "2h"})], "'5m' or '1h'"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_markers_that_anthropic_refuses(messages, text):
    provider = Provider()
    reply = provider.chat(*messages)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert text in reply.json["error"]["message"]
    assert provider.ledger.errors == {400: 1}
    assert provider.ledger.prompt == 0


class TestAutomaticMarker:
    def test_on_the_last_block(self):
        reply = Provider().chat(system(), user(), cache_control=MARK)
        assert written(reply) == reply.usage["prompt_tokens"] - 3

    def test_beside_the_same_marker_it_does_nothing(self):
        parts = [part(f"{i}", cache_control=MARK) for i in range(4)]
        assert written(Provider().chat(user(parts), cache_control=MARK)) > 0

    def test_as_a_fifth_or_with_another_life_it_is_refused(self):
        parts = [part(f"{i}", cache_control=MARK) for i in range(4)]
        assert Provider().chat(user([*parts, part("last")]), cache_control=MARK).status == 400
        assert Provider().chat(user(cache_control=HOUR), cache_control=MARK).status == 400


class TestAnthropicPrefix:
    def reads(self, first: list[dict[str, Any]], second: list[dict[str, Any]], **rest: Any) -> bool:
        provider = Provider()
        provider.chat(*first, **rest.get("before", {}))
        return read(provider.chat(*second, **rest.get("after", {}))) > 0

    def test_a_string_and_its_list_are_the_same(self):
        assert self.reads([user("hello", cache_control=MARK)], [user([part("hello", cache_control=MARK)])])
        call = called("a")
        first, second = result("a", "text", cache_control=MARK), result("a", [part("text")], cache_control=MARK)
        assert self.reads([user(), call, first], [user(), call, second])

    def test_markers_do_not_enter_it(self):
        marked = user("hello", cache_control=MARK)
        assert self.reads([system(cache_control=MARK), marked], [system(), marked])

    def test_roles_and_names_do(self):
        assert not self.reads([user("hello", cache_control=MARK)], [system("hello", cache_control=MARK), user()])
        assert not self.reads([user("hello", cache_control=MARK)], [user("hello", name="Bob", cache_control=MARK)])
        assert self.reads([system(cache_control=MARK), user()], [system(cache_control=MARK, role="developer"), user()])

    def test_two_parts_are_not_one(self):
        assert not self.reads(
            [user([part("ab", cache_control=MARK)])], [user([part("a"), part("b", cache_control=MARK)])]
        )

    @pytest.mark.parametrize(
        ("after", "system_reads", "user_reads"),
        [
            ({"temperature": 0.5, "max_tokens": 9}, True, True),
            ({"tool_choice": "auto", "parallel_tool_calls": True}, True, True),
            ({"tool_choice": "none"}, True, False),
            ({"parallel_tool_calls": False}, True, False),
            ({"reasoning_effort": "low"}, True, False),
            ({"web_search_options": {}}, False, False),
            ({"response_format": {"type": "json_object"}}, False, False),
            ({"tools": [EDIT]}, False, False),
            ({"model": "other"}, False, False),
        ],
    )
    def test_what_breaks_it(self, after, system_reads, user_reads):
        messages = [system(cache_control=MARK), user(cache_control=MARK)]
        provider = Provider()
        provider.chat(*messages, tools=[SEARCH])
        reply = provider.chat(*messages, **{"tools": [SEARCH], **after})
        assert (read(reply) > 0) is system_reads
        assert (read(reply) == reply.usage["prompt_tokens"] - 3) is user_reads

    def test_an_image_anywhere_breaks_the_messages(self):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        provider = Provider()
        provider.chat(system(cache_control=MARK), user("hello", cache_control=MARK))
        head = provider.chat(system(cache_control=MARK), user("hello", cache_control=MARK), user([image]))
        assert 0 < read(head) < 40
        assert head.usage["prompt_tokens"] > IMAGE_TOKENS

    def test_later_system_messages_stay_in_place(self):
        first = [system(), user("hello", cache_control=MARK)]
        assert self.reads(first, [*first, system("later"), user()])

    def test_accounts_are_apart(self):
        provider = Provider()
        body = {"messages": [system(cache_control=MARK), user()]}
        provider.send(body, key="one")
        assert read(provider.send(body, key="two")) == 0
        assert read(provider.send(body, key="one")) > 0
        assert set(provider.upstream.ledgers) == {account_name("one"), account_name("two")}
        assert provider.send(body, key="").status == 200
        assert provider.upstream.ledger(ANONYMOUS).answered == 1

    def test_the_deployments_own_key_is_the_account(self):
        provider = Provider()
        provider.deployment = replace(provider.deployment, api_key="ours")
        provider.chat(user())
        assert provider.upstream.ledger(account_name("ours")).answered == 1


@pytest.mark.parametrize(("distance", "hits"), [(19, True), (20, False)])
def test_the_lookback_counts_blocks_and_runs(distance: int, hits: bool):
    def conversation(groups: int, mark_head: bool) -> list[dict[str, Any]]:
        messages = [user("hello", **({"cache_control": MARK} if mark_head else {}))]
        for i in range(groups):
            names = [f"{i}/{j}" for j in range(5)]
            messages += [called(*names), *(result(name) for name in names)]
        return messages

    provider = Provider()
    provider.chat(*conversation(0, True))
    # Each group of five calls and five results is two positions; the marker's own run is the last of them.
    messages = conversation(distance // 2, False)
    if distance % 2:
        messages.append({"role": "user", "content": [part("end", cache_control=MARK)]})
    else:
        messages[-1]["cache_control"] = MARK
    assert (read(provider.chat(*messages)) > 0) is hits


class TestTime:
    def test_an_entry_lives_five_minutes_of_virtual_time(self):
        provider, messages = Provider(), [user("hello", cache_control=MARK)]
        provider.chat(*messages)
        provider.now = 1299.9
        assert read(provider.chat(*messages)) > 0
        provider.now = 1599.9
        assert read(provider.chat(*messages)) == 0

    def test_readable_from_the_first_byte_on(self):
        async def main() -> None:
            provider = Provider()
            body = {"messages": [user("hello", cache_control=MARK)]}
            first = await provider.upstream.open(provider.call(body))
            second = await provider.upstream.open(provider.call(body))
            bodies = [b"".join([c async for c in answer.chunks()]) for answer in (first, second)]
            written = [orjson.loads(b)["usage"]["cache_creation_input_tokens"] for b in bodies]
            assert written[0] == written[1] > 0
            assert read(await provider.ask(body)) > 0

        asyncio.run(main())

    def test_a_slow_first_byte_delays_the_entry(self):
        provider = Provider(first_byte_s=0.02)
        body = {"messages": [user("hello", cache_control=MARK)]}
        provider.send(body)
        provider.now = 1000.01
        assert read(provider.send(body)) == 0
        provider.now = 1000.03
        assert read(provider.send(body)) > 0

    def test_given_up_before_the_first_byte_nothing_is_stored(self):
        async def main() -> None:
            provider = Provider()
            body = {"messages": [user("hello", cache_control=MARK)]}
            answer = await provider.upstream.open(provider.call(body, fault="slow-first-byte;seconds=60"))
            reading = asyncio.ensure_future(anext(answer.chunks()))
            await asyncio.sleep(0)
            await answer.aclose()
            with pytest.raises(UpstreamUnavailable):
                await reading
            await answer.aclose()
            assert (provider.ledger.cancelled, provider.ledger.answered, provider.ledger.prompt) == (1, 0, 0)
            assert read(await provider.ask(body)) == 0

        asyncio.run(main())


class TestOpenAI:
    def test_a_prefix_inside_one_long_message_is_read_in_steps(self):
        provider = Provider(OPENAI)
        text = "".join(f"line {i} of the file\n" for i in range(1000))
        first = provider.chat(system(), user(text + "old end " * 50))
        second = provider.chat(system(), user(text + "new end " * 50))
        cached = second.usage["prompt_tokens_details"]["cached_tokens"]
        shared = bytes_over_four(text)
        assert first.usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert cached % 128 == 0
        assert shared - 256 < cached <= shared + 64

    def test_marker_fields_are_unknown_parameters(self):
        for message in (user(cache_control=MARK), user([part("x", cache_control=MARK)])):
            reply = Provider(OPENAI).chat(message)
            assert reply.status == 400
            assert reply.json["error"]["code"] == "unknown_parameter"
            assert reply.json["error"]["param"].startswith("messages[0]")
        assert Provider(OPENAI).chat(user(), tools=[{**SEARCH, "cache_control": MARK}]).status == 400
        assert Provider(OPENAI).chat(user(), cache_control=MARK).status == 400
        assert Provider(OPENAI).chat(user([part("x", prompt_cache_breakpoint={"mode": "explicit"})])).status == 400

    def test_what_is_kept_apart(self):
        provider = Provider(OPENAI)
        messages = [user("word " * 2000)]
        provider.chat(*messages)
        assert read(provider.chat(*messages, tool_choice="none")) > 0
        assert read(provider.chat(*messages, prompt_cache_key="k")) == 0
        assert read(provider.chat(*messages, response_format={"type": "json_object"})) == 0


class TestOpenAIExplicit:
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    long = "word " * 1200

    def test_implicit_mode_appends_a_growing_chat(self):
        provider = Provider(OPENAI_EXPLICIT)
        first = provider.chat(system(self.long), user("one"))
        details = first.usage["prompt_tokens_details"]
        assert details["cache_write_tokens"] == first.usage["prompt_tokens"] - 3
        second = provider.chat(system(self.long), user("one"), called("a"), result("a"))
        assert read(second) == details["cache_write_tokens"]
        assert second.usage["prompt_tokens_details"]["cache_write_tokens"] < 60

    def test_a_marked_static_prefix_is_shared(self):
        provider = Provider(OPENAI_EXPLICIT)
        head = system([part(self.long, **self.point)])
        provider.chat(head, user("one"))
        assert read(provider.chat(head, user("two"))) > 1400
        plain_head = Provider(OPENAI_EXPLICIT)
        plain_head.chat(system(self.long), user("one"))
        assert read(plain_head.chat(system(self.long), user("two"))) == 0

    def test_explicit_mode_reads_and_writes_at_breakpoints_only(self):
        provider = Provider(OPENAI_EXPLICIT)
        options = {"prompt_cache_options": {"mode": "explicit"}}
        unmarked = provider.chat(system(self.long), user("one"), **options)
        assert unmarked.usage["prompt_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
        marked = [system(self.long), user([part("one", **self.point)])]
        provider.chat(*marked, **options)
        assert read(provider.chat(*marked, user("more"), **options)) > 1400
        assert read(provider.chat(system(self.long), user("one"), user("more"), **options)) == 0

    def test_refusals(self):
        for message in (
            user(cache_control=MARK),
            {"role": "assistant", "content": [part("x", **self.point)]},
            user([part("x", prompt_cache_breakpoint={"mode": "implicit"})]),
        ):
            assert Provider(OPENAI_EXPLICIT).chat(message).status == 400
        for options in ({"mode": "auto"}, {"ttl": "5m"}, "implicit"):
            assert Provider(OPENAI_EXPLICIT).chat(user(), prompt_cache_options=options).status == 400


class TestDeepSeek:
    def test_hit_and_miss_add_up_and_markers_are_ignored(self):
        provider = Provider(DEEPSEEK)
        messages = [user("word " * 500, cache_control=MARK)]
        assert provider.chat(*messages).usage["prompt_cache_hit_tokens"] == 0
        usage = provider.chat(user("word " * 500)).usage
        assert usage["prompt_cache_hit_tokens"] == 512
        assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == usage["prompt_tokens"]
        assert "prompt_tokens_details" not in usage

    def test_the_answer_that_comes_back_is_read(self):
        provider = Provider(DEEPSEEK, output_tokens=600)
        question = user("word " * 500)
        answer = provider.chat(question).json["choices"][0]["message"]
        del answer["refusal"]
        usage = provider.chat(question, answer, user("And then?")).usage
        output = bytes_over_four(answer["content"])
        assert usage["prompt_cache_hit_tokens"] >= (629 + output) // 128 * 128

    def test_user_ids_are_apart(self):
        provider = Provider(DEEPSEEK)
        provider.chat(user("word " * 500))
        assert provider.chat(user("word " * 500), user_id="u").usage["prompt_cache_hit_tokens"] == 0


def test_a_provider_without_a_cache_reports_none():
    usage = Provider(NONE).chat(user("hello", cache_control=MARK)).usage
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens"}


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
        reply = Provider().chat(user("please call_tool now"), tools=[SEARCH, EDIT]).json["choices"][0]
        (call,) = reply["message"]["tool_calls"]
        assert call["function"] == {"name": "search", "arguments": "{}"}
        assert reply["finish_reason"] == "tool_calls"
        assert reply["message"]["content"] is None

    def test_parallel_tool_calls_in_a_stream(self):
        events = Provider().chat(user("call_tools"), tools=[SEARCH, EDIT], stream=True).events
        deltas = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", [])]
        names = {delta["index"]: delta["function"]["name"] for delta in deltas if "name" in delta["function"]}
        assert names == {0: "search", 1: "edit"}
        assert len({delta["id"] for delta in deltas if "id" in delta}) == 2

    def test_after_the_results_it_answers(self):
        reply = Provider().chat(user("call_tool"), called("a"), result("a"), tools=[SEARCH])
        assert reply.json["choices"][0]["message"]["content"]

    @pytest.mark.parametrize(
        ("choice", "names"),
        [("none", []), ("required", ["search"]), ({"type": "function", "function": {"name": "edit"}}, ["edit"])],
    )
    def test_tool_choice(self, choice, names):
        message = Provider().chat(user(), tools=[SEARCH, EDIT], tool_choice=choice).json["choices"][0]["message"]
        assert [call["function"]["name"] for call in message.get("tool_calls", [])] == names

    def test_structured_output(self):
        schema = {
            "type": "object",
            "required": ["name", "kind", "tags", "size", "next"],
            "properties": {
                "name": {"type": "string", "minLength": 6},
                "kind": {"enum": ["a", "b"]},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 2},
                "size": {"type": "integer", "minimum": 3},
                "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
                "unneeded": {"type": "boolean"},
            },
            "$defs": {"tag": {"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}}}},
        }
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        content = Provider().chat(user(), response_format=form).json["choices"][0]["message"]["content"]
        assert json.loads(content) == {
            "name": "textxx", "kind": "a", "tags": [{"on": False}] * 2, "size": 3, "next": None,
        }  # fmt: skip
        free = Provider().chat(user(), response_format={"type": "json_object"}).json["choices"][0]["message"]["content"]
        assert isinstance(json.loads(free), dict)

    def test_models_embeddings_completions_and_the_rest(self):
        provider = Provider()
        assert [m["id"] for m in provider.send(b"", path="/models", method="GET").json["data"]] == ["model"]
        body = {"input": ["a", "b", "a"], "dimensions": 20}
        rows = [row["embedding"] for row in provider.send(body, path="/embeddings").json["data"]]
        assert rows[0] == rows[2] != rows[1]
        assert sum(x * x for x in rows[0]) == pytest.approx(1)
        packed = provider.send({**body, "encoding_format": "base64"}, path="/embeddings").json["data"][0]["embedding"]
        assert struct.unpack("<20f", base64.b64decode(packed)) == pytest.approx(rows[0])
        completion = provider.send({"prompt": "Once", "max_tokens": 5}, path="/completions").json
        assert completion["choices"][0]["finish_reason"] == "length"
        streamed = provider.send({"prompt": "Once", "max_tokens": 5, "stream": True}, path="/completions").events
        assert "".join(e["choices"][0]["text"] for e in streamed) == completion["choices"][0]["text"]
        for path, method, status in (("/audio/speech", "POST", 404), ("/chat/completions", "GET", 405)):
            reply = provider.send(b"", path=path, method=method)
            assert reply.status == status
            assert set(reply.json["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', None),
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
    ],
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


class TestFaults:
    body = {"messages": [user("hello", cache_control=MARK)], "stream": True}

    def test_rate_limit_for_the_first_requests(self):
        provider = Provider(faults=["rate-limit;n=2;seconds=7"])
        replies = [provider.send(self.body) for _ in range(3)]
        assert [reply.status for reply in replies] == [429, 429, 200]
        assert replies[0].headers["retry-after"] == "7"
        assert replies[0].json["error"]["code"] == "rate_limit_exceeded"
        assert provider.ledger.errors == {429: 2}

    def test_error_by_header(self):
        provider = Provider()
        assert provider.send(self.body, fault="error").status == 500
        assert provider.send(self.body, fault="error;status=503").status == 503
        assert [provider.send(self.body, fault="error;n=1").status for _ in range(2)] == [500, 200]
        assert provider.send(self.body, fault="nonsense").status == 400
        assert provider.send({"input": "x"}, path="/embeddings", fault="error").status == 500

    @pytest.mark.parametrize("stream", [True, False])
    def test_cut(self, stream):
        async def main() -> None:
            provider = Provider()
            body = {**self.body, "stream": stream}
            answer = await provider.upstream.open(provider.call(body, fault="cut;after=2"))
            received = await drain_cut(answer)
            await answer.aclose()
            assert answer.status == 200
            assert len(received) == 2
            assert (provider.ledger.broken, provider.ledger.cancelled) == (1, 0)
            assert read(await provider.ask({**self.body, "stream": False})) > 0

        asyncio.run(main())

    def test_a_cut_never_delivers_everything(self):
        async def main() -> None:
            provider = Provider()
            answer = await provider.upstream.open(provider.call(self.body, fault="cut;after=9999"))
            received = await drain_cut(answer)
            assert b"[DONE]" not in b"".join(received)

        asyncio.run(main())

    def test_empty_streams(self):
        provider = Provider()
        assert provider.send(self.body, fault="empty-stream").body == b"data: [DONE]\n\n"
        assert provider.send(self.body, fault="no-bytes").body == b""
        assert (provider.ledger.empty, provider.ledger.prompt) == (2, 0)
        assert read(provider.send({**self.body, "stream": False})) == 0

    def test_refuse_rewrite(self):
        provider = Provider(faults="refuse-rewrite;n=1")
        assert [provider.chat(user()).status, provider.send(self.body).status] == [200, 400]
        assert provider.send(self.body).status == 200

    def test_slow_headers_can_be_cancelled(self):
        async def main() -> None:
            provider = Provider()
            opening = asyncio.ensure_future(
                provider.upstream.open(provider.call(self.body, fault="slow-headers;seconds=60"))
            )
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert (provider.ledger.requests, provider.ledger.cancelled) == (1, 1)

        asyncio.run(main())

    def test_hanging_up_in_the_middle_stops_production(self):
        async def main() -> None:
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

        asyncio.run(main())


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
