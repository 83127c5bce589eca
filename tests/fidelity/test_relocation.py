"""Lines taken out of system messages, and the operator's reminder."""

import pytest

from tests.examples import for_every

from . import words
from .cases import SYSTEM, TAG, Body, agent, aider, edited, parts, rules, run, with_messages
from .chats import said
from .checker import Rule, replay_check


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


def test_a_part_may_go_with_its_blank_line_where_the_next_one_begins_with_one() -> None:
    texts = "It is 12:00.\n\n", "\nYou are careful."
    original = with_messages(aider(), said("system", parts(*texts)), said("user", "q"))
    tag = said("user", words.TAG_OPEN + "It is 12:00.\n" + words.TAG_CLOSE)
    assert run(original, with_messages(original, said("system", parts(texts[1])), tag, said("user", "q"))) == []
    for left in ("You are careful.", "\n\nYou are careful."):
        sent = with_messages(original, said("system", parts(left)), tag, said("user", "q"))
        assert rules(original, sent) & {Rule.ALTERED, Rule.SPLIT}


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
    assert run(aider(), sent, reminder="Be kind.", mode="observe") == []
    assert run(aider(), sent, reminder="Be kind.", mode="passthrough") == []
    assert rules(aider(), sent, mode="passthrough") == {Rule.MODE}


def test_the_reminder_stands_behind_a_picture_too() -> None:
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    original = edited(aider(), 9, content=[*parts("see"), picture])
    for content in ([*parts("see\n\nBe kind."), picture], [*parts("see"), picture, *parts("Be kind.")]):
        assert run(original, edited(aider(), 9, content=content), reminder="Be kind.") == []


def test_the_tag_may_be_the_last_part_of_a_user_turn_directly_before() -> None:
    original = with_messages(aider(), said("system", SYSTEM), said("user", "one"), said("user", "two"))
    system = said("system", "You are careful.\nAnswer briefly.\n")
    behind = {"role": "user", "content": parts("one", TAG)}
    assert run(original, with_messages(original, system, behind, said("user", "two"))) == []
    longer = with_messages(aider(), *original["messages"][:2], said("assistant", "?"), said("user", "two"))
    assert Rule.TAG in rules(longer, with_messages(longer, system, behind, *longer["messages"][2:]))


def test_nothing_stands_between_the_tag_and_the_last_user_message() -> None:
    sent = relocated(9)
    messages = sent["messages"]
    context = messages[5:7]
    moved = with_messages(sent, *messages[:5], *messages[7:10], *context, *messages[10:])
    assert rules(aider(), moved) == {Rule.TAG}
    both = with_messages(sent, *messages[:9], *messages[9:10], *messages[9:])
    assert Rule.TAG in rules(aider(), both)
    as_part = with_messages(sent, *messages[:10], {"role": "user", "content": parts(TAG, "The block did not match.")})
    assert Rule.TAG in rules(with_messages(aider(), *aider()["messages"][:10]), as_part)


def test_taking_lines_out_leaves_no_blank_part() -> None:
    original = edited(aider(), 0, content=parts("Be kind.\n", "Today is Saturday.\n"))
    sent = relocated(9)
    sent["messages"][0] = {"role": "system", "content": parts("Be kind.\n")}
    assert run(original, sent) == []
    sent["messages"][0] = {"role": "system", "content": parts("Be kind.\n", "")}
    assert rules(original, sent) == {Rule.SPLIT}


def test_parts_stay_parts_beside_the_tag() -> None:
    original = edited(aider(), 9, content=parts("The block did not match."))
    sent = relocated(9)
    assert rules(original, sent) == {Rule.FORM}
    sent["messages"][10] = said("user", "The block did not match.\n\nBe kind.")
    assert rules(original, sent, reminder="Be kind.") == {Rule.FORM}


def test_an_empty_tag_is_no_tag() -> None:
    sent = aider()
    sent["messages"].insert(9, said("user", "<stratiform-context>\n</stratiform-context>"))
    assert rules(aider(), sent) == {Rule.ADDED}


def test_the_reminder_needs_the_users_own_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    original = edited(aider(), 9, content=[picture])
    assert rules(original, edited(aider(), 9, content=[{**picture, "x": 1}]), reminder="Be kind.") == {Rule.ALTERED}


def test_of_two_equal_system_messages_one_may_be_in_the_tag() -> None:
    date, rules_ = said("system", "Today is Saturday."), said("system", "Answer briefly.")
    original = with_messages(aider(), date, rules_, date, said("user", "q"))
    assert run(original, with_messages(aider(), rules_, date, said("user", TAG), said("user", "q"))) == []
    assert rules(original, with_messages(aider(), rules_, date, said("user", "q"))) == {Rule.LOST}
    assert rules(original, with_messages(aider(), rules_, said("user", TAG), said("user", "q")))


# Documents inside a system text.

DOCUMENTS = ["<document id='1'>\none\n</document>\n\n", "<document id='2'>\ntwo\n</document>\n\n"]


def retrieval() -> Body:
    text = "Help.\nToday is Saturday.\n\n# Context\n\n" + "".join(DOCUMENTS) + "# Rules\nBe exact.\n"
    return with_messages(aider(), said("system", text), said("user", "q"))


def documents_behind(*texts: str) -> Body:
    return with_messages(aider(), {"role": "system", "content": parts(*texts)}, said("user", "q"))


def test_documents_may_stand_behind_the_rest_of_the_last_leading_system_message() -> None:
    rest = "Help.\nToday is Saturday.\n\n# Context\n\n# Rules\nBe exact.\n"
    sent = documents_behind(rest, *DOCUMENTS[::-1])
    assert run(retrieval(), sent) == []
    assert run(retrieval(), documents_behind(rest[:9], rest[9:], *DOCUMENTS)) == []
    assert rules(retrieval(), sent, mode="mark")


def test_documents_may_stand_in_no_other_system_message() -> None:
    rest = "Help.\nToday is Saturday.\n\n# Context\n\n# Rules\nBe exact.\n"
    original, sent = retrieval(), documents_behind(rest, *DOCUMENTS)
    for body in (original, sent):
        body["messages"].insert(1, said("system", "More."))
    assert rules(original, sent) == {Rule.DOCUMENTS}
    for body in (original, sent):
        body["messages"] = [said("user", "a"), said("assistant", "b"), *body["messages"][:1], said("user", "q")]
    assert rules(original, sent) == {Rule.DOCUMENTS}
    alone = retrieval()
    alone["messages"].pop()
    assert rules(alone, {**sent, "messages": documents_behind(rest, *DOCUMENTS)["messages"][:1]}) == {Rule.DOCUMENTS}
    into_user = retrieval()
    into_user["messages"][1] = {"role": "user", "content": parts(*DOCUMENTS, "q")}
    into_user["messages"][0] = said("system", rest)
    assert rules(retrieval(), into_user)


def test_what_a_prompt_says_about_tags_stays() -> None:
    for text in (
        "Answer in <result>one word</result>.\nBe kind.\n",
        "Answer in\n<result>\none word\n</result>\nBe kind.\n",
    ):
        original = with_messages(aider(), said("system", text), said("user", "q"))
        block = "<result>one word</result>" if "\n<result>" not in text else "<result>\none word\n</result>\n"
        assert rules(original, documents_behind(text.replace(block, ""), block))


def document(name: str, **attributes: object) -> str:
    said_ = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<document{said_}>\n{name}\n</document>\n"


ONE, TWO = document("one", id=1), document("two", id=2)


@for_every(
    [
        (f"Help.\n```xml\n{ONE}{TWO}```\nBe exact.\n", [ONE, TWO]),
        (f"Help.\n<form>\n{ONE}</form>\nBe exact.\n", [ONE]),
        (f"Help.\n<form>\nAnswer so:\n{ONE}Nothing else.\n</form>\nBe exact.\n", [ONE]),
        (f"Help, as in <form>\n{ONE}</form>\nBe exact.\n", [ONE]),
        (f"Help.\n{ONE}This was the first.\n{TWO}Be exact.\n", [ONE, TWO]),
        (f"Help.\n{ONE}This was the first.\n{TWO}Be exact.\n", [TWO]),
        (f'Help.\n<source id="0">\n{ONE}</source>\nBe exact.\n', [ONE]),
        ('Help.\n<document id="0">\n' + ONE + "more\n</document>\nBe exact.\n", ['<document id="0">\n' + ONE]),
    ]
)
def test_documents_are_not_torn_out_of_what_they_stand_in(text: str, moved: list[str]) -> None:
    original = with_messages(aider(), said("system", text), said("user", "q"))
    rest = text
    for block in moved:
        rest = rest.replace(block, "", 1)
    assert rest != text
    assert rules(original, documents_behind(rest, *moved))


def test_documents_may_go_with_the_tags_around_them() -> None:
    block = f"<context>\nWhat was found:\n<documents>\n{ONE}{TWO}</documents>\n</context>\n\n"
    original = with_messages(aider(), said("system", f"Help.\n{block}Be exact.\n"), said("user", "q"))
    assert run(original, documents_behind("Help.\nBe exact.\n", block)) == []
    for part in (ONE + TWO, ONE, f"<documents>\n{ONE}{TWO}</documents>\n"):
        assert rules(original, documents_behind(f"Help.\n{block}Be exact.\n".replace(part, ""), part))


def test_the_parts_of_one_source_are_one_document() -> None:
    one, two, three = (document(f"part {n}", source="a.md", part=n) for n in (1, 2, 3))
    other = document("other", source="b.md", part=4)
    original = with_messages(aider(), said("system", f"Help.\n{one}{two}{other}{three}Be exact.\n"), said("user", "q"))
    assert run(original, documents_behind("Help.\nBe exact.\n", three, other, one + two)) == []
    for moved in ((one, two, other, three), (two, one, other, three), (other, three, two + one), (one + other,)):
        assert rules(original, documents_behind("Help.\nBe exact.\n", *moved))


def test_code_between_fences_moves_whole_or_not_at_all() -> None:
    code = ["```json", "{", '"now": "10:03"', "}", "```"]
    text = "Help.\n\n" + "\n".join(code) + "\n\nBe exact.\n"
    original = with_messages(aider(), said("system", text), said("user", "q"))

    def sent(*lines: str) -> Body:
        left = text
        for line in lines:
            left = left.replace(line + "\n", "", 1)
        tag = said("user", "<stratiform-context>\n" + "\n".join(lines) + "\n</stratiform-context>")
        return with_messages(aider(), said("system", left), tag, said("user", "q"))

    assert run(original, sent(*code)) == []
    assert run(original, sent("Help.", *code)) == []
    assert run(original, sent("Be exact.")) == []
    for lines in (code[2:3], code[1:4], code[:4], code[1:]):
        assert rules(original, sent(*lines))


def test_only_lines_that_change_and_documents_move() -> None:
    def pair(line: str, documents: str, prompt: str, moves: str) -> tuple[Body, Body]:
        last = said("user", prompt)
        original = with_messages(aider(), said("system", f"Help.\n{line}\n{documents}Be exact.\n"), last)
        if moves == "line":
            tag = said("user", f"<stratiform-context>\n{line}\n</stratiform-context>")
            return original, with_messages(original, said("system", f"Help.\n{documents}Be exact.\n"), tag, last)
        system = (
            parts(f"Help.\n{line}\nBe exact.\n", documents)
            if moves == "documents"
            else f"Help.\n{line}\n{documents}Be exact.\n"
        )
        return original, with_messages(original, said("system", system), last)

    def found(*pairs: tuple[Body, Body]) -> list[tuple[int, Rule]]:
        return [(number, v.rule) for number, v in replay_check(pairs, mode="tier", profile="anthropic")]

    assert found(pair("9 left", ONE, "q", ""), pair("8 left", ONE, "r", "line")) == []
    assert found(pair("9 left", ONE, "q", ""), pair("9 left", ONE, "r", "line")) == [(1, Rule.STATIC)]
    assert found(pair("9 left", ONE, "q", "line")) == [(0, Rule.STATIC)]
    assert found(pair("It is now 10:03.", ONE, "q", "line")) == []
    assert found(pair("2024-01-01 10:03 ERROR boom", ONE, "q", "line")) == [(0, Rule.STATIC)]
    assert found(pair("a", ONE, "q", ""), pair("a", TWO, "r", "documents"), pair("a", TWO, "s", "documents")) == []
    assert found(pair("a", ONE, "q", "documents"), pair("a", ONE, "r", "documents")) == []


def test_one_document_alone() -> None:
    text = f"Help.\n{DOCUMENTS[0]}Be exact.\n"
    original = with_messages(aider(), said("system", text), said("user", "q"))
    assert run(original, documents_behind("Help.\nBe exact.\n", DOCUMENTS[0])) == []
    assert rules(original, documents_behind(DOCUMENTS[0], "Help.\nBe exact.\n"))


def test_documents_that_move_are_all_there_and_the_rest_keeps_its_order() -> None:
    rest = "Help.\nToday is Saturday.\n\n# Context\n\n# Rules\nBe exact.\n"
    one, two = DOCUMENTS
    for texts in (
        (rest, two), (rest, one, one), (rest, one, two, two), (rest, one + two), (rest, one[:-1], two),
        (rest[:-1], one, two), (rest.replace("Be exact.\n", ""), one, two), (rest[6:] + rest[:6], one, two), (one, two),
        (rest, one.replace("one", "ONE"), two), (one, rest, two), (rest[:6], one, rest[6:], two), (one, two, rest),
    ):  # fmt: skip
        assert rules(retrieval(), documents_behind(*texts)), texts


def test_documents_bring_their_line_breaks_from_either_side() -> None:
    one, two = DOCUMENTS[0].strip(), DOCUMENTS[1].strip()
    text = f"Use these:\n\n{one}\n\n{two}\n\nSay so."
    original = with_messages(aider(), said("system", text), said("user", "q"))
    for texts in (
        ("Use these:\n\nSay so.", f"\n\n{two}", f"\n\n{one}"),
        ("Use these:\n\nSay so.", f"\n{two}\n", f"\n{one}\n"),
        ("Use these:\n\n\nSay so.", f"\n{one}\n", f"\n{two}"),
    ):
        assert run(original, documents_behind(*texts)) == [], texts
    for texts in (
        ("Use these:\n\nSay so.", f"{two}\n\n", f"{one}\n\n"),
        ("Use these:\n\nSay so.", f"\n\n{two}", f"{one}\n\n"),
        ("Use these:Say so.", f"\n\n\n{one}\n\n", f"\n{two}"),
        ("Use these:\n\nSay so.", f"\n\n{two}{one}", "\n\n"),
    ):
        assert rules(original, documents_behind(*texts)) & {Rule.GLUED, Rule.ALTERED}, texts
    assert rules(original, documents_behind("Use these:\n\nSay so.", f"{two}\n\n", f"{one}\n\n")) == {Rule.GLUED}
    for texts in (
        ("Use these:\nSay so.", f"\n\n{two}", f"\n\n{one}"),
        ("Use these:\n\nSay so.", f"\n\n\n{two}", f"\n\n{one}"),
        ("Use these:\n\nSay so.\n\n", one, f"\n\n{two}"),
    ):
        assert rules(original, documents_behind(*texts)) == {Rule.ALTERED}


def test_files_are_not_glued_to_the_opening() -> None:
    files = [f"{name}.py\n```\n{name} = 1\n```\n" for name in "ab"]
    shown = [said("user", "Here are the files:\n" + "".join(files)), said("assistant", "Ok.")]
    original = with_messages(aider(), said("system", "Help."), *shown, said("user", "q"))
    first = [said("user", words.AS_SAID + files[0]), said("assistant", "Ok.")]
    for opening, is_apart in (("Here are the files:\n", True), ("Here are the files:", False)):
        last = [said("user", opening + files[1]), said("assistant", "Ok.")]
        sent = with_messages(original, said("system", "Help."), *first, *last, said("user", "q"))
        assert (rules(original, sent) == set()) is is_apart


def test_a_line_that_goes_leaves_the_others_apart() -> None:
    original = with_messages(aider(), said("system", "Help.\nToday is Saturday.\nBe exact."), said("user", "q"))
    sent = with_messages(original, said("system", "Help.\nBe exact."), said("user", TAG), said("user", "q"))
    assert run(original, sent) == []
    sent["messages"][0] = said("system", "Help.Be exact.")
    assert rules(original, sent)


def test_a_line_that_goes_from_the_start_of_a_part_leaves_the_parts_as_they_were() -> None:
    parts = [{"type": "text", "text": text} for text in ("Help.", "Today is Saturday.\nBe exact.\nBe quick.")]
    original = with_messages(aider(), {"role": "system", "content": parts}, said("user", "q"))
    for texts, is_whole in (
        (("Help.", "Be exact.\nBe quick."), True),
        (("Help.", "Be exact.Be quick."), False),
        (("Help.Be exact.\n", "Be quick."), False),
    ):
        kept = [{"type": "text", "text": text} for text in texts]
        sent = with_messages(original, {"role": "system", "content": kept}, said("user", TAG), said("user", "q"))
        assert (rules(original, sent) == set()) is is_whole


def test_documents_may_move_while_a_line_goes_to_the_tag() -> None:
    sent = documents_behind("Help.\n\n# Context\n\n# Rules\nBe exact.\n", *DOCUMENTS)
    sent["messages"].insert(1, said("user", TAG))
    assert run(retrieval(), sent) == []
