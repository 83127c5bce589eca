"""A compaction holds as long as the conversation begins with the messages that it was made of."""

from typing import Any

import orjson
import pytest

from proxy.core.reasons import Edit
from proxy.core.structured.history.compaction import Compaction, compacted, place_of
from proxy.core.structured.history.rules import MessageMeta, RuledHistory, Status, ruled
from proxy.core.structured.messages import Conversation
from tests.compactions import TEXTS, compaction_of, messages_of, ruled_of, sent
from tests.examples import for_every

TALK = "u1 a1 u1 c1 r1 a1 u1 a1 u1"
KNOWN = 8
"""All but the prompt."""


def made(covered: int = 6, known: int = KNOWN, summary: str = "In short.") -> Compaction:
    return compaction_of(ruled_of(TALK), covered, known, summary)


def ruled_messages(messages: list[dict[str, Any]]) -> RuledHistory:
    return ruled(Conversation.of([orjson.dumps(message) for message in messages]), {})


# what the client sends next | what is sent of it
LATER = [
    (TALK, "S u1 a1 u1"),
    (f"{TALK} a1 u1", "S u1 a1 u1 a1 u1"),
    (f"{TALK} c1 r1", "S u1 a1 u1 c1 r1"),
    # The prompt may be rewritten, what the model has read may not.
    ("u1 a1 u1 c1 r1 a1 u1 a1 u2 a1 u1", "S u1 a1 u2 a1 u1"),
    ("u1 a1 u1 c1 r1 a1 u1 a2 u1", "u1 a1 u1 c1 r1 a1 u1 a2 u1"),
    ("u2 a1 u1 c1 r1 a1 u1 a1 u1", "u2 a1 u1 c1 r1 a1 u1 a1 u1"),
    ("u1 a1 u1 c1 r2 a1 u1 a1 u1", "u1 a1 u1 c1 r2 a1 u1 a1 u1"),
    # Back to an earlier point: what was compacted is behind it, or too little would stay.
    ("u1 a1 u1", "u1 a1 u1"),
    ("u1 a1 u1 c1 r1 a1 u1 a1", "u1 a1 u1 c1 r1 a1 u1 a1"),
    # Another conversation.
    ("u3", "u3"),
]  # fmt: skip


@for_every(LATER)
def test_a_compaction_holds_while_the_conversation_begins_with_what_was_read(later: str, expected: str) -> None:
    assert sent(compacted(ruled_of(later), made(), TEXTS)) == expected


def test_markers_that_a_client_moves_make_no_difference() -> None:
    messages = messages_of(TALK)
    messages[1]["cache_control"] = {"type": "ephemeral"}
    assert sent(compacted(ruled_messages(messages), made(), TEXTS)) == "S u1 a1 u1"


@pytest.mark.parametrize("index", [0, 5, 7])
def test_a_message_that_the_client_deletes_later_ends_a_compaction(index: int) -> None:
    conversation = Conversation.of([orjson.dumps(message) for message in messages_of(TALK)])
    without = ruled(conversation, {index: MessageMeta(Status.DELETED)})
    assert compacted(without, made(), TEXTS) is without


def test_without_a_summary_nothing_takes_the_place_of_what_is_left_out() -> None:
    assert sent(compacted(ruled_of(TALK), made(summary=""), TEXTS)) == "u1 a1 u1"


def test_a_summary_is_a_message_of_the_user_with_a_fixed_answer() -> None:
    pair = compacted(ruled_of(TALK), made(), TEXTS).conversation.history[:2]
    assert [orjson.loads(turn.raw) for turn in pair] == [
        {"role": "user", "content": "[History Summary]\nIn short."},
        {"role": "assistant", "content": "Ok, I understand the context from the previous conversation."},
    ]


def test_a_compaction_counts_its_messages_and_knows_where_the_others_came_from() -> None:
    found = compacted(ruled_of(TALK), made(), TEXTS)
    assert found.edits == {Edit.HISTORY_COMPACTED: 6}
    assert found.origins == (-1, -1, 6, 7, 8)
    assert len(found.conversation.prompt) == 1


def test_the_leading_system_messages_are_no_part_of_a_compaction() -> None:
    assert sent(compacted(ruled_of(f"s1 {TALK}"), made(), TEXTS)) == "s1 S u1 a1 u1"


@pytest.mark.parametrize("keep", [3, 9])
def test_a_compaction_waits_until_enough_exchanges_would_stay(keep: int) -> None:
    assert sent(compacted(ruled_of(TALK), made(), TEXTS, keep)) == TALK
    grown = TALK + " a1 u1" * keep
    assert sent(compacted(ruled_of(grown), made(), TEXTS, keep)).startswith("S u1")


@pytest.mark.parametrize("covered", [1, 3, 4, 5])
def test_a_compaction_that_ends_elsewhere_than_before_a_user_message_changes_nothing(covered: int) -> None:
    assert sent(compacted(ruled_of(TALK), made(covered), TEXTS)) == TALK


@pytest.mark.parametrize(("covered", "known"), [(0, 8), (6, 2), (-1, 8), (20, 30)])
def test_a_compaction_that_cannot_be_changes_nothing(covered: int, known: int) -> None:
    assert sent(compacted(ruled_of(TALK), made(covered, known), TEXTS)) == TALK


def test_no_compaction_changes_nothing() -> None:
    before = ruled_of(TALK)
    assert compacted(before, None, TEXTS) is before


def test_made_messages_have_no_place_among_the_clients() -> None:
    assert [place_of((-1, -1, 6, -1, 7), count) for count in (0, 6, 7, 8)] == [2, 2, 4, 5]
