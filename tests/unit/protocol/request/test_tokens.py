"""Tokens are counted once, or estimated."""

import inspect
import json
import string
from statistics import median, quantiles

import pytest

from proxy.protocol.request.tokens import TokenCounter, bytes_over_four, estimate, quick
from proxy.services import local_encode


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


def excerpts() -> list[str]:
    """Source code of the standard library and of this project, as files in a prompt are: some in JSON strings."""
    sources = [inspect.getsource(module) for module in (inspect, json, string, json.decoder, json.encoder)]
    texts = [
        text[at : at + size] for text in sources for size in (200, 900, 6_000) for at in range(0, len(text), 9_000)
    ]
    return [text if n % 3 else json.dumps(text) for n, text in enumerate(texts) if len(text) >= 100]


@pytest.mark.slow
def test_ordinary_text_is_estimated_as_well_as_its_docstring_says() -> None:
    encode = local_encode()
    if encode is bytes_over_four:
        pytest.skip("no o200k_base file on this machine to compare with")
    pairs = [(found, encode(text)) for text in excerpts() if (found := estimate(text)) is not None]
    off = [abs(found - right) / right for found, right in pairs]
    assert len(off) > 50
    assert median(off) < 0.08
    assert quantiles(off, n=20)[-1] < 0.25
    assert sum(found for found, _ in pairs) == pytest.approx(sum(right for _, right in pairs), rel=0.06)


@pytest.mark.parametrize(
    "text",
    [
        "AAAABBBBCCCCaaaa" * 40, "4111111111111111 " * 30, "Добрый день, коллега. " * 10, "今天天气很好。" * 30,
        "+--+--+--+\n|  |  |  |\n" * 20,
    ],
)  # fmt: skip
def test_what_is_not_ordinary_is_left_to_the_tokeniser(text: str) -> None:
    assert estimate(text) is None
    assert quick(lambda part: 1_000 + len(part))(text) > 1_000


def test_long_text_is_judged_by_slices() -> None:
    text = "The parser reads a line, and then the next one.\n" * 4_000
    whole = sum(found for n in range(0, len(text), 1_200) if (found := estimate(text[n : n + 1_200])) is not None)
    assert estimate(text) == pytest.approx(whole, rel=0.03)


def test_text_of_any_kind_has_a_token_at_least() -> None:
    assert [estimate(text) for text in ("a", "ab", ".a")] == [1, 1, None]
    assert estimate("") == 1
    assert estimate("\ud800") is None


def test_the_tokeniser_is_not_asked_about_ordinary_text() -> None:
    asked: list[str] = []

    def encode(text: str) -> int:
        asked.append(text)
        return 1

    assert quick(encode)("Please mend the parser: it loses the last line.") == pytest.approx(11, abs=2)
    assert asked == []
