"""Lines taken out of system messages, and the operator's reminder."""

import pytest

from . import words
from .cases import SYSTEM, TAG, Body, agent, aider, edited, parts, rules, run, with_messages
from .chats import said
from .checker import Rule


def relocated(at: int, body: Body | None = None) -> Body:
    body = body or aider()
    messages = [said("system", "You are careful.\nAnswer briefly.\n"), *body["messages"][1:]]
    messages.insert(at, said("user", TAG))
    return {**body, "messages": messages}


def test_a_line_may_move_to_the_tag_before_the_last_user_message() -> None:
    assert run(aider(), relocated(9)) == []
    as_part = relocated(9)
    prompt = as_part["messages"].pop(10)["content"]
    as_part["messages"][9]["content"] = parts(TAG, prompt)
    assert run(aider(), as_part) == []


def test_a_line_may_move_behind_the_newest_results() -> None:
    assert run(agent(), relocated(5, agent())) == []
    assert run(agent(), relocated(1, agent())) == []
    assert rules(agent(), relocated(4, agent())) >= {Rule.TAG}


@pytest.mark.parametrize("at", [1, 3, 5, 7, 8, 10, 11])
def test_the_tag_stands_nowhere_else(at: int) -> None:
    assert Rule.TAG in rules(aider(), relocated(at))


def test_the_tag_holds_what_was_taken_and_nothing_else() -> None:
    untouched = relocated(9)
    untouched["messages"][0] = said("system", SYSTEM)
    assert rules(aider(), untouched) == {Rule.ADDED}
    lost = relocated(9)
    del lost["messages"][9]
    assert Rule.ALTERED in rules(aider(), lost)
    for text in (TAG.replace("Saturday", "Sunday"), TAG.replace("Today", "And:\nToday"), "Today is Saturday.\n"):
        assert rules(aider(), edited(relocated(9), 9, content=text))


def test_there_is_one_tag() -> None:
    sent = relocated(9)
    sent["messages"].insert(9, said("user", TAG))
    assert Rule.TAG in rules(aider(), sent)


def test_lines_of_several_system_messages_share_the_tag_in_order() -> None:
    systems = [said("system", text) for text in (SYSTEM, "It is 12:00.\nGit: clean", "Now: 1")]
    original = with_messages(aider(), *systems, said("user", "q"))
    kept = [said("system", "You are careful.\nAnswer briefly.\n"), said("system", "Git: clean")]
    inner = "Today is Saturday.\nIt is 12:00.\nNow: 1"
    tag = said("user", words.TAG_OPEN + inner + words.TAG_CLOSE)
    assert run(original, with_messages(original, *kept, tag, said("user", "q"))) == []
    turned = said("user", words.TAG_OPEN + "It is 12:00.\nToday is Saturday.\nNow: 1" + words.TAG_CLOSE)
    assert rules(original, with_messages(original, *kept, turned, said("user", "q")))


@pytest.mark.parametrize("left", ["You are careful.\n", "You are careful."])
def test_a_last_line_moves_with_or_without_the_newline_before_it(left: str) -> None:
    original = with_messages(aider(), said("system", "You are careful.\nToday is Saturday."), said("user", "q"))
    sent = with_messages(aider(), said("system", left), said("user", TAG), said("user", "q"))
    assert run(original, sent) == []


def test_lines_taken_from_a_list_of_parts_leave_its_borders() -> None:
    original = edited(aider(), 0, content=parts("One.\nToday is Saturday.\n", "Two."))
    sent = relocated(9)
    sent["messages"][0] = {"role": "system", "content": parts("One.\n", "Two.")}
    assert run(original, sent) == []
    sent["messages"][0] = {"role": "system", "content": parts("One.\nTwo.")}
    assert rules(original, sent)
    sent["messages"][0] = {"role": "system", "content": parts("O", "ne.\n", "Two.")}
    assert run(original, sent) == []


def test_nothing_is_taken_out_of_a_user_message() -> None:
    original = edited(aider(), 3, content="rename it\nToday is Saturday.\nplease")
    sent = edited(original, 3, content="rename it\nplease")
    sent["messages"].insert(9, said("user", TAG))
    assert Rule.ALTERED in rules(original, sent)


def test_relocation_is_for_mode_tier() -> None:
    assert Rule.MODE in rules(aider(), relocated(9), mode="mark")


def test_the_operators_reminder_may_follow_the_last_user_message() -> None:
    sent = edited(aider(), 9, content="The block did not match.\n\nBe kind.")
    assert run(aider(), sent, reminder="Be kind.") == []
    assert rules(aider(), sent) == {Rule.ALTERED}
    assert rules(aider(), sent, reminder="Be quick.") == {Rule.ALTERED}
    assert rules(aider(), edited(aider(), 9, content="The block did not match.\nBe kind."), reminder="Be kind.")
    assert rules(aider(), edited(aider(), 3, content="rename it\n\nBe kind."), reminder="Be kind.")
    twice = edited(aider(), 9, content="The block did not match.\n\nBe kind.\n\nBe kind.")
    assert rules(aider(), twice, reminder="Be kind.")
    assert rules(aider(), sent, reminder="Be kind.", mode="observe") == {Rule.MODE}


def test_the_reminder_stands_behind_a_picture_too() -> None:
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    original = edited(aider(), 9, content=[*parts("see"), picture])
    for content in ([*parts("see\n\nBe kind."), picture], [*parts("see"), picture, *parts("Be kind.")]):
        assert run(original, edited(aider(), 9, content=content), reminder="Be kind.") == []
