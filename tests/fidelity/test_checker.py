"""Fields, tools, turns and tool calls: what passes, and what is caught."""

import copy
from typing import Any

import pytest

from tests.examples import for_every

from .cases import SHORT, SYSTEM, Body, agent, aider, edited, parts, rules, run, split, with_messages
from .chats import said
from .checker import Rule, check, replay_check


def test_bodies_are_not_changed_by_the_check() -> None:
    original, sent = aider(), split()
    run(original, sent)
    assert (original, sent) == (aider(), split())


@pytest.mark.parametrize("terms", [{"mode": "full"}, {"profile": "acme"}])
def test_an_unknown_mode_or_profile_is_refused(terms: Body) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        run(aider(), aider(), **terms)


def test_messages_that_are_no_messages_must_stay_what_they_are() -> None:
    odd: Body = {"model": "m", "messages": [1, {"no": "role"}]}
    assert run(odd, copy.deepcopy(odd)) == []
    assert rules(odd, {"model": "m", "messages": [1.0, {"no": "role"}]}) == {Rule.ALTERED}
    assert rules({"model": "m"}, {"model": "m", "messages": []}) == {Rule.ALTERED}


def test_replay_check_numbers_its_pairs() -> None:
    found = replay_check([(aider(), aider()), (aider(), agent())], mode="tier", profile="anthropic")
    assert found
    assert {number for number, _ in found} == {1}


def test_violations_quote_no_prompt_text() -> None:
    secret = "the launch code is 0451 " * 40
    original = with_messages(agent(), said("system", secret), said("user", secret))
    sent = with_messages(agent(), said("system", secret[1:]), said("user", secret + "!"))
    told = [str(violation) for violation in run(original, sent)]
    assert told
    assert all("0451" not in line and len(line) < 200 for line in told)


@for_every(
    [
        {"temperature": 1},
        {"temperature": True},
        {"temperature": "1.0"},
        {"top_p": 1.0},
        {"logit_bias": None},
        {"stream_options": {"include_usage": True}},
        {"prompt_cache_key": "k"},
        {"stratiform": {}},
        {"cache_control": SHORT},
        {"model": 7},
    ]
)
def test_fields_must_stay(change: Body) -> None:
    assert Rule.FIELD in rules(agent(), {**agent(), **change})


@pytest.mark.parametrize("name", ["temperature", "model"])
def test_fields_must_not_vanish(name: str) -> None:
    sent = agent()
    del sent[name]
    assert rules(agent(), sent) == {Rule.FIELD}


def test_the_order_of_keys_in_a_value_is_part_of_it() -> None:
    original, sent = {**agent(), "x": {"a": 1, "b": 2}}, {**agent(), "x": {"b": 2, "a": 1}}
    assert rules(original, sent) == {Rule.FIELD}


@pytest.mark.parametrize("mode", ["passthrough", "observe", "mark", "tier"])
def test_edits_that_every_mode_may_make(mode: str) -> None:
    original = {**aider(), "stratiform": {"files": []}, "stream_options": {"include_usage": False, "x": 1}}
    sent = {**aider(), "model": "openai/gpt-4o", "stream_options": {"x": 1, "include_usage": True}}
    assert check(original, sent, mode=mode, profile="none") == []


@pytest.mark.parametrize("options", [{"include_usage": True, "y": 1}, {}, None, {"include_usage": 1}])
def test_stream_options_gain_nothing_but_usage(options: Any) -> None:
    assert rules(aider(), {**aider(), "stream_options": options}) == {Rule.FIELD}


def test_stream_options_that_are_no_object_stay() -> None:
    odd = {**aider(), "stream_options": "usage"}
    assert run(odd, copy.deepcopy(odd)) == []
    assert rules(odd, {**aider(), "stream_options": {"include_usage": True}}) == {Rule.FIELD}


def test_routing_keys_of_ours_may_be_added() -> None:
    key = "st-" + "0f" * 16
    sent, told = {**aider(), "prompt_cache_key": key}, {**aider(), "prompt_cache_options": {"mode": "explicit"}}
    assert run(aider(), sent, profile="openai") == []
    assert run(aider(), told, profile="openai-explicit") == []
    assert run(aider(), {**aider(), "session_id": key}, profile="openrouter-anthropic") == []
    assert rules(aider(), sent, profile="openai", mode="observe") == {Rule.FIELD}
    assert rules(sent, {**sent, "prompt_cache_key": "other"}, profile="openai") == {Rule.FIELD}


@for_every(
    [
        ({"prompt_cache_key": "team-7"}, "openai"),
        ({"prompt_cache_key": "st-" + "0F" * 16}, "openai"),
        ({"prompt_cache_key": ["st-" + "0f" * 16]}, "openai"),
        ({"prompt_cache_key": "st-" + "0f" * 16}, "anthropic"),
        ({"prompt_cache_key": "st-" + "0f" * 16}, "none"),
        ({"session_id": "st-" + "0f" * 16}, "openai"),
        ({"prompt_cache_options": {"mode": "implicit"}}, "openai-explicit"),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}}, "openai-explicit"),
        ({"prompt_cache_options": {"mode": "explicit"}}, "openai"),
    ]
)
def test_no_other_key_is_added(added: dict[str, object], profile: str) -> None:
    assert rules(aider(), {**aider(), **added}, profile=profile) == {Rule.FIELD}


@pytest.mark.parametrize("mode", ["passthrough", "observe"])
@pytest.mark.parametrize(
    "sent", [split(), edited(aider(), 0, content=parts(SYSTEM)), edited(aider(), 9, cache_control=SHORT)]
)
def test_modes_that_forward_as_it_came_allow_no_edit(sent: Body, mode: str) -> None:
    assert rules(aider(), sent, mode=mode) == {Rule.MODE}


def test_tools_keep_their_order_without_leave() -> None:
    turned = {**agent(), "tools": agent()["tools"][::-1]}
    assert rules(agent(), turned) == {Rule.TOOLS}
    assert run(agent(), turned, tools_seen_reordered=True) == []
    assert rules(agent(), turned, tools_seen_reordered=True, mode="mark") == {Rule.TOOLS}


def test_tools_keep_the_order_of_their_keys_without_leave() -> None:
    sent = agent()
    sent["tools"][0]["function"]["parameters"] = {"a": 2.0, "b": 1}
    assert rules(agent(), sent) == {Rule.TOOLS}
    assert run(agent(), sent, tools_seen_reordered=True) == []


@pytest.mark.parametrize("value", [2, "2.0", None])
def test_tools_keep_their_values_always(value: Any) -> None:
    sent = agent()
    sent["tools"][1]["function"]["parameters"]["a"] = value
    assert rules(agent(), sent, tools_seen_reordered=True) == {Rule.TOOLS}
    assert Rule.TOOLS in rules(agent(), {**agent(), "tools": agent()["tools"][:1]}, tools_seen_reordered=True)


def test_a_turn_may_not_be_dropped_repeated_or_added() -> None:
    old = aider()["messages"]
    assert rules(aider(), with_messages(aider(), *old[:3], *old[4:])) == {Rule.LOST}
    assert rules(aider(), with_messages(aider(), *old[:4], *old[3:])) == {Rule.ADDED}
    assert rules(aider(), with_messages(aider(), *old[:4], said("user", "hm"), *old[4:])) == {Rule.ADDED}


def test_turns_keep_their_order() -> None:
    old = aider()["messages"]
    swapped = with_messages(aider(), *old[:3], *old[7:9], *old[5:7], *old[3:5], *old[9:])
    assert Rule.ORDER in rules(aider(), swapped)


def test_nothing_moves_behind_the_last_user_message() -> None:
    old = aider()["messages"]
    assert rules(aider(), with_messages(aider(), *old[:3], *old[4:], old[3])) == {Rule.TAIL}
    assert rules(aider(), with_messages(aider(), *old[:5], *old[7:], *old[5:7])) == {Rule.TAIL}
    assert rules(aider(), with_messages(aider(), *old, said("system", "Be quick."))) == {Rule.TAIL}


def test_the_trailing_reminder_stays_last() -> None:
    old = aider()["messages"]
    assert rules(aider(), with_messages(aider(), *old[:9], old[10], old[9]))


def test_roles_and_keys_stay() -> None:
    assert rules(aider(), edited(aider(), 0, role="developer"))
    assert rules(aider(), edited(aider(), 9, name="ann")) == {Rule.ALTERED}
    assert rules(aider(), edited(aider(), 4, refusal=None)) == {Rule.ALTERED}


def test_only_system_and_context_texts_are_cut() -> None:
    assert run(aider(), edited(aider(), 0, content=parts(SYSTEM[:9], SYSTEM[9:]))) == []
    assert run(aider(), edited(aider(), 9, content=parts("The block did not match."))) == []
    assert rules(aider(), edited(aider(), 9, content=parts("The block ", "did not match."))) == {Rule.SPLIT}
    assert rules(aider(), edited(aider(), 4, content=parts("Done."))) == {Rule.FORM}
    context = aider()["messages"][5]["content"]
    assert run(aider(), edited(aider(), 5, content=parts(context[:200], context[200:]))) == []
    assert run(aider(), edited(aider(), 5, content=parts(context[:200], context[200:])), mode="mark") == []


def test_a_cut_leaves_no_blank_part_and_joins_nothing() -> None:
    assert rules(aider(), edited(aider(), 0, content=parts(SYSTEM[:-1], "\n"))) == {Rule.SPLIT}
    original = edited(aider(), 0, content=parts("one ", "two"))
    assert rules(original, edited(aider(), 0, content=parts("one two"))) == {Rule.SPLIT}
    assert rules(original, edited(aider(), 0, content="one two")) == {Rule.FORM, Rule.SPLIT}
    assert run(original, edited(aider(), 0, content=parts("one ", "t", "wo"))) == []


def test_images_audio_and_unknown_parts_stay() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    content = [{"type": "text", "text": "see"}, picture, {"type": "later", "x": 1.0}]
    original = edited(aider(), 9, content=content)
    assert run(original, copy.deepcopy(original)) == []
    for spoilt in (content[:2], content[::-1], [*content[:2], {"type": "later", "x": 1}], [*content, picture]):
        assert Rule.ALTERED in rules(original, edited(aider(), 9, content=spoilt))


def test_thinking_blocks_stay() -> None:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    original = edited(aider(), 4, thinking_blocks=blocks)
    changed = edited(aider(), 4, thinking_blocks=[{**blocks[0], "signature": "t"}])
    assert rules(original, aider()) == {Rule.ALTERED}
    assert rules(original, changed) == {Rule.ALTERED}


def test_no_content_null_content_and_empty_content_differ() -> None:
    empty = edited(agent(), 2, content="")
    missing = edited(agent(), 2)
    del missing["messages"][2]["content"]
    null = agent()
    for left in (null, empty, missing):
        for right in (null, empty, missing):
            assert bool(run(left, right)) == (left is not right)


def test_tool_calls_stay_as_they_are() -> None:
    sent = agent()
    sent["messages"][2]["tool_calls"][0]["function"]["arguments"] = '{"n":1.0}'
    assert rules(agent(), sent) == {Rule.ALTERED}


def test_results_stay_behind_their_call_in_order() -> None:
    old = agent()["messages"]
    assert rules(agent(), with_messages(agent(), *old[:3], old[4], old[3])) == {Rule.TAIL}
    assert Rule.LOST in rules(agent(), with_messages(agent(), *old[:4]))
    original = with_messages(agent(), *old, said("assistant", "done"), said("user", "and?"))
    new = original["messages"]
    torn = with_messages(agent(), *new[:3], new[5], *new[3:5], new[6])
    assert Rule.TOOL_PAIR in rules(original, torn)


def test_a_context_message_does_not_stand_between_call_and_result() -> None:
    context = aider()["messages"][5:7]
    old = agent()["messages"]
    original = with_messages(agent(), old[0], *context, *old[1:], said("assistant", "done"), said("user", "and?"))
    new = original["messages"]
    assert run(original, with_messages(agent(), new[0], *new[3:8], *context, new[8])) == []
    assert Rule.TOOL_PAIR in rules(original, with_messages(agent(), new[0], *new[3:5], *context, *new[5:]))
    assert Rule.TOOL_PAIR in rules(original, with_messages(agent(), new[0], *new[3:6], *context, *new[6:]))


def test_a_tools_text_stays_a_string_but_where_only_parts_can_be_marked() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    sent = edited(agent(), 4, content=[{"type": "text", "text": "two", **mark}])
    assert run(agent(), sent, profile="openai-explicit") == []
    assert rules(agent(), edited(agent(), 4, content=parts("two"))) == {Rule.FORM}
