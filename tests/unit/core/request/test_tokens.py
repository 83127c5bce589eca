import pytest

from proxy.core.request.tokens import TokenCounter, bytes_over_four, quick


def test_bytes_over_four_rounds_up() -> None:
    assert [bytes_over_four(t) for t in ("", "a", "abcd", "abcde", "é" * 4, "🎉")] == [0, 1, 1, 2, 2, 1]


def test_a_lone_surrogate_is_counted_too() -> None:
    assert bytes_over_four("\ud800") == 1


def test_a_text_is_counted_once() -> None:
    seen: list[str] = []

    def encode(text: str) -> int:
        seen.append(text)
        return len(text)

    counter = TokenCounter(encode)
    assert [counter.count(b"1", "one"), counter.count(b"2", "three"), counter.count(b"1", "one")] == [3, 5, 3]
    assert seen == ["one", "three"]


def test_the_least_recently_used_is_forgotten_first() -> None:
    seen: list[str] = []

    def encode(text: str) -> int:
        seen.append(text)
        return len(text)

    counter = TokenCounter(encode, capacity=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        counter.count(text.encode(), text)
    assert seen == ["a", "b", "c", "b"]


def test_long_texts_that_are_not_ordinary_are_counted_by_samples_short_ones_whole() -> None:
    seen: list[int] = []

    def encode(text: str) -> int:
        seen.append(len(text))
        return len(text) // 4 + 1

    count = quick(encode)
    assert count("1" * 1000) == 251
    assert seen == [1000]
    seen.clear()
    assert count("2" * 100_000) == pytest.approx(25_000, rel=0.02)
    assert sum(seen) < 100_000 / 15


def test_a_count_is_known_once_it_was_made() -> None:
    counter = TokenCounter(len)
    assert counter.known(b"d") is None
    counter.count(b"d", "four")
    assert counter.known(b"d") == 4
