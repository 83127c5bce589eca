"""Transcripts: however a conversation grew, what is known of it is what reading it anew gives."""

import random

import pytest

from proxy.core.request.message import Message
from proxy.core.request.transcript import Transcript
from tests.talk import assistant, read, system, user

NAMES = ("messages", "preamble", "media_at", "marked", "recognised", "pairs", "turns", "elements")


def conversation(length: int) -> tuple[Message, ...]:
    turns = [user(f"q{n}") if n % 2 == 0 else assistant(f"a{n}") for n in range(length)]
    return read((system("Be brief."), *turns))


def assert_alike(one: Transcript, other: Transcript) -> None:
    for name in NAMES:
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("shared", [0, 1, 2, 3, 6, 9])
def test_a_conversation_that_goes_on_from_any_place_is_as_if_read_anew(shared: int) -> None:
    before = conversation(8)
    after = (*before[:shared], *conversation(14)[shared:])
    assert_alike(Transcript(after, Transcript(before), shared), Transcript(after))


def test_growing_by_random_steps_is_as_if_read_anew() -> None:
    messages = conversation(40)
    rng = random.Random(1)
    grown, length = Transcript(()), 0
    while length < len(messages):
        length = min(len(messages), length + rng.randint(1, 5))
        grown = Transcript(messages[:length], grown)
        assert_alike(grown, Transcript(messages[:length]))


def test_another_reading_of_a_message_takes_its_place_and_leaves_the_rest() -> None:
    transcript = Transcript(conversation(4))
    (other,) = read((user("q0, with the operator's reminder"),))
    changed = transcript.replaced({1: other})
    assert changed.messages[1] is other
    assert changed.elements[1].digest == other.digest
    assert changed.turns[1] != transcript.turns[1]
    assert (changed.turns[2:], changed.pairs) == (transcript.turns[2:], transcript.pairs)
    assert transcript.replaced({}) is transcript
