"""Cache markers: number, place, form, order, and those of the client."""

import copy
from typing import Any

import pytest

from .cases import LONG, SHORT, SYSTEM, Body, agent, aider, edited, mark, parts, rules, run
from .checker import Rule


def test_markers_on_system_user_tool_and_last_tool() -> None:
    sent = mark(agent(), (0, LONG), (1, SHORT))
    sent["messages"][4]["cache_control"] = SHORT
    sent["tools"][1]["cache_control"] = LONG
    assert run(agent(), sent) == []


def test_at_most_four_markers() -> None:
    four = mark(aider(), (0, SHORT), (1, SHORT), (3, SHORT), (5, SHORT))
    assert run(aider(), four) == []
    assert rules(aider(), mark(four, (9, SHORT))) == {Rule.MARKER_COUNT}


def test_five_markers_of_the_clients_own_are_the_clients_business() -> None:
    five = mark(aider(), (0, SHORT), (1, SHORT), (3, SHORT), (5, SHORT), (9, SHORT))
    assert run(five, copy.deepcopy(five)) == []
    assert run(five, copy.deepcopy(five), mode="mark") == []


def test_one_hour_comes_before_five_minutes() -> None:
    assert run(aider(), mark(aider(), (0, LONG), (3, SHORT))) == []
    assert rules(aider(), mark(aider(), (0, SHORT), (3, LONG))) == {Rule.MARKER_ORDER}


def test_no_marker_where_the_provider_refuses_it() -> None:
    assistant = edited(aider(), 4, cache_control=SHORT)
    around_text = edited(aider(), 3, cache_control=SHORT)
    around_parts = edited(aider(), 3, content=parts("rename it"), cache_control=SHORT)
    for sent in (assistant, around_text, around_parts):
        assert rules(aider(), sent) == {Rule.MARKER_PLACE}
    in_tool = edited(agent(), 4, content=[{"type": "text", "text": "two", "cache_control": SHORT}])
    assert Rule.MARKER_PLACE in rules(agent(), in_tool)
    listed = edited(agent(), 4, content=parts("two"))
    assert rules(listed, in_tool) == {Rule.MARKER_PLACE}
    on_call = agent()
    on_call["messages"][2]["tool_calls"][1]["cache_control"] = SHORT
    first_tool = agent()
    first_tool["tools"][0]["cache_control"] = SHORT
    inside_tool = agent()
    inside_tool["tools"][1]["function"]["cache_control"] = SHORT
    for sent in (on_call, first_tool, inside_tool):
        assert rules(agent(), sent) == {Rule.MARKER_PLACE}


def test_images_and_files_of_the_user_can_be_marked_and_nothing_else_but_text() -> None:
    def with_part(part: Body, role: str = "user") -> Body:
        content = [*parts("look"), part]
        messages = (
            [{"role": "system", "content": content}] if role == "system" else [{"role": role, "content": content}]
        )
        return {**aider(), "messages": [*messages, {"role": "user", "content": "q"}]}

    picture, file = {"type": "image_url", "image_url": {"url": "u"}}, {"type": "file", "file": {"file_id": "f"}}
    noted = {"type": "text", "text": "a", "annotations": []}
    for part in (picture, file, noted):
        assert run(with_part(part), with_part({**part, "cache_control": SHORT})) == []
    sound, later = {"type": "input_audio", "input_audio": {}}, {"type": "later", "x": 1}
    for part in (sound, later, {**noted, "text": " "}):
        assert rules(with_part(part), with_part({**part, "cache_control": SHORT})) == {Rule.MARKER_PLACE}
    assert rules(with_part(picture, "system"), with_part({**picture, "cache_control": SHORT}, "system"))
    assert rules(with_part(picture), with_part({**picture, "cache_control": SHORT, "x": 1}))


def test_the_clients_marker_stays_on_its_part_when_the_reminder_comes_behind_it() -> None:
    original = edited(aider(), 9, content=[*parts("a"), {**parts("b")[0], "cache_control": SHORT}])
    sent = copy.deepcopy(original)
    sent["messages"][9]["content"] += parts("\n\nBe kind.")
    assert run(original, sent, mode="mark", reminder="Be kind.") == []
    dropped = copy.deepcopy(sent)
    dropped["messages"][9]["content"][1].pop("cache_control")
    earlier = copy.deepcopy(sent)
    earlier["messages"][9]["content"][0]["cache_control"] = earlier["messages"][9]["content"][1].pop("cache_control")
    for spoilt in (dropped, earlier):
        assert rules(original, spoilt, mode="mark", reminder="Be kind.") == {Rule.MARKER_LOST}
    # An order of lives that is the client's own stays its business.
    disordered = mark(original, (3, SHORT))
    disordered["messages"][9]["content"][1]["cache_control"] = LONG
    reminded = copy.deepcopy(disordered)
    reminded["messages"][9]["content"] += parts("\n\nBe kind.")
    assert run(disordered, reminded, mode="mark", reminder="Be kind.") == []


def test_no_marker_on_nothing() -> None:
    empty = edited(agent(), 4, content="")
    assert rules(empty, edited(empty, 4, cache_control=SHORT)) == {Rule.MARKER_PLACE}
    blank = edited(aider(), 9, content=[*parts("  "), {"type": "image_url", "image_url": {"url": "u"}}])
    marked = copy.deepcopy(blank)
    marked["messages"][9]["content"][0]["cache_control"] = SHORT
    assert rules(blank, marked) == {Rule.MARKER_PLACE}


@pytest.mark.parametrize("value", [{"type": "ephemeral", "ttl": "5m"}, {"type": "ephemeral", "x": 1}, True, {}])
def test_markers_have_one_form(value: Any) -> None:
    assert Rule.MARKER_FORM in rules(aider(), mark(aider(), (0, value)))


@pytest.mark.parametrize("profile", ["openai", "deepseek", "none", "openai-explicit"])
def test_no_cache_control_for_others(profile: str) -> None:
    assert rules(aider(), mark(aider(), (0, SHORT)), profile=profile) == {Rule.MARKER_PLACE}
    own = mark(aider(), (0, SHORT))
    assert run(own, copy.deepcopy(own), profile=profile) == []
    assert run(own, edited(aider(), 0, content=parts(SYSTEM)), profile=profile) == []


def test_breakpoints_are_for_the_explicit_profile() -> None:
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    sent = edited(aider(), 0, content=[{"type": "text", "text": SYSTEM, **point}])
    assert run(aider(), sent, profile="openai-explicit") == []
    for profile in ("anthropic", "openai", "none"):
        assert rules(aider(), sent, profile=profile) == {Rule.MARKER_PLACE}
    other = edited(aider(), 0, content=[{"type": "text", "text": SYSTEM, "prompt_cache_breakpoint": {"mode": "x"}}])
    assert rules(aider(), other, profile="openai-explicit") == {Rule.MARKER_FORM}
    around = edited(aider(), 3, **point)
    assert rules(aider(), around, profile="openai-explicit") == {Rule.MARKER_PLACE}


def test_mode_mark_keeps_the_clients_markers() -> None:
    own = mark(aider(), (0, LONG), (3, SHORT))
    assert run(own, mark(copy.deepcopy(own), (5, SHORT)), mode="mark") == []
    fewer = edited(mark(aider(), (0, LONG)), 3, content=parts("rename it"))
    assert rules(own, fewer, mode="mark") == {Rule.MARKER_LOST}
    assert run(own, fewer, mode="tier") == []
    assert Rule.MARKER_LOST in rules(own, mark(aider(), (0, SHORT), (3, SHORT)), mode="mark")


def test_a_marker_around_a_string_may_go_to_its_part() -> None:
    own = edited(aider(), 0, cache_control=SHORT)
    assert run(own, mark(aider(), (0, SHORT)), mode="mark") == []
    lost = edited(own, 0, content=parts(SYSTEM[:9], SYSTEM[9:]))
    assert rules(own, lost, mode="mark") == {Rule.MARKER_LOST}


def test_a_kept_marker_stands_where_it_stood() -> None:
    def marked_second(*texts: str) -> Body:
        content = parts(*texts)
        content[-2]["cache_control"] = SHORT
        return edited(aider(), 0, content=content)

    own = marked_second(SYSTEM[:17], SYSTEM[17:])
    assert run(own, marked_second(SYSTEM[:5], SYSTEM[5:17], SYSTEM[17:]), mode="mark") == []
    shifted = marked_second(SYSTEM[:17], SYSTEM[17:25], SYSTEM[25:])
    assert rules(own, shifted, mode="mark") == {Rule.MARKER_LOST}


def test_mode_tier_keeps_the_hour_that_the_client_asked_for() -> None:
    own = mark(aider(), (0, LONG), (3, SHORT))
    bare = edited(edited(aider(), 0, content=parts(SYSTEM)), 3, content=parts("rename it"))
    assert run(own, mark(copy.deepcopy(bare), (1, LONG), (9, SHORT))) == []
    assert rules(own, mark(copy.deepcopy(bare), (1, SHORT), (9, SHORT))) == {Rule.MARKER_LIFE}


def test_the_clients_marker_stays_on_its_tool_when_tools_are_reordered() -> None:
    own = agent()
    own["tools"][1]["cache_control"] = SHORT
    turned = {**agent(), "tools": own["tools"][::-1]}
    assert run(own, turned, tools_seen_reordered=True) == []
    bare = {**agent(), "tools": agent()["tools"][::-1]}
    assert rules(own, bare, tools_seen_reordered=True) == {Rule.MARKER_LOST}


def test_markers_of_the_client_in_places_of_its_own() -> None:
    own = edited(agent(), 2, cache_control=SHORT)
    own["messages"][2]["tool_calls"][0]["cache_control"] = SHORT
    for sent in (copy.deepcopy(own), agent()):
        assert run(own, sent) == []
    assert rules(own, agent(), mode="mark") == {Rule.MARKER_LOST}


def test_five_minutes_may_be_written_out_where_the_client_does() -> None:
    written_out = {"type": "ephemeral", "ttl": "5m"}
    own = mark(aider(), (0, written_out))
    bare = edited(aider(), 0, content=parts(SYSTEM))
    assert run(own, mark(bare, (1, written_out))) == []
