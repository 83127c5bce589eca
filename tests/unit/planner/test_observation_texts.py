from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.planner.observation import Again, StoredPrompt, TurnTexts, applies_again
from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.request import Inset

MARKED = CacheProfile("marked", Family.MARKER, read=0.1, write=1.25)
GRID = CacheProfile("grid", Family.GRID, read=0.1, write=1.0)
FREE = replace(GRID, read=0.0)
TEXT = Inset("in front", "behind")
FIRST, SECOND, THIRD = (1, b"first"), (3, b"second"), (5, b"third")
HEAD = b"head"
STORED = StoredPrompt(until=300.0, tokens=9_000)


def known(again: Again = Again.BY_PRICE, *, tokens: int = 50, stored: StoredPrompt = STORED) -> TurnTexts:
    """One request was sent with a text, at time 0."""
    texts = TurnTexts(capacity_bytes=1 << 20, again=again)
    texts.commit(texts.earlier([FIRST], HEAD, MARKED, 0.0, lambda _: 0), TEXT, tokens, stored, 0.0)
    return texts


def test_what_is_cheap_beside_what_stands_behind_it_is_applied_again() -> None:
    assert applies_again(50, 5_000, MARKED, 3, 1.0)
    assert applies_again(50, 5_000, GRID, 3, 1.0)
    assert not applies_again(5_000, 400, MARKED, 3, 1.0)
    assert not applies_again(50, 5_000, MARKED, 3, 0.0)


def test_reads_that_cost_nothing_keep_every_text() -> None:
    assert applies_again(5_000, 400, FREE, 60, 1.0)


@pytest.mark.parametrize("requests", [0, 10])
def test_at_least_ten_more_requests_are_expected(requests: int) -> None:
    # 100 tokens, read now and ten times more at a tenth: 110, beside 0.9 for each token behind.
    assert applies_again(100, 123, GRID, requests, 1.0)
    assert not applies_again(100, 122, GRID, requests, 1.0)


def test_at_most_sixty_more_requests_are_expected() -> None:
    assert applies_again(100, 678, GRID, 10_000, 1.0)
    assert not applies_again(100, 677, GRID, 10_000, 1.0)


@given(st.integers(1, 10**5), st.integers(0, 10**6), st.integers(0, 500), st.sampled_from([MARKED, GRID]))
def test_more_behind_a_text_never_speaks_against_it(
    text: int, behind: int, requests: int, profile: CacheProfile
) -> None:
    if applies_again(text, behind, profile, requests, 1.0):
        assert applies_again(text, behind + 1, profile, requests, 1.0)
        assert applies_again(text - 1, behind, profile, requests, 1.0)


def test_a_text_is_applied_to_its_own_turn_when_the_next_one_comes() -> None:
    applied = known().earlier([FIRST, SECOND], HEAD, MARKED, 10.0, {1: 5_000}.__getitem__)
    assert (applied.texts, applied.kept, applied.decided) == ({1: TEXT}, [b"first"], {b"first": True})


def test_the_newest_turn_is_not_an_earlier_one() -> None:
    assert known().earlier([FIRST], HEAD, MARKED, 10.0, lambda _: 5_000).texts == {}


def test_without_turns_or_memory_nothing_is_applied() -> None:
    texts = TurnTexts(capacity_bytes=1 << 20)
    assert texts.earlier([], HEAD, MARKED, 0.0, lambda _: 9).texts == {}
    assert texts.earlier([FIRST, SECOND], HEAD, MARKED, 0.0, lambda _: 9).texts == {}
    assert known().earlier([(1, b"other"), SECOND], HEAD, MARKED, 0.0, lambda _: 9_000).texts == {}


def test_a_plan_alone_changes_nothing() -> None:
    texts = known()
    for _ in range(2):
        assert texts.earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: 5_000).decided == {b"first": True}


@pytest.mark.parametrize(("behind", "expected"), [(9_000, True), (0, False)])
def test_a_choice_is_kept(behind: int, expected: bool) -> None:
    texts = known()
    applied = texts.earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: behind)
    texts.commit(applied, Inset(), 0, replace(STORED, read_tokens=9_000), 10.0)
    later = texts.earlier([FIRST, SECOND, THIRD], b"another head", MARKED, 10**6, lambda _: 9_000 - behind)
    assert (1 in later.texts, later.decided) == (expected, {})


def test_another_head_ends_the_prefix_in_front_of_all_turns() -> None:
    assert known().earlier([FIRST, SECOND], b"another", MARKED, 10.0, lambda _: 5_000).texts == {}


def test_what_was_never_stored_is_not_kept() -> None:
    texts = known(stored=StoredPrompt())
    assert texts.earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: 10**6).texts == {}


def test_when_the_life_is_over_only_what_is_much_cheaper_is_kept() -> None:
    late = 300.0
    assert known().earlier([FIRST, SECOND], HEAD, MARKED, late, lambda _: 900).texts == {}
    assert known().earlier([FIRST, SECOND], HEAD, MARKED, late - 1, lambda _: 900).texts == {1: TEXT}
    assert known().earlier([FIRST, SECOND], HEAD, MARKED, late, lambda _: 20_000).texts == {1: TEXT}


def test_tokens_at_the_end_that_were_not_stored_are_not_lost() -> None:
    texts = known(stored=replace(STORED, loose_tokens=4_990))
    assert texts.earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: 5_000).texts == {}


def test_what_changes_anyway_is_no_reason_to_keep_a_text() -> None:
    texts = known()
    # The second request of the turn reads no more than 4,000 of the 9,000 that were stored.
    again = texts.earlier([FIRST], HEAD, MARKED, 5.0, lambda _: 0)
    texts.commit(again, TEXT, 50, replace(STORED, read_tokens=4_000), 5.0)
    assert texts.earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: 5_000).texts == {}
    assert texts.earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: 8_000).texts == {1: TEXT}


def test_behind_a_text_that_is_left_out_nothing_is_worth_keeping() -> None:
    texts = known(tokens=5_000)
    texts.commit(texts.earlier([SECOND], HEAD, MARKED, 1.0, lambda _: 0), TEXT, 50, STORED, 1.0)
    applied = texts.earlier([FIRST, SECOND, THIRD], HEAD, MARKED, 2.0, {1: 4_000, 3: 3_000}.__getitem__)
    assert applied.decided == {b"first": False, b"second": False}


@pytest.mark.parametrize(("again", "behind", "expected"), [(Again.ALWAYS, 0, {1: TEXT}), (Again.NEVER, 10**6, {})])
def test_a_fixed_rule_looks_at_no_price(again: Again, behind: int, expected: object) -> None:
    assert known(again).earlier([FIRST, SECOND], HEAD, MARKED, 10.0, lambda _: behind).texts == expected


def test_a_conversation_without_texts_takes_no_memory() -> None:
    texts = TurnTexts(capacity_bytes=1 << 20)
    texts.commit(texts.earlier([FIRST], HEAD, MARKED, 0.0, lambda _: 0), Inset(), 0, STORED, 0.0)
    assert not texts.sent


def test_memory_is_bounded_and_long_texts_take_more_of_it() -> None:
    texts = TurnTexts(capacity_bytes=100_000)
    for number in range(500):
        turns = [(1, b"%d" % number)]
        texts.commit(texts.earlier(turns, HEAD, MARKED, 0.0, lambda _: 0), Inset("x" * 1_000), 9, STORED, 0.0)
    assert 30 < len(texts.sent) < 60


def test_texts_of_a_conversation_that_goes_on_are_not_forgotten_first() -> None:
    texts = TurnTexts(capacity_bytes=100_000)
    keep, turns = Inset("k" * 1_000), [FIRST]
    texts.commit(texts.earlier(turns, HEAD, FREE, 0.0, lambda _: 0), keep, 9, STORED, 0.0)
    for number in range(200):
        turns = [*turns, (3 + 2 * number, b"turn %d" % number)]
        texts.commit(texts.earlier(turns, HEAD, FREE, 0.0, lambda _: 10**6), Inset(), 0, STORED, 0.0)
        texts.commit(texts.earlier([(1, b"o%d" % number)], HEAD, FREE, 0.0, lambda _: 0), keep, 9, STORED, 0.0)
    assert texts.earlier(turns, HEAD, FREE, 0.0, lambda _: 10**6).texts[1] == keep
