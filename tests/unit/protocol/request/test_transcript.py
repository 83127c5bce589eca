"""Transcripts: however a conversation grew, what is known of it is what reading it anew gives."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode, Reason
from proxy.planner.plan import Plan
from proxy.protocol.request.message import Message
from proxy.protocol.request.transcript import (
    Kept,
    Transcript,
    head_digest,
    kept_parts,
    part_at,
    texts_of,
    tokens_from,
    user_turns,
)
from tests.examples import examples
from tests.fidelity.chats import File
from tests.fidelity.checker import check
from tests.growth import steps_of
from tests.signed_thinking import SignedForm, signed
from tests.talk import (
    MARK,
    Body,
    Talk,
    assistant,
    calling,
    chat,
    lines,
    marks_in,
    read,
    result,
    sent,
    shown,
    system,
    text_part,
    user,
)

PICTURE = {"type": "image_url", "image_url": {"url": "u"}}
KINDS = read(
    [
        system("Be brief."), system("Current time: 2026-01-01 10:00\nBe kind."), user("q1"), user("q2"),
        assistant("a1"), assistant("Ok."), assistant("long " * 80), *shown(File("a.py", "x\n")), calling("1"),
        result("1", "x"), user("Here are the files:\n\nsrc/a.py\n```\na = 1\n```\n"),
        user([text_part("q3", **MARK)]), user([PICTURE]),
        signed(chat(assistant("a2")), SignedForm.THINKING_BLOCKS)["messages"][0],
    ]
)  # fmt: skip
TALKS = st.lists(st.sampled_from(KINDS), max_size=14)


@settings(max_examples=examples(200))
@given(TALKS, TALKS, st.integers(0, 14))
def test_a_conversation_that_goes_on_from_any_place_is_as_if_read_anew(
    before: Sequence[Message], more: Sequence[Message], shared: int
) -> None:
    shared = min(shared, len(before))
    after = (*before[:shared], *more)
    grown, anew = Transcript(after, Transcript(before), shared), Transcript(after)
    assert [getattr(grown, name) for name in Transcript.__slots__] == [
        getattr(anew, name) for name in Transcript.__slots__
    ]


def test_another_reading_of_a_message_takes_its_place_and_leaves_the_rest() -> None:
    transcript = Transcript(read([system("Be brief."), user("q0"), assistant("a1"), user("q2"), assistant("a3")]))
    (other,) = read((user("q0, with the operator's reminder"),))
    changed = transcript.replaced({1: other})
    assert changed.messages[1] is other
    assert changed.elements[1].digest == other.digest
    assert changed.turns[1] != transcript.turns[1]
    assert (changed.turns[2:], changed.pairs) == (transcript.turns[2:], transcript.pairs)
    assert transcript.replaced({}) is transcript


ABOVE, BELOW = lines(60, "rule"), lines(60, "law")


def clock(minute: int) -> str:
    return f"Current time: 2026-01-01 10:{minute:02}\n"


def instructions(minute: int, role: str = "system", **more: object) -> Body:
    parts = [text_part(ABOVE), text_part(clock(minute)), text_part(BELOW, **more)]
    return {"role": role, "content": parts}


def test_what_stays_of_each_part() -> None:
    texts = [clock(0), f"A rule.\n{clock(1)}Another.\n", BELOW, f"\n{clock(2)}\n", ""]
    (message,) = read([system([text_part(text) for text in texts])])
    assert texts_of(message) == tuple(texts)
    assert message.text == "".join(texts)
    assert kept_parts(message) == (Kept(1, "A rule.\nAnother.\n", False), Kept(2, BELOW, True), Kept(4, "", True))
    ends = [len("".join(texts[: n + 1])) for n in range(4)]
    assert [part_at(message, at) for at in (0, ends[0] - 1, ends[0], ends[1], ends[2])] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "odd", [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": clock(1), "citations": []}]
)
def test_parts_that_are_more_than_text_are_left_alone(odd: Body) -> None:
    (message,) = read([system([text_part(ABOVE), text_part(clock(1)), odd])])
    assert texts_of(message) is None
    assert message.recognition is None


def session(talk: Talk, **more: object) -> list[tuple[Body, Plan]]:
    found: list[tuple[Body, Plan]] = []
    turns: list[Body] = []
    for number in range(5):
        turns.append(user(f"question {number}"))
        body = chat(instructions(number, **more), *turns)  # type: ignore[arg-type]
        plan = talk.send(body)
        assert check(body, sent(plan), mode=talk.mode.name.lower(), profile="anthropic") == []
        found.append((body, plan))
        turns.append(assistant(f"answer {number}"))
    return found


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("own", [{}, MARK])
def test_the_moved_part_goes_into_the_tag_and_the_other_parts_stay_parts(role: str, own: Body) -> None:
    """With the client's marker behind the clock, too, which would be a write that is never read."""
    body, plan = session(Talk(), role=role, **own)[-1]
    first, *others = sent(plan)["messages"]
    assert [part["text"] for part in first["content"]] == [ABOVE, BELOW]
    assert first["role"] == role
    assert [one["content"] for one in others if "<stratiform-context>" in json.dumps(one)] == [
        f"<stratiform-context>\n{clock(4).strip()}\n</stratiform-context>"
    ]
    assert plan.predicted.read > 0.9 * plan.predicted.total


def test_where_nothing_may_move_all_in_front_of_the_part_is_marked() -> None:
    """The border is there already: the parts are as they came."""
    found = session(Talk(mode=Mode.MARK))
    body, plan = found[-1]
    assert plan.reason is Reason.SPLIT
    assert marks_in(sent(plan)) == ["0.0"]
    assert [p["text"] for p in sent(plan)["messages"][0]["content"]] == [ABOVE, clock(4), BELOW]
    assert plan.predicted.read > 0.4 * plan.predicted.total


def test_a_clock_in_the_first_part_is_no_place_for_a_border() -> None:
    talk = Talk(mode=Mode.MARK)
    for number in range(3):
        body = chat(system([text_part(clock(number) + ABOVE), text_part(BELOW)]), user("go"))
        plan = talk.send(body)
        assert plan.reason is not Reason.SPLIT
        assert check(body, sent(plan), mode="mark", profile="anthropic") == []


HEAD, A, B = system("Be kind."), user("a"), user("b")


def turns(*messages: Body, start: bytes = b"s", without: frozenset[int] = frozenset()) -> list[tuple[int, bytes]]:
    """The user's turns of these messages."""
    return user_turns(start, Transcript(read(messages)), without)


def keys(*messages: Body) -> list[bytes]:
    """Their keys alone."""
    return [key for _, key in turns(*messages)]


def test_a_turn_has_the_same_key_when_the_conversation_goes_on() -> None:
    first, second = [HEAD, A], [HEAD, A, assistant("ok"), B]
    assert [index for index, _ in turns(*second)] == [1, 3]
    assert keys(*second)[:1] == keys(*first)


def test_another_answer_or_an_earlier_turn_that_changed_makes_another_key() -> None:
    found = {keys(HEAD, user(first), assistant(answer), B)[1] for first in "ax" for answer in ("ok", "no")}
    assert len(found) == 4


def test_equal_turns_have_keys_of_their_own() -> None:
    assert len(set(keys(HEAD, A, assistant("ok"), A, assistant("ok"), A, assistant("ok"), A))) == 4


def test_whose_it_is_makes_another_key() -> None:
    assert turns(HEAD, A) != turns(HEAD, A, start=b"other")


def test_instructions_and_context_do_not_count() -> None:
    plain = keys(HEAD, A, assistant("ok"), B)
    assert keys(system("other"), *shown(File("a.py", lines(9))), A, assistant("ok"), B) == plain


def test_messages_of_the_proxys_own_do_not_count() -> None:
    panel = [calling("p"), result("p", "shown")]
    messages = [HEAD, A, *panel, assistant("ok"), B]
    assert turns(*messages, without=frozenset({2, 3}))[1][1] == keys(HEAD, A, assistant("ok"), B)[1]


def test_context_counts_in_no_turn_beside_messages_of_the_proxys_own() -> None:
    panel, context = [calling("p"), result("p", "shown")], shown(File("a.py", lines(9)))
    messages = [HEAD, *context, A, *panel, assistant("ok"), B]
    found = turns(*messages, without=frozenset({4, 5}))
    assert [index for index, _ in found] == [3, 7]
    assert [key for _, key in found] == keys(HEAD, A, assistant("ok"), B)


def behind(*messages: Body, message: int, caches_output: bool = False, without: frozenset[int] = frozenset()) -> int:
    """The tokens from a message on."""
    transcript = Transcript(read(messages))
    return tokens_from(transcript, user_turns(b"s", transcript), without, message, caches_output=caches_output)


def test_the_tokens_of_the_request_before_end_in_front_of_its_answer() -> None:
    messages = [HEAD, A, calling("1"), result("1", lines(20)), assistant("done"), B]
    counts = [message.tokens for message in read(messages)]
    assert behind(*messages, message=1) == sum(counts[1:4])
    assert behind(*messages, message=1, caches_output=True) == sum(counts[1:5])
    assert behind(*messages, message=1, without=frozenset({3})) == sum(counts[1:3])


def test_context_that_stands_between_turns_does_not_count() -> None:
    messages = [HEAD, A, assistant("ok"), *shown(File("a.py", lines(50))), B]
    counts = [message.tokens for message in read(messages)]
    assert behind(*messages, message=1, caches_output=True) == sum(counts[1:3])


def head(*messages: Body, tools: bytes | None = None) -> bytes:
    """The digest of what stands in front."""
    return head_digest(Transcript(read(messages)), tools)


def test_the_head_is_another_with_other_instructions_or_tools_and_not_with_another_time() -> None:
    now, then = (system(f"{lines(5)}Current time: 2026-01-01 10:0{n}:00\n{lines(5)}") for n in (1, 2))
    assert head(now, A) == head(then, A, B)
    assert len({head(now, A), head(HEAD, A), head(HEAD, A, tools=b"[]"), head(A)}) == 4


def files_of(name: str, count: int) -> list[Body]:
    return shown(*(File(f"{name}{number}.py", "x\n") for number in range(count)))


def recognised_in(talk: Talk, *messages: Body) -> tuple[int, ...]:
    plan = talk.send(chat(*messages))
    assert plan.in_flight is not None
    return plan.in_flight.analysis.incoming.transcript.recognised


def test_messages_whose_pieces_would_be_too_many_together_stay_whole() -> None:
    growing, messages = Talk(), [user("q")]
    for name, count, expected in (
        ("a", 900, (1,)), ("b", 900, (1, 3)), ("c", 900, (1, 3)), ("d", 3, (1, 3, 7)),
    ):  # fmt: skip
        messages += files_of(name, count)
        asked = [*messages, user("go")]
        assert recognised_in(growing, *asked) == recognised_in(Talk(), *asked) == expected


def test_the_time_to_plan_does_not_grow_with_more_pieces_than_the_bound() -> None:
    def steps(count: int) -> int:
        talk = Talk()
        messages = [message for number in range(count) for message in files_of(f"{number}/", 500)]
        incoming = talk.planner.read(
            talk.planner.reader.parse(json.dumps(chat(*messages, user("go"))).encode()), talk.route, talk.mode, 1.0
        )
        assert not isinstance(incoming, Plan)
        return steps_of(lambda: talk.planner.decide(incoming))

    assert steps(12) < 1.3 * steps(6)
