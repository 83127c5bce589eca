"""JSON with halves of surrogate pairs: the shape that readers take, and the texts that are written again."""

import json
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest, error_body
from proxy.protocol.recognition import Cut, MessageKind, PieceKind, Recognition, recognise_text
from proxy.protocol.request import message
from proxy.protocol.request.message import LEAD_CHARS, Message, MessageReader
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.wire import json_body as wire
from proxy.protocol.wire.json_body import (
    Unreadable,
    elements,
    loads,
    members_of,
    parse_members,
    printable,
    raw_text,
    same_shape,
    splice,
    string_text,
    text_json,
    text_value,
    utf8,
)

HALF = st.sampled_from(["\ud83d-", "\udc00", "\\", '"', "a", "\U0001f600", "é", "\\ud800"])
TEXTS = st.lists(HALF, max_size=6).map("".join)
# Longer integers become floats when they are decoded; what is sent are the client's own bytes all the same.
INTEGERS = st.integers(-(2**63), 2**64 - 1)
VALUES = st.recursive(
    TEXTS | INTEGERS | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_every_value_is_the_clients_own_bytes(body: dict[str, Any], is_escaped: bool, indent: int | None) -> None:
    raw = json.dumps(body, ensure_ascii=is_escaped, indent=indent).encode("utf-8", "surrogatepass")
    members = parse_members(raw)
    assert {name: text_value(value) for name, value in members.items()} == body
    assert all(bytes(value) in raw for value in members.values())
    whole = splice(raw, members, {"new": b"1"})
    assert loads(whole) == {**body, "new": 1}
    for name, value in body.items():
        if isinstance(value, list):
            assert [text_value(each) for each in elements(members[name])] == value
        if isinstance(value, dict):
            assert {key: text_value(each) for key, each in members_of(members[name]).items()} == value


@given(TEXTS)
def test_a_text_is_written_as_it_was_read(text: str) -> None:
    assert loads(text_json(text)) == text
    text_json(text).decode()
    printable(text).encode()


def test_the_shape_is_as_long_as_the_bytes_across_the_pieces_that_it_is_made_of() -> None:
    for offset in range(14):
        raw = b'["' + b"x" * ((128 << 10) - offset) + b'\\\\\\ud83d\\\\ud83d\xed\xa0\xbd"]'
        shape = same_shape(raw)
        assert shape is not None
        assert len(shape) == len(raw)
        assert len(json.loads(shape)[0].encode()) > 1
    assert same_shape(b'{"a":"b"}') is None


@pytest.mark.parametrize(
    "raw", [b'{"\\ud800":1}', b'{"a":"\\ud800","a":1}', b'{"a":"\\ud800","x":NaN}', b'{"a\\\\":"\\ud800"}']
)
def test_a_name_that_is_odd_or_stands_twice_is_not_taken_apart(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_members(raw)


@pytest.mark.parametrize("raw", [b'{"a":"\\ud800"', b'{"a":"\\ud800",}', b'["\\ud800"]', b'"\\ud800"'])
def test_what_is_no_object_is_none_with_half_of_a_pair_in_it(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_members(raw)


@pytest.mark.parametrize("raw", [b"NaN", b'"\xff"', b"[" * 100_000, b'"\\ud800'])
def test_what_is_no_json_is_no_text(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        text_value(raw)


def test_keys_of_pieces_and_errors_can_be_written_anywhere() -> None:
    class One:
        name, priority = "one", 1

        def recognise(self, role: str, text: str) -> Recognition:
            return Recognition("one", MessageKind.CONTEXT, (Cut("file:\ud800.py", PieceKind.FILE, 0, len(text)),))

    found = recognise_text([One()], "user", "text")
    assert [cut.key for cut in found.cuts] == ["file:\\ud800.py"]
    assert b"\\ud800" in error_body(InvalidRequest("no \ud800"))


@pytest.mark.parametrize(
    ("raw", "text"), [(b'"a\xed\xa0\xbdb"', '"a\ud83db"'), (b'"\\ud83d"', '"\\ud83d"'), (b'"\xffa"', '"\ufffda"')]
)
def test_half_of_a_pair_in_the_json_of_a_value_is_one_character(raw: bytes, text: str) -> None:
    assert raw_text(raw) == text


# Whatever a cut could part: characters of every length, escapes of every kind, pairs, halves, and runs of backslashes.
_UNITS = (
    "a", "é", "中", "😀", r"\n", r"\"", r"\\", r"\/", r"\u0041", r"\u00e9", r"\ud83d\ude00", r"\uD83D\uDE00", r"\ud83d",
    r"\ude00", r"\ud83d\u0041", r"\\ud83d", r"\\\ud83d\ude00", r"\\\\", "\ud83d", "\ude00",
)  # fmt: skip
STRINGS = st.lists(st.sampled_from(_UNITS), max_size=40).map("".join)


def read(raw: bytes) -> Message | None:
    """The message that is read from these bytes; None where they are none."""
    try:
        return MessageReader(TokenCounter(), ()).read(msgspec.Raw(raw))
    except (Unreadable, msgspec.DecodeError):
        return None


def in_pieces_of(size: int, patch: pytest.MonkeyPatch) -> None:
    for module in (message, wire):
        patch.setattr(module, "PIECE_BYTES", size)


@given(STRINGS, st.integers(1, 16))
@example(r"\ud83d\ude00" * 3, 6)
@example("\\\\" * 9, 3)
@example(r"\ud83d\ud83d\ude00", 1)
def test_the_pieces_are_the_whole(string: str, size: int) -> None:
    raw = f'"{string}"'.encode("utf-8", "surrogatepass")
    whole = json.loads(raw.decode("utf-8", "surrogatepass"))
    message = b'{"role":"user","content":' + raw + b"}"
    in_one = read(message)
    assert in_one.lead == whole[:LEAD_CHARS]
    with pytest.MonkeyPatch.context() as patch:
        in_pieces_of(size, patch)
        assert string_text(raw, 1, len(raw) - 1) == whole == text_value(raw)
        assert utf8(whole) == whole.encode("utf-8", "surrogatepass")
        assert read(message) == in_one


@given(st.text(alphabet='ab"\\u\n😀{}:,d8', max_size=30), st.integers(1, 8))
def test_what_is_no_string_is_none_in_pieces_either(inside: str, size: int) -> None:
    raw = f'"{inside}"'.encode()
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            whole = json.loads(raw)
        except ValueError:
            whole = None
    with pytest.MonkeyPatch.context() as patch:
        in_pieces_of(size, patch)
        try:
            found = string_text(raw, 1, len(raw) - 1)
        except ValueError:
            found = None
    assert found == whole


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"user","content":"aaaaaaaaaaaaaa","name":"b"}',
        b'{"role":"user","content":"aaaaaaaaaaaaaa" }',
        b'{"role":"user","content":"aaaaaaaaaaaaa\\"}',
    ],
)
def test_a_message_that_says_more_is_the_same_in_pieces(raw: bytes) -> None:
    whole = read(raw)
    with pytest.MonkeyPatch.context() as patch:
        in_pieces_of(4, patch)
        assert read(raw) == whole
