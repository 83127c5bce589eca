"""Context messages: moved, taken apart, and how that can go wrong."""

import copy

import pytest

from tests.examples import for_every

from . import words
from .cases import TAG, A, B, Body, C, aider, edited, files_message, parts, rules, run, split, with_messages
from .chats import EDITABLE_ACK, EDITABLE_OPENING, READ_ONLY_ACK, READ_ONLY_OPENING, SHOWN_ACK, SHOWN_OPENING, said
from .checker import Rule


def test_a_context_message_may_move_whole() -> None:
    old = aider()["messages"]
    assert run(aider(), with_messages(aider(), old[0], *old[5:7], *old[1:5], *old[7:])) == []
    assert run(aider(), with_messages(aider(), old[0], *old[3:9], *old[1:3], *old[9:])) == []


def test_a_context_message_may_not_move_anywhere() -> None:
    old = aider()["messages"]
    first = with_messages(aider(), *old[5:7], *old[:5], *old[7:])
    between = with_messages(aider(), *old[:4], *old[5:7], old[4], *old[7:])
    assert rules(aider(), first) == {Rule.SYSTEM_FIRST}
    assert rules(aider(), between) == {Rule.EXCHANGE}


def test_a_context_message_may_be_taken_apart() -> None:
    assert run(aider(), split()) == []


def test_a_taken_apart_message_may_be_cut_further() -> None:
    text = split()["messages"][1]["content"]
    assert run(aider(), edited(split(), 1, content=parts(text[:99], text[99:]))) == []
    assert rules(aider(), edited(split(), 1, content=parts(text[:-1], "\n"))) == {Rule.SPLIT}


def test_in_mode_mark_nothing_moves() -> None:
    assert rules(aider(), split(), mode="mark")
    old = aider()["messages"]
    assert rules(aider(), with_messages(aider(), old[0], *old[5:7], *old[1:5], *old[7:]), mode="mark")


@pytest.mark.parametrize("header", [words.SHOWN, words.READ_ONLY, words.MAP, words.DOCUMENT])
def test_the_header_keeps_the_clients_claim(header: str) -> None:
    assert rules(aider(), split(header)) == {Rule.CLAIM}


def test_shown_files_are_not_called_editable() -> None:
    old = aider()["messages"]
    shown = [said("user", files_message(SHOWN_OPENING, A, B, C)), said("assistant", SHOWN_ACK)]
    original = with_messages(aider(), *old[:5], *shown, *old[7:])
    for header, expected in ((words.SHOWN, set()), (words.EDITABLE, {Rule.CLAIM})):
        sent = split(header)
        at = next(i for i, m in enumerate(sent["messages"]) if m["content"].startswith(EDITABLE_OPENING))
        sent["messages"][at : at + 2] = [said("user", files_message(SHOWN_OPENING, B)), said("assistant", SHOWN_ACK)]
        assert rules(original, sent) == expected


def test_a_header_of_other_words_is_caught() -> None:
    assert Rule.ADDED in rules(aider(), split("These files are in the chat.\n\n"))
    assert rules(aider(), split(words.EDITABLE[:-1]))
    assert rules(aider(), split(words.EDITABLE + "Note: "))


def test_files_of_two_messages_do_not_mix() -> None:
    sent = split()
    sent["messages"][1]["content"] += "\nro.md\n```\n# R\n```\n"
    assert rules(aider(), sent)


def test_an_editable_file_does_not_hide_among_the_read_only_ones() -> None:
    sent = split()
    ack = next(i for i, m in enumerate(sent["messages"]) if m["content"] == READ_ONLY_ACK)
    moved = files_message(READ_ONLY_OPENING, "ro.md\n```\n# R\n```", A)
    sent["messages"][ack - 1]["content"] = moved
    sent["messages"][1]["content"] = words.EDITABLE + C + "\n"
    assert {Rule.ALTERED, Rule.LOST} & rules(aider(), sent)


def test_the_opening_and_the_acknowledgement_stay_with_the_last_part() -> None:
    sent = split()
    active = next(i for i, m in enumerate(sent["messages"]) if m["content"].startswith(EDITABLE_OPENING))
    without_opening = edited(sent, active, content=words.EDITABLE + B + "\n")
    without_opening["messages"][active + 1] = said("assistant", "Ok.")
    assert rules(aider(), without_opening) == {Rule.OPENING}
    other_answer = edited(sent, active + 1, content="Ok.")
    assert Rule.OPENING in rules(aider(), other_answer)
    gone = with_messages(sent, *sent["messages"][: active + 1], *sent["messages"][active + 2 :])
    assert Rule.OPENING in rules(aider(), gone)
    messages = sent["messages"]
    first = with_messages(
        sent, messages[0], *messages[active : active + 2], *messages[1:active], *messages[active + 2 :]
    )
    assert rules(aider(), first) == {Rule.OPENING}


def test_a_part_has_its_own_acknowledgement() -> None:
    messages = split()["messages"]
    assert rules(aider(), with_messages(split(), *messages[:2], *messages[3:])) == {Rule.ACKNOWLEDGEMENT}
    assert Rule.ACKNOWLEDGEMENT in rules(aider(), edited(split(), 2, content="Ok!"))


def test_a_file_is_sent_once() -> None:
    sent = split()
    assert rules(aider(), edited(sent, 1, content=words.EDITABLE + A + "\n")) == {Rule.LOST}
    twice = edited(sent, 1, content=words.EDITABLE + "\n\n".join([A, C, B]) + "\n")
    assert rules(aider(), twice) == {Rule.ADDED}
    again = with_messages(sent, *sent["messages"][:3], *sent["messages"][1:])
    assert rules(aider(), again) == {Rule.ADDED}
    assert rules(aider(), edited(sent, 1, content=words.EDITABLE + "\n\n".join([A, A, C]) + "\n"))


def test_a_file_is_not_cut_over_two_messages() -> None:
    sent = split()
    half = len(words.EDITABLE) + A.index("print")
    text = sent["messages"][1]["content"]
    torn = [said("user", text[:half]), said("assistant", "Ok."), said("user", words.EDITABLE + text[half:])]
    assert rules(aider(), with_messages(sent, sent["messages"][0], *torn, *sent["messages"][2:]))


def test_the_gap_between_files_stays() -> None:
    for gap in ("\n", "\n\n\n"):
        assert rules(aider(), edited(split(), 1, content=words.EDITABLE + A + gap + C + "\n"))
    assert rules(aider(), edited(split(), 1, content=words.EDITABLE + A + "\n\n" + C + "\n\n\n"))


def test_a_header_without_files_says_nothing() -> None:
    messages = split()["messages"]
    empty = [said("user", words.EDITABLE), said("assistant", "Ok.")]
    assert Rule.ADDED in rules(aider(), with_messages(split(), messages[0], *empty, *messages[1:]))


def test_repository_map_entries_may_be_taken_apart() -> None:
    opening = "Here are summaries of some files present in my git repository.\nDo not propose changes to these files.\n"
    ack = said("assistant", "Ok, I won't try and edit those files without asking first.")
    one, two = "src/a.py:\n⋮\n│def f():\n⋮", "README.md"
    prompt = said("user", "go")
    original = with_messages(aider(), said("system", "s"), said("user", files_message(opening, one, two)), ack, prompt)
    part = [said("user", words.MAP + two + "\n"), said("assistant", "Ok.")]
    sent = with_messages(aider(), said("system", "s"), *part, said("user", files_message(opening, one)), ack, prompt)
    assert run(original, sent) == []
    sent["messages"][1] = said("user", words.READ_ONLY + two + "\n")
    assert rules(original, sent) == {Rule.CLAIM}


def generic(opening: str, answer: str = "Understood, I will use them.") -> Body:
    text = opening + "\n\nsrc/a.py\n```python\nx = 1\n```\n\nsrc/b.md\n````\n```\n````\n"
    turn = [said("user", "hi"), said("assistant", "hello")]
    return with_messages(aider(), *turn, said("user", text), said("assistant", answer), said("user", "q"))


def split_generic(original: Body, opening: str, header: str) -> Body:
    """src/b.md under a header in front of the first turn, the opening and src/a.py behind it."""
    hi, hello, _, answer, *others = original["messages"]
    part = [said("user", header + "src/b.md\n````\n```\n````\n"), said("assistant", "Ok.")]
    rest = said("user", opening + "\n\nsrc/a.py\n```python\nx = 1\n```\n")
    return with_messages(original, *part, hi, hello, rest, answer, *others)


@pytest.mark.parametrize(
    "opening", ["Some files for you:", "Here are the current files of my project.", "Context:", ""]
)
def test_other_clients_files_may_move_and_be_taken_apart_where_the_opening_claims_nothing(opening: str) -> None:
    original = generic(opening)
    hi, hello, context, answer, prompt = original["messages"]
    assert run(original, with_messages(original, context, answer, hi, hello, prompt)) == []
    assert run(original, split_generic(original, opening, words.AS_SAID)) == []
    for name, header in words.HEADERS.items():
        expected = set() if name == "as-said" else {Rule.CLAIM}
        assert rules(original, split_generic(original, opening, header)) == expected


@for_every(
    [
        "These are read-only files:", "You may edit these files (reply with full new contents):",
        "These are OLD, OUTDATED versions of the files. Do NOT trust them:", "The first of these files is wrong:",
        "Don't look at these files:", "Files, sorted by relevance:", "Use these files.", "2 files:",
    ]
)  # fmt: skip
def test_what_an_opening_claims_is_said_of_all_files_or_of_none(opening: str) -> None:
    original = generic(opening)
    hi, hello, context, answer, prompt = original["messages"]
    assert run(original, with_messages(original, context, answer, hi, hello, prompt)) == []
    for header in words.HEADERS.values():
        assert rules(original, split_generic(original, opening, header))


@pytest.mark.parametrize("other", [files_message(READ_ONLY_OPENING, A), "Mine:\n\nsrc/z.py\n```\nz\n```\n"])
def test_a_header_that_means_a_message_of_files_needs_it_to_be_the_only_one(other: str) -> None:
    opening = "Some files for you:"
    original = generic(opening)
    original["messages"][-1:] = [said("user", other), said("assistant", READ_ONLY_ACK), said("user", "q")]
    hi, hello, context, answer, *others = original["messages"]
    assert run(original, with_messages(original, context, answer, hi, hello, *others)) == []
    assert rules(original, split_generic(original, opening, words.AS_SAID))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("src/a.py\n```\n1\n```", "src/a.py\n```\n2\n```"),
        ("src/a.py:1-9\n```\n1\n```", "src/a.py:20-29\n```\n2\n```"),
        ('<document source="n.md" part="1">\n1\n</document>', '<document source="n.md" part="2">\n2\n</document>'),
        ('<file path="n.md#1">\n1\n</file>', '<file path="n.md#2">\n2\n</file>'),
        ('<doc title="N (part 1 of 2)">\n1\n</doc>', '<doc title="N (part 2 of 2)">\n2\n</doc>'),
    ],
)
def test_the_pieces_of_one_source_stay_together(first: str, second: str) -> None:
    between = "src/z.py\n```\nz\n```"
    answer, prompt = said("assistant", "Noted."), said("user", "q")
    for entries, cut, is_allowed in (
        ((first, between, second), (between,), False),
        ((first, between, second), (second,), False),
        ((first, second, between), (first,), False),
        ((first, second, between), (first, second), True),
        ((first, second, between), (second, first), False),
        ((first, second, between), (between,), True),
    ):
        original = with_messages(aider(), said("user", files_message("Excerpts:\n", *entries)), answer, prompt)
        part = [said("user", words.AS_SAID + "\n\n".join(cut)), said("assistant", "Ok.")]
        left = [entry for entry in entries if entry not in cut]
        rest = said("user", files_message("Excerpts:\n", *left))
        assert (run(original, with_messages(original, *part, rest, answer, prompt)) == []) is is_allowed


def test_the_pieces_of_aiders_file_stay_together() -> None:
    again = A.replace("'a'", "'more of a'")
    original = edited(aider(), 5, content=files_message(EDITABLE_OPENING, A, B, again, C))
    for moved, rest, is_allowed in (
        ((C,), (A, B, again), True),
        ((B,), (A, again, C), False),
        ((A,), (B, again, C), False),
    ):
        sent = split()
        sent["messages"][1] = said("user", words.EDITABLE + "\n\n".join(moved) + "\n")
        at = next(i for i, m in enumerate(sent["messages"]) if m["content"].startswith(EDITABLE_OPENING))
        assert (run(original, edited(sent, at, content=files_message(EDITABLE_OPENING, *rest))) == []) is is_allowed


@pytest.mark.parametrize("answer", ["Why? Let me look at line 3 first.", "x" * 300, "Ok.\nI changed a.py:\n"])
def test_files_that_got_a_real_answer_are_a_turn(answer: str) -> None:
    original = generic("Some files for you:", answer)
    hi, hello, context, reply, prompt = original["messages"]
    assert Rule.ORDER in rules(original, with_messages(original, context, reply, hi, hello, prompt))


def test_a_question_with_a_code_block_is_a_turn() -> None:
    turn = said("user", "Why does this fail?\n\na.py\n```\nx\n```\n\nIt worked yesterday.")
    original = with_messages(
        aider(), said("user", "hi"), said("assistant", "hello"), turn, said("assistant", "Ok."), said("user", "q")
    )
    hi, hello, _, reply, prompt = original["messages"]
    assert Rule.ORDER in rules(original, with_messages(original, turn, reply, hi, hello, prompt))


def test_a_client_that_itself_speaks_our_words_is_left_in_peace() -> None:
    original = split()
    original["messages"].insert(-2, said("user", TAG))
    assert run(original, copy.deepcopy(original)) == []
    assert run(original, copy.deepcopy(original), mode="mark") == []
    again = with_messages(original, *original["messages"][:-2], said("user", TAG), *original["messages"][-2:])
    assert rules(original, again)


def test_a_part_is_a_plain_message() -> None:
    assert rules(aider(), edited(split(), 1, name="files")) == {Rule.ADDED}


def test_an_altered_context_message_is_named_once() -> None:
    text = aider()["messages"][5]["content"]
    assert rules(aider(), edited(aider(), 5, content=text.replace("print('a')", "print('z')"))) == {Rule.ALTERED}


def two_groups() -> Body:
    """0 system, 1-2 and 3-4 two messages under the same opening, which share b.py and c.py; 5 prompt."""
    files = [said("user", files_message(EDITABLE_OPENING, *entries)) for entries in ((A, B, C), (OTHER, B, C))]
    acks = [said("assistant", EDITABLE_ACK)] * 2
    context = [message for pair in zip(files, acks, strict=True) for message in pair]
    return with_messages(aider(), said("system", "s"), *context, said("user", "q"))


OTHER = A.replace("'a'", "'another a'")


@for_every(
    [
        ("b c b c A| O|", True), ("b c b c O| A|", True), ("b b A O c| c|", True), ("A b O b c| c|", True),
        ("A b c| b c O|", True), ("A c b| O b c|", True), ("b c A| O b c|", True), ("A b c| O c| b", False),
        ("b c A| b O| c", False), ("b c b A| O|", False), ("b c b c c A| O|", False), ("b c A| b c A|", False),
        ("A b c| A b c|", False),
    ]
)  # fmt: skip
def test_files_that_two_messages_hold_belong_to_either(order: str, is_whole: bool) -> None:
    original, sent = two_groups(), []
    for name in order.split():
        entry = {"A": A, "O": OTHER, "b": B, "c": C}[name[0]]
        if name.endswith("|"):
            sent += [said("user", files_message(EDITABLE_OPENING, entry)), said("assistant", EDITABLE_ACK)]
        else:
            sent += [said("user", words.EDITABLE + entry + "\n"), said("assistant", "Ok.")]
    system, *_, prompt = original["messages"]
    assert (run(original, with_messages(original, system, *sent, prompt)) == []) is is_whole
