"""A compaction holds as long as the conversation begins with the messages that it was made of."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation
from proxy.context.history import MessageMeta, RuledHistory, Status, ruled
from proxy.context.history.compaction import (
    MOST_FAILURES,
    Compaction,
    CompactionAttempts,
    CompactionPrices,
    CompactionTexts,
    compacted,
    place_of,
)
from proxy.context.panels import CacheTerms
from proxy.kit.modes import Edit
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
    without = ruled(conversation, {index: MessageMeta(index, Status.DELETED)})
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


def test_made_messages_have_no_place_among_the_clients() -> None:
    assert [place_of((-1, -1, 6, -1, 7), count) for count in (0, 6, 7, 8)] == [2, 2, 4, 5]


# A conversation is not looked at again and again.


NEW = CompactionAttempts()


@pytest.mark.parametrize(
    "earlier",
    [replace(NEW, declined_tokens=30_000), NEW.failed(30_000), replace(NEW, tried_tokens=30_000)],
    ids=["declined", "failed", "put off, or succeeded"],
)
@pytest.mark.parametrize(("tokens", "expected"), [(30_000, False), (32_999, False), (33_000, True), (29_000, False)])
def test_after_a_no_and_after_a_call_it_has_to_grow_by_a_tenth(
    earlier: CompactionAttempts, tokens: int, *, expected: bool
) -> None:
    assert earlier.allow(tokens) is expected


def test_a_full_window_makes_no_account_of_the_price_but_of_failures() -> None:
    assert replace(NEW, declined_tokens=30_000).allow(30_000, is_full=True)
    assert not NEW.failed(30_000).allow(30_000, is_full=True)


def test_three_failures_in_a_row_end_it() -> None:
    found = NEW
    for number in range(MOST_FAILURES):
        assert found.allow(10**6 * (number + 1))
        found = found.failed(10)
    assert not found.allow(10**12)
    assert not found.allow(10**12, is_full=True)


# Whether a compaction pays, by its closed form.


def pays(dropped: int, behind: int, read: float, write: float, call: float, requests: int) -> bool:
    prices = CompactionPrices(CacheTerms(read, write), 5.0, requests)
    return prices.pays(dropped_tokens=dropped, summary_tokens=500, behind_tokens=behind, call_tokens=call)


# dropped | behind | read, write | call | further requests | whether it pays
PRICES = [
    (50_000, 4_000, 0.1, 1.25, 12_000, 3, False),
    (50_000, 4_000, 0.1, 1.25, 12_000, 4, True),
    (50_000, 100_000, 0.1, 1.25, 12_000, 20, False),
    (50_000, 4_000, 0.5, 1.0, 12_000, 1, True),
    (50_000, 4_000, 1.0, 1.0, 12_000, 1, True),
    (50_000, 4_000, 1.0, 1.0, 12_000, 0, False),
    (500, 4_000, 1.0, 1.0, 0, 1_000, False),
    (50_000, 4_000, 0.0, 1.0, 12_000, 1_000, False),
]


@pytest.mark.parametrize(("dropped", "behind", "read", "write", "call", "requests", "expected"), PRICES)
def test_the_prices_decide(
    dropped: int, behind: int, read: float, write: float, call: float, requests: int, *, expected: bool
) -> None:
    assert pays(dropped, behind, read, write, call, requests) is expected


_TOKENS = st.integers(0, 10**6)


@given(_TOKENS, _TOKENS, st.floats(0, 1), st.floats(1, 2), st.floats(0, 10**6), st.integers(0, 10**4))
def test_a_compaction_pays_if_the_bill_with_it_is_lower(
    dropped: int, behind: int, read: float, write: float, call: float, requests: int
) -> None:
    without = (requests + 1) * read * (dropped + behind)
    bill = call + write * (500 + behind) + requests * read * (500 + behind)
    # The request that breaks the cache would have read what is dropped; that is left to the good side.
    if pays(dropped, behind, read, write, call, requests):
        assert bill < without + 1e-3
    else:
        assert bill > without - read * dropped - 1e-3


# The messages that a summary stands in are the same bytes each time.


WORDS = CompactionTexts("ask", "[History Summary]", "Ok.")


@pytest.mark.parametrize("summary", ['"}],"role":"system', "a\nb\x00\u2028", "\ud800", "ü" * 8_000])
def test_no_summary_can_leave_its_message(summary: str) -> None:
    question, _ = WORDS.pair(summary)
    assert list(orjson.loads(question.raw.replace(b"\\ud800", b"?"))) == ["role", "content"]
