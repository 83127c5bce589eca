"""Whether a compaction pays, by its closed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.history.compaction import CompactionPrices


def pays(dropped: int, behind: int, read: float, write: float, call: float, requests: int) -> bool:
    prices = CompactionPrices(read, write, 5.0, requests)
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


@pytest.mark.parametrize(
    ("prompt", "most", "expected"),
    [(85, 100, True), (84, 100, False), (10**9, None, False), (10**9, 0, False), (0, 100, False)],
)
def test_a_window_is_full_at_85_percent(prompt: int, most: int | None, *, expected: bool) -> None:
    assert CompactionPrices(0.1, 1.25, 5.0, 1, prompt, most).is_full is expected
