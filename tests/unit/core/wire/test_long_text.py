"""Long texts in pieces: the same as in one."""

import json

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.request import message
from proxy.core.request.message import LEAD_CHARS, Message, MessageReader
from proxy.core.request.tokens import TokenCounter
from proxy.core.wire import json_body as wire
from proxy.core.wire import long_text
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.core.wire.long_text import string_text, utf8

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
    for module in (long_text, message, wire):
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
    assert in_one is not None
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
