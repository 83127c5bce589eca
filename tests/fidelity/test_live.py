"""Each clause of the checker for panels and histories can fail, and a valid form breaks none."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.examples import for_every

from . import live_words as words
from .live import LiveSession, LiveTerms, check_live
from .live_chats import NOW_S, Body, LiveChat, LivePanel, Stretch, footer_pair, panel_pair, summary_pair
from .live_frozen import Minimums
from .live_history import Message
from .live_strategies import calling, result
from .violations import Rule

TERMS = LiveTerms(NOW_S)
SYSTEM = {"role": "system", "content": "Be careful."}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def plain(*messages: Message) -> Stretch:
    return Stretch(messages, messages)


MISSING = words.result_message("y", words.PLACEHOLDER)
JOINED = calling("a", "b", content="Look.\nHere.")
TREE = LivePanel("tree", "Files", "a.py\nb.py", NOW_S - 500)
TODO = LivePanel("todo", "", "- write", NOW_S - 100, place=3)
GIT = LivePanel("git", "git status", "## main", NOW_S, place=14)


def live() -> LiveChat:
    """0-1 exchange, 2 question, 3-4 short, 5-7 calls with a placeholder, ... , 14 end of a tool loop."""
    both = [result("a", "1"), result("b", "2")]
    return LiveChat(
        systems=(SYSTEM,),
        stretches=(
            plain(user("one"), said("eins")),
            Stretch((user("two"), said("zwei")), (user("two"),), ((1, "deleted", ""),)),
            Stretch((user("three"), said("drei")), (user("three"), said("short")), ((1, "summarized", "short"),)),
            Stretch((user(""), said("more")), (said("more"),)),
            Stretch(
                (calling("x", "y"), result("x", "X"), said("four")),
                (calling("x", "y"), result("x", "X"), MISSING, said("four")),
            ),
            Stretch(
                (user("five"), calling("a", content="Look."), calling("b", content="Here."), *both),
                (user("five"), JOINED, *both),
            ),
        ),
        panels=(TREE, TODO, replace(GIT, place=None), LivePanel("late", "", "x", NOW_S, place=14)),
        asked=((3, NOW_S - 200), (10, NOW_S - 50)),
    )


def frozen() -> LiveChat:
    """Two frozen parts of two messages each, and three messages behind them."""
    talk = (plain(user("one"), said("eins")), plain(user("two"), said("zwei")), plain(user("three"), said("drei")))
    minimums = {"chunk_messages": 2, "chunk_tokens": 2, "keep_messages": 3, "keep_tokens": 3}
    return LiveChat(
        (SYSTEM,), (*talk, plain(user("now"))), (TREE,), ((6, NOW_S),), (2, 2), section={"detach": minimums}
    )


def compacted(summary: str = "They counted.") -> LiveChat:
    """A summary of the first exchange."""
    talk = (plain(user("one"), said("eins")), plain(user("two"), said("zwei")), plain(user("three")))
    return LiveChat((SYSTEM,), talk, asked=(), compacted=2, summary=summary, section={"compaction": True})


LOOSE = LiveTerms(NOW_S, tokens=lambda message: 1, allows_compaction=True)


def rules(original: Body, sent: Body, terms: LiveTerms = LOOSE) -> set[Rule]:
    return {violation.rule for violation in check_live(original, sent, terms)}


@pytest.mark.parametrize("make", [live, frozen, compacted, lambda: compacted("")])
def test_a_valid_form_is_faithful(make: Callable[[], LiveChat]) -> None:
    chat = make()
    assert check_live(chat.original(), chat.sent(), LOOSE) == []


def test_bodies_are_not_changed_by_the_check() -> None:
    original, sent = live().original(), live().sent()
    before = copy.deepcopy((original, sent))
    check_live(original, sent, TERMS)
    assert (original, sent) == before


def test_violations_quote_no_prompt_text() -> None:
    original, sent = live().original(), live().sent()
    for message in sent["messages"]:
        message["content"] = str(message["content"])[1:]
    told = [str(violation) for violation in check_live(original, sent, TERMS)]
    assert told
    assert all("eins" not in line and "a.py" not in line for line in told)


def at_text(sent: Body, text: str) -> int:
    """Where a message with this text stands."""
    return next(at for at, message in enumerate(sent["messages"]) if text in str(message["content"]))


def without(text: str, count: int = 1) -> Callable[[Body], None]:
    """So many messages less, from the one with this text on."""

    def spoil(sent: Body) -> None:
        at = at_text(sent, text)
        del sent["messages"][at : at + count]

    return spoil


def moved(text: str, to: str | None, count: int = 1) -> Callable[[Body], None]:
    """So many messages in front of another one; None: to the end."""

    def spoil(sent: Body) -> None:
        at = at_text(sent, text)
        run = sent["messages"][at : at + count]
        del sent["messages"][at : at + count]
        there = len(sent["messages"]) if to is None else at_text(sent, to)
        sent["messages"][there:there] = run

    return spoil


def put(messages: list[Message], before: str | None) -> Callable[[Body], None]:
    """More messages in front of the one with this text; None: at the end."""

    def spoil(sent: Body) -> None:
        there = len(sent["messages"]) if before is None else at_text(sent, before)
        sent["messages"][there:there] = copy.deepcopy(messages)

    return spoil


def changed(text: str, to: str) -> Callable[[Body], None]:
    """Another text in its place, wherever it stands, calls included."""

    def spoil(sent: Body) -> None:
        for message in sent["messages"]:
            if isinstance(message["content"], str):
                message["content"] = message["content"].replace(text, to)

    return spoil


def in_call(call_id: str, **members: Any) -> Callable[[Body], None]:
    """A call of this id with other members."""

    def spoil(sent: Body) -> None:
        for message in sent["messages"]:
            for call in message.get("tool_calls", ()):
                if call["id"] == call_id:
                    call |= {name: value for name, value in members.items() if name == "id"}
                    call["function"] |= {name: value for name, value in members.items() if name != "id"}

    return spoil


LATE = panel_pair(LivePanel("late", "", "x", NOW_S), is_first=False)
STAMPS = words.iso(NOW_S - 500), words.iso(NOW_S - 100), words.iso(NOW_S - 200)
SPOILT: list[tuple[str, Callable[[Body], None], Rule]] = [
    ("a panel is missing", without(STAMPS[1], 2), Rule.PANEL),
    ("a panel stands twice", put(LATE, "five"), Rule.PANEL),
    ("a panel that nobody has", put(panel_pair(LivePanel("x", "", "x", NOW_S), is_first=False), "five"), Rule.PANEL),
    ("a panel with another text", changed("- write", "- read"), Rule.PANEL),
    ("a panel under another header", changed("] git status =", "] git stash ="), Rule.PANEL),
    ("a panel under another id", changed("[todo]", "[to]"), Rule.PANEL),
    ("a call with other arguments", in_call("panel_todo", arguments='{"id": "todo"}'), Rule.PANEL),
    ("a call of another id", in_call("panel_todo", id="panel_x"), Rule.PANEL),
    ("a call of another tool", in_call("panel_todo", name="panel"), Rule.ADDED),
    ("a call without its result", without("- write"), Rule.PANEL),
    ("a result without its call", without(STAMPS[1]), Rule.PANEL),
    ("a call and its result the other way round", moved("- write", STAMPS[1]), Rule.PANEL),
    ("a time that has not come", changed(STAMPS[1], words.iso(NOW_S + 1)), Rule.STAMP),
    ("a time of no form", changed(STAMPS[1], "2026-02-30T00:00:00Z"), Rule.STAMP),
    ("a time before 2020", changed(STAMPS[1], "2019-12-31T23:59:59Z"), Rule.STAMP),
    ("words of its own above a panel", changed(words.STAMP + STAMPS[1], "See below."), Rule.STAMP),
    ("no words at the beginning", changed(words.BEGINNING + "\n\n", ""), Rule.STAMP),
    ("the words at the beginning twice", changed(STAMPS[1], f"\n\n{words.BEGINNING}"), Rule.STAMP),
    ("no end of the panels", without(words.FOOTER, 2), Rule.FOOTER),
    ("the end of the panels twice", put(footer_pair(), "five"), Rule.FOOTER),
    ("the end of the panels within them", moved(words.FOOTER, "## main", 2), Rule.FOOTER),
    ("the end of the panels behind others", moved(words.FOOTER, "five", 2), Rule.FOOTER),
    ("other words at the end", changed(words.FOOTER, "End."), Rule.FOOTER),
    ("other words at the end, answered", changed(words.FOOTER_ANSWER, "Done."), Rule.FOOTER),
    ("the system text is repeated", put([user(words.REPEAT + "Be careful."), said(words.REPEAT_ANSWER)], "one"),
     Rule.FOOTER),
    ("a panel between a question and its answer", moved(STAMPS[1], "eins", 2), Rule.EXCHANGE),
    ("a panel between calls and results", moved(STAMPS[1], "X", 2), Rule.TOOL_PAIR),
    ("a panel between two results", moved(STAMPS[1], words.PLACEHOLDER, 2), Rule.TOOL_PAIR),
    ("a panel between the prompt and its calls", moved(STAMPS[1], "Look.", 2), Rule.TAIL),
    ("a time in front of an answer", put([user(words.DATETIME + STAMPS[2])], "more"), Rule.DATETIME),
    ("a time at the end", put([user(words.DATETIME + words.iso(NOW_S))], None), Rule.DATETIME),
    ("a time that is none", changed(words.DATETIME + STAMPS[2], words.DATETIME + "now"), Rule.DATETIME),
    ("a later time in front of an earlier one", changed(words.DATETIME + STAMPS[2], words.DATETIME + words.iso(NOW_S)),
     Rule.DATETIME),
    ("a message is missing", without("four"), Rule.LOST),
    ("a message stands twice", put([said("eins")], "two"), Rule.ORDER),
    ("two messages changed places", moved("three", "two"), Rule.ORDER),
    ("a message says something else", changed("four", "for"), Rule.ALTERED),
    ("a message that nobody sent", put([said("Sure.")], "two"), Rule.ADDED),
    ("a summary that nobody sent", put(summary_pair("x"), "one"), Rule.COMPACTED),
    ("a deleted message", put([said("zwei")], "three"), Rule.REMOVED),
    ("an empty message", put([user("")], "more"), Rule.REMOVED),
    ("a summarized message says what it said", changed("short", "drei"), Rule.SUMMARIZED),
    ("a summarized message is missing", without("short"), Rule.SUMMARIZED),
    ("a missing result is not replaced", without(words.PLACEHOLDER), Rule.REPAIRED),
    ("a missing result is replaced by other words", changed(words.PLACEHOLDER, "Nothing."), Rule.REPAIRED),
    ("a joined message without one text", changed("Look.\nHere.", "Look."), Rule.MERGED),
    ("a joined call with other arguments", in_call("b", arguments="{}"), Rule.MERGED),
    ("a joined message is missing", without("Look."), Rule.MERGED),
    ("another system message", changed("Be careful.", "Be quick."), Rule.ALTERED),
]  # fmt: skip


@for_every([case[1:] for case in SPOILT])
def test_what_is_spoilt_is_called_by_its_rule(spoil: Callable[[Body], None], rule: Rule) -> None:
    chat = live()
    sent = copy.deepcopy(chat.sent())
    spoil(sent)
    assert rule in rules(chat.original(), sent)


def test_fields_and_tools_are_the_clients() -> None:
    original, sent = live().original(), live().sent()
    own = {"type": "function", "function": {"name": "read"}}
    ours = words.DECLARATION
    original["tools"] = [own]
    for tools, found in (([own], set()), ([ours, own], set()), ([own, ours], {Rule.TOOLS}), ([], {Rule.TOOLS})):
        assert rules(original, {**sent, "tools": tools}) == found
    other = {"type": "function", "function": {**ours["function"], "description": "Shows."}}
    assert rules(original, {**sent, "tools": [other, own]}) == {Rule.TOOLS}
    assert rules(live().original(), {**sent, "tools": [ours]}) == set()
    bare = {"model": "m", "messages": [user("one")]}
    assert rules({**bare, "tools": [own]}, {**bare, "tools": [ours, own]}) == {Rule.TOOLS}
    assert rules({**original, "seed": 1}, {**sent, "tools": [own]}) == {Rule.FIELD}
    assert rules(original, {**sent, "tools": [own], "stratiform": {"panels": []}}) == {Rule.FIELD}


def test_a_request_without_the_fields_keeps_every_message() -> None:
    messages = [user(""), calling("a"), user("now")]
    original = {"model": "m", "messages": messages, "stratiform": {"session": "s", "detach": True}}
    assert rules(original, {"model": "m", "messages": messages}) == set()
    assert rules(original, {"model": "m", "messages": messages[2:]}) == {Rule.LOST}
    original["stratiform"] = {"panels": []}
    assert rules(original, {"model": "m", "messages": messages[2:]}) == set()


def test_a_panel_stands_in_front_where_the_order_is_the_original_one() -> None:
    chat = live()
    front = replace(chat, panels=tuple(replace(panel, place=None) for panel in chat.panels))
    strict = replace(LOOSE, is_chronological=False)
    assert rules(front.original(), front.sent(), strict) == set()
    assert rules(chat.original(), chat.sent(), strict) == {Rule.PLACE}
    sent = front.sent()
    moved(words.iso(NOW_S - 100), words.FOOTER, 2)(sent)
    assert rules(front.original(), sent, strict) == {Rule.STAMP}
    assert rules(front.original(), sent) == set()


@pytest.mark.parametrize(("kind", "found"), [("enabled", {Rule.TAIL}), ("adaptive", {Rule.TAIL}), ("disabled", set())])
def test_no_panel_stands_behind_results_where_the_model_thinks(kind: str, found: set[Rule]) -> None:
    chat = replace(live(), more={"thinking": {"type": kind}})
    assert rules(chat.original(), chat.sent()) == found


def test_the_question_needs_its_time_where_panels_are_shown() -> None:
    chat = LiveChat((SYSTEM,), (plain(user("now")),), (TREE,), ((0, NOW_S),))
    assert rules(chat.original(), chat.sent()) == set()
    assert rules(chat.original(), replace(chat, asked=()).sent()) == {Rule.DATETIME}
    assert rules(replace(chat, panels=()).original(), replace(chat, panels=(), asked=()).sent()) == set()


def test_the_system_text_may_be_repeated_where_the_operator_wants_that() -> None:
    sent = live().sent()
    put([user(words.REPEAT + "Be careful."), said(words.REPEAT_ANSWER)], "one")(sent)
    repeats = replace(LOOSE, repeats=True)
    assert rules(live().original(), sent, repeats) == set()
    changed(words.REPEAT + "Be careful.", words.REPEAT + "Be quick.")(sent)
    assert rules(live().original(), sent, repeats) == {Rule.FOOTER}


FROZEN = [
    ("another text", changed("[user]: one", "[user]: won"), Rule.FROZEN),
    ("another count", changed("[history_1] Chat (2)", "[history_1] Chat (3)"), Rule.FROZEN),
    ("no count", changed("[history_1] Chat (2)", "[history_1] Chat"), Rule.FROZEN),
    ("another number", changed("[history_1] Chat (2)", "[history_1] Chat (9)"), Rule.FROZEN),
    ("no header", changed("[history_2] Chat (2) =======", "[history_2]"), Rule.PANEL),
    ("the parts in another order", moved("zwei", "eins", 1), Rule.PANEL),
    ("a part is missing", without("history_1", 1), Rule.FROZEN),
    ("a frozen message is sent, too", put([user("two"), said("zwei")], "three"), Rule.FROZEN),
    ("a part within the conversation", moved("zwei", "drei", 1), Rule.FROZEN),
]


@for_every([case[1:] for case in FROZEN])
def test_what_is_spoilt_of_a_frozen_part_is_caught(spoil: Callable[[Body], None], rule: Rule) -> None:
    chat = frozen()
    sent = copy.deepcopy(chat.sent())
    spoil(sent)
    assert rule in rules(chat.original(), sent)


def test_a_pair_of_a_frozen_part_stands_in_front_of_the_conversation() -> None:
    chat = frozen()
    sent = chat.sent()
    at = at_text(sent, "zwei") - 1
    pair = sent["messages"][at : at + 2]
    del sent["messages"][at : at + 2]
    sent["messages"][-2:-2] = pair
    assert Rule.FROZEN in rules(chat.original(), sent)


@pytest.mark.parametrize("name", list(Minimums.__slots__))
def test_each_minimum_of_freezing_holds(name: str) -> None:
    chat = frozen()
    wish = {**chat.section["detach"]}
    wish[name] += 1
    assert rules({**chat.original(), "stratiform": {"panels": [], "detach": wish}}, chat.sent()) >= {Rule.FROZEN}


@pytest.mark.parametrize(
    ("wish", "own", "found"),
    [
        (None, None, {Rule.FROZEN}),
        (False, Minimums(1, 1, 1, 1), {Rule.FROZEN}),
        (None, Minimums(1, 1, 1, 1), set()),
        (True, Minimums(1, 1, 1, 1), set()),
        (True, None, {Rule.FROZEN}),
    ],
)
def test_nothing_is_frozen_unless_somebody_wants_it(wish: Any, own: Minimums | None, found: set[Rule]) -> None:
    chat = replace(frozen(), section={"detach": wish})
    assert rules(chat.original(), chat.sent(), replace(LOOSE, detach=own)) == found


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]},
        {"role": "user", "content": "one", "audio": {"id": "a"}},
    ],
)
def test_what_is_no_text_is_not_frozen(message: Message) -> None:
    chat = frozen()
    original = chat.original()
    original["messages"][1] = message
    assert Rule.FROZEN in rules(original, chat.sent())


def test_a_part_ends_in_front_of_a_user_message() -> None:
    chat = replace(frozen(), frozen=(3,))
    assert rules(chat.original(), chat.sent()) == {Rule.FROZEN}


COMPACTED = [
    ("a summary at another place", moved(words.SUMMARY, "three", 2)),
    ("two summaries", put(summary_pair("x"), words.SUMMARY)),
    ("another answer", changed(words.SUMMARY_ANSWER, "Ok.")),
    ("a message less", without("two", 2)),
    ("what stays begins with an answer", without("two")),
]


@pytest.mark.parametrize("spoil", [case[1] for case in COMPACTED], ids=[case[0] for case in COMPACTED])
def test_what_is_spoilt_of_a_compaction_is_caught(spoil: Callable[[Body], None]) -> None:
    chat = compacted()
    sent = copy.deepcopy(chat.sent())
    spoil(sent)
    assert Rule.COMPACTED in rules(chat.original(), sent)


@pytest.mark.parametrize("summary", ["", "They counted."])
@pytest.mark.parametrize(("wish", "allows"), [(True, False), (False, True), (None, True)])
def test_nothing_is_left_out_unless_both_sides_allow_it(summary: str, wish: Any, allows: bool) -> None:
    chat = replace(compacted(summary), section={"compaction": wish})
    assert Rule.LOST in rules(chat.original(), chat.sent(), replace(LOOSE, allows_compaction=allows))


def test_a_system_message_is_never_left_out() -> None:
    chat = compacted()
    original = chat.original()
    original["messages"].insert(3, {"role": "system", "content": "Be brief."})
    assert rules(original, chat.sent()) == {Rule.LOST}


def test_a_session_keeps_its_times() -> None:
    later = replace(LOOSE, now_s=NOW_S + 60)
    first = LiveChat((SYSTEM,), (plain(user("one")),), (replace(TREE, stamp_s=NOW_S),), ((0, NOW_S),))
    talk = (plain(user("one"), said("eins")), plain(user("two")))
    kept = replace(first, stretches=talk, asked=((0, NOW_S), (2, NOW_S + 60)))

    def found(second: LiveChat) -> set[Rule]:
        session = LiveSession()
        assert session.check(first.original(), first.sent(), LOOSE) == []
        return {violation.rule for violation in session.check(second.original(), second.sent(), later)}

    assert found(kept) == set()
    assert found(replace(kept, panels=(replace(TREE, stamp_s=NOW_S + 60),))) == {Rule.STAMP}
    changed_tree = replace(TREE, content="c.py", stamp_s=NOW_S + 60)
    assert found(replace(kept, panels=(changed_tree,))) == set()
    assert found(replace(kept, panels=(replace(changed_tree, stamp_s=NOW_S),))) == {Rule.STAMP}
    assert found(replace(first, asked=((0, NOW_S + 60),))) == {Rule.DATETIME}
    assert found(replace(first, asked=((0, NOW_S),))) == set()
