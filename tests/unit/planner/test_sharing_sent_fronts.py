"""What is remembered of how conversations went out."""

import json

import pytest

from proxy.planner.sharing import FrontTable, SentForm, key_of, names_of
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import Unreadable
from tests.talk import Body, assistant, read, system, user

TOOLS = b"tools"


def said(*messages: Body) -> Transcript:
    return Transcript(read(messages))


def thought(seal: str) -> Body:
    return assistant("a", thinking_blocks=[{"type": "thinking", "thinking": "", "signature": seal}])


def form(transcript: Transcript, *elements: bytes) -> SentForm:
    count = len(transcript.messages)
    return SentForm(count, key_of(transcript, TOOLS, count), elements)


FIRST = said(system("s"), user("q"))
SECOND = said(system("s"), user("q"), thought("1"), user("r"))
THIRD = said(system("s"), user("q"), thought("1"), user("r"), thought("2"), user("t"))


def table() -> FrontTable:
    return FrontTable(capacity_bytes=1 << 16)


def test_the_newest_form_that_fits_is_bound() -> None:
    fronts = table()
    fronts.sent("team", FIRST, TOOLS, form(FIRST, b"1"))
    assert fronts.bound("team", SECOND, TOOLS) == (3, form(FIRST, b"1"))
    fronts.sent("team", SECOND, TOOLS, form(SECOND, b"1", b"2"))
    assert fronts.bound("team", THIRD, TOOLS) == (5, form(SECOND, b"1", b"2"))
    assert fronts.bound("team", SECOND, TOOLS) == (3, form(FIRST, b"1"))
    assert fronts.bound("other", SECOND, TOOLS) == (3, None)
    # A conversation that has gone on keeps its form; the same request, sent as it came, gets another answer.
    fronts.sent("team", FIRST, TOOLS, None)
    assert fronts.bound("team", SECOND, TOOLS) == (3, form(FIRST, b"1"))
    answered = said(system("s"), user("q"), thought("9"), user("r"))
    assert fronts.bound("team", answered, TOOLS) == (3, None)


def test_under_other_instructions_nothing_is_bound() -> None:
    fronts = table()
    fronts.sent("team", FIRST, TOOLS, None)
    # Another conversation may have begun in the same way, under these instructions.
    assert fronts.bound("team", SECOND, b"other") == (3, None)
    fronts.sent("team", SECOND, TOOLS, None)
    assert fronts.bound("team", THIRD, b"other") == (0, None)
    fronts.sent("team", THIRD, b"other", None)
    assert fronts.bound("team", THIRD, b"other") == (0, None)
    assert fronts.bound("team", THIRD, TOOLS) == (5, None)
    again = said(*(json.loads(m.raw) for m in THIRD.messages), thought("3"), user("u"))
    assert fronts.bound("team", again, b"other") == (7, None)
    assert fronts.bound("team", again, b"third") == (0, None)


def test_conversations_that_begin_alike_take_nothing_from_each_other() -> None:
    """Of so many, each is bound to its own form, whatever others have left in the store meanwhile."""
    theirs, ours = table(), FrontTable(capacity_bytes=1 << 24)
    firsts = [said(system(f"It is {n}."), user("q")) for n in range(200)]
    for first in firsts:
        ours.sent("team", first, TOOLS, form(first, b"1"))
        for name, blob in theirs.packed(theirs.sent("team", first, TOOLS, None)).items():
            ours.adopt(name, blob)
    for n, first in enumerate(firsts):
        later = said(system(f"It is {n}."), user("q"), thought(str(n)), user("r"))
        assert ours.bound("team", later, TOOLS) == (3, form(first, b"1"))
        ours.sent("team", later, TOOLS, None)
    for n in range(200):
        last = [thought(str(n)), user("r"), thought("2"), user("s")]
        assert ours.bound("team", said(system(f"It is {n}."), user("q"), *last), TOOLS)[0] == 5


def test_where_a_request_is_missing_everything_is_bound() -> None:
    fronts = table()
    fronts.sent("team", FIRST, TOOLS, None)
    assert fronts.bound("team", THIRD, b"other") == (5, None)
    fronts.sent("team", THIRD, TOOLS, None)
    assert fronts.bound("team", THIRD, b"other") == (5, None)


def test_nothing_is_put_between_an_answer_and_its_results() -> None:
    called = said(system("s"), user("q"), thought("1"), {"role": "tool", "tool_call_id": "1", "content": ""}, user("r"))
    assert table().bound("team", called, TOOLS) == (4, None)


def test_what_others_have_sent_is_taken_over() -> None:
    ours, theirs = table(), table()
    blobs = theirs.packed(theirs.sent("team", FIRST, TOOLS, form(FIRST, b"1")))
    assert set(blobs) <= set(names_of("team", THIRD, TOOLS))
    ours.sent("team", SECOND, TOOLS, form(SECOND, b"2"))
    for name, blob in blobs.items():
        ours.adopt(name, blob)
    assert ours.bound("team", SECOND, TOOLS)[1] == form(FIRST, b"1")
    assert ours.bound("team", THIRD, TOOLS)[1] == form(SECOND, b"2")
    for blob in (b"", b"\xff", b"\x95\x00\x80\x00\xc3\x90"):
        with pytest.raises(Unreadable):
            ours.adopt("f", blob)


def test_of_a_conversation_that_went_out_as_it_came_nothing_is_left() -> None:
    fronts = table()
    assert fronts.packed(fronts.sent("team", FIRST, TOOLS, None)) == {}


def test_a_form_is_kept_and_left_for_others_as_long_as_the_conversation_goes_on() -> None:
    fronts, others = FrontTable(capacity_bytes=1 << 15), table()
    fronts.sent("team", FIRST, TOOLS, form(FIRST, b"1"))
    messages: list[Body] = [json.loads(message.raw) for message in FIRST.messages]
    for turn in range(40):
        for number in range(20):
            one = said(system("s"), user(f"{turn} {number}"))
            fronts.sent("team", one, TOOLS, form(one, b"2"))
        messages += [thought(str(turn)), user("r")]
        later = said(*messages)
        assert fronts.bound("team", later, TOOLS)[1] == form(FIRST, b"1")
        names = fronts.sent("team", later, TOOLS, None)
    for name, blob in fronts.packed(names).items():
        others.adopt(name, blob)
    assert others.bound("team", said(*messages, thought("z"), user("s")), TOOLS)[1] == form(FIRST, b"1")


def test_memory_is_bounded() -> None:
    fronts = table()
    for number in range(200):
        one = said(system("s"), user(f"q{number}"))
        fronts.sent("team", one, TOOLS, form(one, *[b"x" * 16] * 20))
    assert fronts.bound("team", said(system("s"), user("q0"), thought("1"), user("r")), TOOLS)[1] is None
    assert fronts.bound("team", said(system("s"), user("q199"), thought("1"), user("r")), TOOLS)[1] is not None
