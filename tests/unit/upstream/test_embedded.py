import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.kit.errors import UpstreamUnavailable
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import IMAGE_TOKENS
from proxy.upstream.embedded import ANONYMOUS, account_name
from tests.examples import for_every
from tests.unit.upstream.embedded_client import (
    EDIT,
    HOUR,
    MARK,
    SEARCH,
    Provider,
    called,
    part,
    read,
    result,
    system,
    user,
    written,
)


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


@for_every([row[1:] for row in marked_positions()])
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


@for_every([row[1:] for row in REFUSED])
def test_markers_that_anthropic_refuses(messages, text):
    provider = Provider()
    reply = provider.chat(*messages)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert text in reply.json["error"]["message"]
    assert (provider.ledger.requests, provider.ledger.answered) == (1, 0)
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
        assert provider.upstream.ledgers[ANONYMOUS].answered == 1

    def test_the_deployments_own_key_is_the_account(self):
        provider = Provider()
        provider.deployment = replace(provider.deployment, api_key="ours")
        provider.chat(user())
        assert provider.upstream.ledgers[account_name("ours")].answered == 1


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

    async def test_readable_from_the_first_byte_on(self):
        provider = Provider()
        body = {"messages": [user("hello", cache_control=MARK)]}
        first = await provider.upstream.open(provider.call(body))
        second = await provider.upstream.open(provider.call(body))
        bodies = [b"".join([c async for c in answer.chunks()]) for answer in (first, second)]
        written = [orjson.loads(b)["usage"]["cache_creation_input_tokens"] for b in bodies]
        assert written[0] == written[1] > 0
        assert read(await provider.ask(body)) > 0

    def test_a_slow_first_byte_delays_the_entry(self):
        provider = Provider(first_byte_s=0.02)
        body = {"messages": [user("hello", cache_control=MARK)]}
        provider.send(body)
        provider.now = 1000.01
        assert read(provider.send(body)) == 0
        provider.now = 1000.03
        assert read(provider.send(body)) > 0

    async def test_given_up_before_the_first_byte_nothing_is_stored(self):
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
