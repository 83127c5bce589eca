"""Sessions stay where they are, in the shares that were asked for."""

from collections import Counter

from proxy.core.providers import PROFILES
from proxy.engine.attempts import ordered
from proxy.ports import Deployment, Transport


def place(id: str, weight: float = 1.0) -> Deployment:
    return Deployment(name="m", model="m", transport=Transport.HTTP, profile=PROFILES["none"], id=id, weight=weight)


KEYS = [str(n).encode() for n in range(2000)]


def firsts(*places: Deployment) -> Counter[str]:
    return Counter(ordered(places, key)[0].id for key in KEYS)


def test_one_place_needs_no_draw() -> None:
    one = place("a", 0.0)
    assert ordered([one], b"") == [one]


def test_the_order_is_the_keys_and_has_everyone() -> None:
    places = [place(name) for name in "abcd"]
    for key in KEYS[:50]:
        found = ordered(places, key)
        assert sorted(found, key=lambda p: p.id) == places
        assert ordered(places[::-1], key) == found


def test_shares_follow_the_weights() -> None:
    counts = firsts(place("a", 3.0), place("b", 1.0), place("c", 0.0))
    assert 0.70 < counts["a"] / len(KEYS) < 0.80
    assert counts["c"] == 0


def test_a_place_that_goes_moves_only_its_own_sessions() -> None:
    a, b, c = place("a"), place("b"), place("c")
    for key in KEYS:
        before = ordered([a, b, c], key)
        assert ordered([a, b], key) == [p for p in before if p is not c]


def test_weightless_places_come_last_in_a_fixed_order() -> None:
    assert [p.id for p in ordered([place("x", 0.0), place("a"), place("y", 0.0)], b"k")] == ["a", "x", "y"]
