"""Marker rules, refusals, partitions and usage fields that only some providers have."""

from dataclasses import replace

import pytest

from proxy.protocol.providers import PROFILES, pessimistic
from tests.unit.upstream.embedded_client import (
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

LONG = "word " * 1200
POINT = {"mode": "explicit"}
GRIDS = [p for p in PROFILES.values() if p.family == "grid"]


def cached(reply) -> int:
    usage = reply.usage
    return usage.get("prompt_tokens_details", {}).get("cached_tokens", usage.get("prompt_cache_hit_tokens", 0))


class TestEveryProfile:
    @pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
    def test_a_conversation_that_goes_on_is_read(self, profile):
        provider = Provider(profile)
        mark = {"cache_control": MARK} if profile.dialect.key == "cache_control" else {}
        messages = [system(LONG * 6), user([part("one", **mark)])]
        assert cached(provider.chat(*messages)) == 0
        again = cached(provider.chat(*messages, called("a"), result("a")))
        assert (again > 6000) == (profile.name != "none")

    @pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
    def test_who_refuses_a_marker_that_it_does_not_know(self, profile):
        known = profile.dialect.key == "cache_control"
        expected = 400 if profile.refuses_unknown and not known else 200
        assert Provider(profile).chat(user([part("hello", cache_control=MARK)])).status == expected
        assert Provider(profile).chat(user(), tools=[{**SEARCH, "cache_control": MARK}]).status == expected

    @pytest.mark.parametrize("profile", GRIDS, ids=lambda p: p.name)
    def test_members_that_break_the_prefix(self, profile):
        provider = Provider(profile)
        messages = [user(LONG * 6)]
        provider.chat(*messages)
        assert cached(provider.chat(*messages)) > 6000
        for name in profile.breaking.before_tools:
            assert cached(provider.chat(*messages, **{name: "other"})) == 0, name


class TestQwen:
    profile = PROFILES["qwen"]

    def test_markers_are_read_on_parts_alone(self):
        assert written(Provider(PROFILES["anthropic"]).chat(user(LONG, cache_control=MARK))) > 1000
        for message, writes in (
            (user(LONG, cache_control=MARK), False),
            (user([part(LONG, cache_control=MARK)]), True),
        ):
            details = Provider(self.profile).chat(message).usage["prompt_tokens_details"]
            assert (details["cache_creation_input_tokens"] > 1000) is writes

    def test_a_marker_stands_inside_a_tool_result(self):
        talk = [user("go"), called("a")]
        inside = result("a", [part(LONG, cache_control=MARK)])
        beside = result("a", LONG, cache_control=MARK)
        for message, writes in ((inside, True), (beside, False)):
            details = Provider(self.profile).chat(*talk, message).usage["prompt_tokens_details"]
            assert (details["cache_creation_input_tokens"] > 1000) is writes
        assert Provider(PROFILES["anthropic"]).chat(*talk, inside).status == 400
        assert written(Provider(PROFILES["bedrock"]).chat(*talk, inside)) > 1000

    def test_tools_carry_no_marker(self):
        tool = {**SEARCH, "function": {**SEARCH["function"], "description": LONG}, "cache_control": MARK}
        details = Provider(self.profile).chat(user(), tools=[tool]).usage["prompt_tokens_details"]
        assert details["cache_creation_input_tokens"] == 0

    async def test_an_entry_is_there_once_the_answer_is_complete(self):
        provider = Provider(self.profile)
        body = {"messages": [user([part(LONG, cache_control=MARK)])], "stream": True}
        answer = await provider.upstream.open(provider.call(body))
        chunks = answer.chunks()
        await anext(chunks)
        during = await provider.ask({**body, "stream": False})
        assert during.usage["prompt_tokens_details"]["cached_tokens"] == 0
        async for _ in chunks:
            pass
        after = await provider.ask({**body, "stream": False})
        assert after.usage["prompt_tokens_details"]["cached_tokens"] > 1000

    async def test_an_answer_that_is_given_up_leaves_no_entry(self):
        provider = Provider(self.profile)
        body = {"messages": [user([part(LONG, cache_control=MARK)])]}
        answer = await provider.upstream.open(provider.call({**body, "stream": True}))
        await anext(answer.chunks())
        await answer.aclose()
        assert (await provider.ask(body)).usage["prompt_tokens_details"]["cached_tokens"] == 0


class TestKimi:
    def test_writes_are_metered(self):
        usage = Provider(PROFILES["kimi"]).chat(user(LONG)).usage
        assert usage["cached_tokens"] == 0
        assert usage["prompt_tokens_details"]["cache_write_tokens"] > 1000

    def test_the_longer_life_is_asked_for_by_option(self):
        for options, found in (({}, False), ({"prompt_cache_options": {"ttl": "1h"}}, True)):
            provider = Provider(PROFILES["kimi"])
            provider.chat(user(LONG), **options)
            provider.now += 3000
            assert (cached(provider.chat(user(LONG), **options)) > 1000) is found
        assert Provider(PROFILES["kimi"]).chat(user(), prompt_cache_options={"ttl": "1d"}).status == 400


class TestBreakpoints:
    def test_the_longer_life_is_refused_where_it_is_not_sold(self):
        message = user([part(LONG, prompt_cache_breakpoint={**POINT, "ttl": "12h"})])
        explicit = PROFILES["openai-explicit"]
        assert Provider(explicit).chat(message).status == 400
        sold = Provider(replace(explicit, long_life_s=43200.0))
        sold.chat(message)
        sold.now += 40_000
        assert read(sold.chat(message)) > 1000

    def test_keys_are_caches_apart(self):
        provider = Provider(PROFILES["openai-explicit"])
        provider.chat(user(LONG), prompt_cache_key="a")
        assert read(provider.chat(user(LONG), prompt_cache_key="b")) == 0
        assert read(provider.chat(user(LONG), prompt_cache_key="a")) > 1000


class TestKeptApart:
    def test_mistral_may_want_a_key(self):
        provider = Provider(pessimistic(PROFILES["mistral"]))
        for key, found in (({}, False), ({"prompt_cache_key": "k"}, True)):
            provider.chat(user(LONG), **key)
            assert (cached(provider.chat(user(LONG), **key)) > 1000) is found

    def test_vertex_chooses_a_store_by_the_head_of_the_body(self):
        profile = replace(PROFILES["vertex"], stores=1000)
        message = user([part(LONG, cache_control=MARK)])
        provider = Provider(profile)
        provider.send({"messages": [message], "temperature": 0.5})
        assert read(provider.send({"messages": [message], "temperature": 0.5})) > 1000
        assert read(provider.send({"messages": [message], "temperature": 0.7})) > 1000
        assert read(provider.send({"temperature": 0.7, "messages": [message]})) == 0

    def test_what_thinking_breaks_on_claude(self):
        profile = PROFILES["anthropic"]
        head = system([part(LONG, cache_control=MARK)])
        for settled, found in ((profile, True), (pessimistic(profile), False)):
            provider = Provider(settled)
            provider.chat(head, user())
            assert (read(provider.chat(head, user(), reasoning_effort="high")) > 0) is found

    def test_an_explicit_default_is_the_same_as_none(self):
        provider = Provider(PROFILES["anthropic"])
        messages = [user([part(LONG, cache_control=MARK)])]
        provider.chat(*messages)
        assert read(provider.chat(*messages, thinking={"type": "disabled"}, tool_choice="auto")) > 1000
        assert read(provider.chat(*messages, thinking={"type": "enabled", "budget_tokens": 2000})) == 0
