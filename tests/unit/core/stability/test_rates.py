import pytest

from proxy.core.stability.rates import DecayedRate


def test_nothing_seen_is_the_prior_and_much_seen_is_what_was_seen() -> None:
    rate = DecayedRate(prior=0.2, weight=4.0)
    assert rate.of([]) == pytest.approx(0.2)
    assert rate.of([True] * 4) == pytest.approx(0.6)
    assert rate.of([True] * 400) > 0.99


def test_newer_observations_say_more() -> None:
    rate = DecayedRate(prior=0.5, weight=1.0, decay=0.5)
    assert rate.of([False, False, True]) > 0.5 > rate.of([True, True, False])


def test_counts_that_are_kept_say_the_same_as_all_observations() -> None:
    rate, counts, seen = DecayedRate(0.3, 2.0, 0.9), (0.0, 0.0), [True, False, True, True]
    for happened in seen:
        counts = rate.added(counts, happened=happened)
    assert rate.share(counts[1], counts[0]) == pytest.approx(rate.of(seen))
