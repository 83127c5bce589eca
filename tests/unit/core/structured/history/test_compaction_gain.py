"""Whether a compaction pays, by its closed form."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.history.compaction_gain import CompactionGain, is_window_full

GAIN = CompactionGain(50_000, 500, 4_000, read=0.1, write=1.25, call_tokens=12_000, requests=10)


def test_what_it_costs_once_and_saves_with_each_request_at_cached_prices() -> None:
    assert GAIN.once == pytest.approx(1.15 * 4_000 + 1.25 * 500 + 12_000)
    assert GAIN.per_request == pytest.approx(0.1 * 49_500)
    assert GAIN.pays


def test_without_a_cache_the_same_compaction_breaks_nothing_and_saves_ten_times_as_much() -> None:
    uncached = replace(GAIN, read=1.0, write=1.0)
    assert (uncached.once, uncached.per_request) == (12_500, 49_500)


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
    dropped: int, behind: int, read: float, write: float, call: float, requests: float, *, expected: bool
) -> None:
    assert CompactionGain(dropped, 500, behind, read, write, call, requests).pays is expected


_TOKENS = st.integers(0, 10**6)


@given(_TOKENS, _TOKENS, st.floats(0, 1), st.floats(1, 2), st.floats(0, 10**6), st.integers(0, 10**4))
def test_it_pays_if_the_bill_with_it_is_lower(
    dropped: int, behind: int, read: float, write: float, call: float, requests: int
) -> None:
    gain = CompactionGain(dropped, 500, behind, read, write, call, requests)
    without = (requests + 1) * read * (dropped + behind)
    bill = call + write * (500 + behind) + requests * read * (500 + behind)
    # The request that breaks the cache would have read what is dropped; that is left to the good side.
    assert gain.pays == (gain.requests * gain.per_request > gain.once)
    if gain.pays:
        assert bill < without + 1e-3


@pytest.mark.parametrize(
    ("prompt", "most", "expected"),
    [(85, 100, True), (84, 100, False), (10**9, None, False), (10**9, 0, False), (0, 100, False)],
)
def test_a_window_is_full_at_85_percent(prompt: int, most: int | None, *, expected: bool) -> None:
    assert is_window_full(prompt, most) is expected
