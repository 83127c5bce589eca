"""Transcripts: however a conversation grew, what is known of it is what reading it anew gives."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.request.message import Message
from proxy.core.request.transcript import Transcript
from tests.examples import examples
from tests.fidelity.chats import File
from tests.signed_thinking import SignedForm, signed
from tests.talk import MARK, assistant, calling, chat, read, result, shown, system, text_part, user

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
