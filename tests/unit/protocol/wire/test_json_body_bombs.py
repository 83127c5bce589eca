"""Bodies that cost many times their bytes to take apart: they are passed on as they came, or refused, and cheaply."""

import tracemalloc
from collections.abc import Callable

import pytest

from proxy.kit.errors import InvalidRequest
from proxy.protocol.request import head_of
from proxy.protocol.wire.json_body import MOST_ELEMENTS, Unreadable, elements
from tests.examples import sampled

MIB = 1 << 20


def chat(messages: bytes, more: bytes = b"") -> bytes:
    return b'{"model":"m","stream":true,"messages":' + messages + more + b"}"


def many(element: bytes, size: int = 8 * MIB) -> bytes:
    """An array of that element, about that large."""
    return b"[" + b",".join([element] * (size // (len(element) + 1))) + b"]"


def members(size: int = 8 * MIB) -> bytes:
    return b",".join(b'"%07x":1' % n for n in range(size // 12))


def nested() -> bytes:
    return b'{"role":"user","content":' + many(b'{"type":"text","text":"x"}', 100_000) + b"}"


# The bodies are made by the tests, not when this file is read.
BOMBS: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: chat(many(b"1")),
    "empty-objects": lambda: chat(many(b"{}")),
    "messages": lambda: chat(many(b'{"role":"user","content":"x"}')),
    "parts": lambda: chat(many(nested())),
    "members": lambda: b'{"model":"m","stream":true,' + members() + b"}",
    "surrogate": lambda: chat(many(b"1"), b',"x":"\\ud83d"'),
    "same-key": lambda: chat(b"[]", b',"x":1' * MIB),
}
BROKEN: dict[str, Callable[[], bytes]] = {
    "lists in lists": lambda: chat(b"[" * (8 * MIB)),
    "objects in objects": lambda: chat(b'{"a":' * MIB),
    "no end": lambda: chat(many(b"1"))[:-2],
    "another end": lambda: chat(many(b"[]"))[:-2] + b"\xff",
    "no text": lambda: b"\xff" * MIB,
    "quotes": lambda: b'"' * (8 * MIB),
}


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", sampled(sorted(BOMBS), 7))
def test_a_bomb_is_not_taken_apart_and_still_goes_where_it_should(name: str) -> None:
    body = BOMBS[name]()

    def work() -> None:
        head = head_of(body)
        assert (head.model, head.stream) == ("m", True)
        if head.parsed is not None and name != "same-key":
            with pytest.raises(Unreadable):
                head.parsed.unread()

    assert peak_of(work) < 6 * len(body)


@pytest.mark.parametrize("name", sampled(sorted(BROKEN), 3))
def test_what_is_no_json_is_refused_cheaply(name: str) -> None:
    body = BROKEN[name]()

    def work() -> None:
        with pytest.raises(InvalidRequest):
            head_of(body)

    assert peak_of(work) < 6 * len(body)


def test_large_conversations_that_people_have_are_taken_apart() -> None:
    code = b'{"role":"user","content":"' + b"if (a, b) { return [1, 2, 3]; }\\n" * 500 + b'"}'
    found = elements(many(code, 3 * MIB // 2))
    assert len(found) > 80


def test_messages_are_counted() -> None:
    assert len(elements(b"[" + b",".join([b"{}"] * MOST_ELEMENTS) + b"]")) == MOST_ELEMENTS
    with pytest.raises(Unreadable):
        elements(b"[" + b",".join([b"{}"] * (MOST_ELEMENTS + 1)) + b"]")


@pytest.mark.parametrize("text", [b"\\ud83d", b"\\uDE00\\ud83d", b"\\\\\\ud800", b"\xed\xa0\xbd"])
def test_half_a_character_hides_nothing_of_the_head(text: bytes) -> None:
    head = head_of(b'{"stream":true,"x":"' + text + b'","model":"m","max_tokens":5}')
    assert (head.model, head.stream, bytes(head.asked["max_tokens"])) == ("m", True, b"5")
