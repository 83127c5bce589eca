"""JSON as the bytes that the client sent: read without copying, edited by splicing. Pure.

A string may hold one half of a surrogate pair alone, as JavaScript's strings may. ``"\\ud83d"`` is valid JSON (RFC 8259
section 8.2), but it is no Unicode text, so that quick readers refuse it. Such bytes are read by their shape: a copy of
the same length is made that every reader accepts (``same_shape``). Each value has the same place in the copy and in the
client's bytes.

Parsing and re-serialising a client's body would change number formats, escapes and key order. Here a body is cut into
its top-level members. Every value stays the slice of bytes that the client sent, and only values that must change are
replaced.

An object that is not taken apart is read in one pass over the bytes (``scan_members``). A request that cannot be
planned must still be checked against a key's rights, and for that it matters whether a name occurs twice: other readers
of JSON keep one value for each name and do not report the others. No pattern looks at more than a piece of a body at
once, however long a string or a list is, because Python runs no other thread while a pattern runs.

``kept_value`` reads a value without losing anything. If a name has several values, readers of JSON keep one of them,
and not all readers keep the same one. They read a number of a thousand digits as infinity, or as all of its digits.
Code that bounds what a provider may read must see all of it.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import TypeVar

import msgspec
import orjson
from msgspec import Raw

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass

T = TypeVar("T")
PIECE_BYTES = 256 << 10
"""The most bytes that one pattern looks at in a call: two or three milliseconds of work."""

_PAIR_BYTES = len(rb"\ud83d\ude00")
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]")
_STARTS = (rb"\ud", rb"\uD")


def mended(body: bytes) -> bytes:
    """The body with every surrogate replaced by something that can be read, which is good enough for its shape. Raises
    UnicodeDecodeError if the body is no UTF-8, apart from surrogates."""
    found = _replaced(body.removeprefix(b"\xef\xbb\xbf"), rb"\u005c")
    found.decode()
    return found


def read_or_mended(read: Callable[[bytes], T], body: bytes) -> T | None:
    """The value that a reader of JSON reads from the body. If the reader refuses surrogates, each one is replaced by
    another character. None if the reader cannot read the body."""
    for form in (bytes, mended):
        try:
            return read(form(body))
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return None


def same_shape(raw: bytes) -> bytes | None:
    """A copy of the same length in which every value has the same place, and no string holds a surrogate or an escaped
    backslash. None if the JSON has no surrogate at all."""
    if not any(start in raw for start in (*_STARTS, b"\xed")):
        return None
    return _replaced(raw, b"__")


def loads(raw: bytes) -> object:
    """A JSON value whose texts keep their surrogates. Raises ValueError and RecursionError."""
    return json.loads(raw.decode("utf-8", "surrogatepass"), parse_constant=refuse_constant)


def dumps(found: object, default: Callable[[object], object] | None = None) -> bytes:
    """A value from ``loads``, as JSON again. A surrogate is written as an escape. ``default`` writes what is no JSON.
    Raises RecursionError."""
    try:
        return orjson.dumps(found, default)
    except orjson.JSONEncodeError:  # a surrogate, or a number that is too large
        return json.dumps(found, separators=(",", ":"), default=default).encode()


def text_json(text: str) -> bytes:
    """A text as JSON. A surrogate is written as an escape."""
    return dumps(text)


def raw_text(raw: bytes) -> str:
    """The JSON of a value as text, as it is written. A surrogate is one character, like any other character of its
    length. Bytes that are no UTF-8 become the replacement character."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""A control character, or a line separator of Unicode's."""
MAX_LINE_CHARS = 256


def one_line(text: str) -> str:
    """The beginning of a text, without control characters, so that it can be stored and shown as one line."""
    return CONTROL.sub("", text[:MAX_LINE_CHARS])


def printable(text: str) -> str:
    """The text with each surrogate replaced by its escape, so that it can be written anywhere."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def refuse_constant(constant: str) -> object:
    """What readers of Python's own are told of NaN and of infinite numbers. Raises ValueError."""
    raise ValueError(f"{constant} is no JSON")


def _replaced(text: bytes, backslash: bytes) -> bytes:
    """The bytes with surrogates replaced by other characters. ``backslash`` replaces an escaped backslash.

    Escaped backslashes are replaced first, so that each backslash that is left begins an escape. Plain replacements
    take a tenth of the time of a regular expression here.
    """
    return b"".join([_replaced_in_piece(piece, backslash) for piece in _pieces(text, 0, len(text))])


def _replaced_in_piece(piece: bytes, backslash: bytes) -> bytes:
    if b"\xed" in piece:
        # In UTF-8 these bytes are the first two of a surrogate, and those of another character.
        for second in range(0xA0, 0xC0):
            piece = piece.replace(b"\xed%c" % second, b"\xee%c" % second)
    if starts := [start for start in _STARTS if start in piece]:
        piece = piece.replace(rb"\\", backslash)
    for start, digit in product(starts, b"89abcdefABCDEF"):
        piece = piece.replace(b"%b%c" % (start, digit), rb"\ue%c" % digit)
    return piece


def _pieces(text: bytes, start: int, end: int) -> Iterator[bytes]:
    """The JSON between these places in short pieces, because Python does nothing else while it works on one. Each
    character, each escape, and the two escapes of one surrogate pair are whole in a piece."""
    while start < end:
        behind = min(end, _behind_piece(text, start))
        yield text[start:behind]
        start = behind


def _behind_piece(text: bytes, start: int) -> int:
    at = start + PIECE_BYTES
    if at >= len(text):
        return len(text)
    most = at + 3  # the most bytes of a character behind its first one
    while at < most and text[at : at + 1] and text[at] & 0xC0 == 0x80:
        at += 1
    last = text.rfind(b"\\", max(start, at - _PAIR_BYTES), at)
    if last >= 0:
        run = text[start : last + 1]
        # In a run of backslashes, each second one ends an escape. The run begins in this piece, because the piece began
        # after an escape.
        if (len(run) - len(run.rstrip(b"\\"))) % 2:
            is_short = text[last + 1 : last + 2] != b"u"
            at = max(at, last + (2 if is_short else _PAIR_BYTES if _PAIR.match(text, last) else _PAIR_BYTES // 2))
    return min(at, len(text))


def string_text(raw: bytes, start: int, end: int) -> str:
    """The text of the JSON string between these places, without its quotes. Halves of surrogate pairs are kept. It is
    decoded piece by piece, because no other thread runs while one call of C works on a text. Raises ValueError if this
    is no string."""
    texts: list[str] = []
    for piece in _pieces(raw, start, end):
        try:
            text = orjson.loads(b'"%b"' % piece)
        except orjson.JSONDecodeError:
            text = loads(b'"%b"' % piece)
        if not isinstance(text, str):
            raise ValueError("no string")
        texts.append(text)
    return "".join(texts)


def utf8(text: str) -> bytes:
    """The text as UTF-8, in which halves of surrogate pairs are kept."""
    if len(text) <= PIECE_BYTES:
        return text.encode("utf-8", "surrogatepass")
    places = range(0, len(text), PIECE_BYTES)
    return b"".join([text[at : at + PIECE_BYTES].encode("utf-8", "surrogatepass") for at in places])


# A value that is taken apart takes up to forty times its bytes: 64 MB of "1," would be 2 GB. A body with more values
# than any prompt that a model could read is passed on as it is. Its commas are counted, in 0.4 ms a megabyte.
_LARGE_BYTES = 512 << 10
_MOST_COMMAS = 250_000
_MOST_OBJECTS = 60_000
_OBJECT_STARTS = (b'{"', b"{}", b"{ ", b"{\n", b"{\r", b"{\t")
MOST_ELEMENTS = 5_000
"""The most messages, parts or tools. More of them would hold up all other requests for seconds."""
_MOST_MEMBERS = 10_000
_MOST_NAME_CHARS = 1_024

_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])

Members = Mapping[str, Raw]
Span = tuple[int, int]
"""The place of a value in a body: its first byte, and the byte after its last."""


class Unreadable(Exception):
    """Valid JSON that cannot be taken apart here. It is forwarded as it is."""


class TooMany(Unreadable):
    """An array with more elements than are taken apart here, in itself or in a value within it."""


Patch = tuple[int, int, bytes]
"""The start and the end of the bytes to replace, and their replacement."""


def parse_members(body: bytes) -> Members:
    """The members of a JSON object. Raises InvalidRequest if the body is no JSON object. Raises Unreadable for odd
    Unicode, for too many members, and for a name of absurd length."""
    if len(body) > _LARGE_BYTES and counted(body, b",") > _MOST_COMMAS and counted(body, b":") > _MOST_COMMAS:
        raise Unreadable("too many members")
    try:
        members = members_of(body)
    except Unreadable as error:
        if _is_json_object(body):
            raise Unreadable("a name that is not valid Unicode, or a number that is none") from error
        raise InvalidRequest("the body is not a JSON object", code="invalid_json") from error
    if len(members) > _MOST_MEMBERS:
        raise Unreadable("too many members")
    if any(len(name) > _MOST_NAME_CHARS for name in members):
        raise Unreadable("a member with a very long name")
    return members


def elements(raw: Raw | bytes, most: int | None = MOST_ELEMENTS) -> list[Raw]:
    """The elements of a JSON array, also if its strings hold halves of surrogate pairs. Raises Unreadable if it is no
    array, or has too many elements: more than ``most``, or too many in the values within it. ``most`` is None for an
    array whose size is no matter."""
    # Within a string, a brace is hardly ever followed by what can follow the brace of an object: quotes and line ends
    # are escaped in strings.
    if (
        most is not None
        and len(raw) > _LARGE_BYTES
        and (
            counted(raw, b",") > _MOST_COMMAS
            or (counted(raw, b"{") > _MOST_OBJECTS and counted(raw, *_OBJECT_STARTS) > _MOST_OBJECTS)
        )
    ):
        raise TooMany("too many elements")
    try:
        found = _ARRAY.decode(raw)
    except _NO_JSON:
        found, own, shape = _by_shape(_ARRAY, raw)
        position = shape.index(b"[")
        for index, each in enumerate(found):
            start = behind_space(shape, position + 1)
            position = behind_space(shape, start + len(each))
            found[index] = Raw(own[start : start + len(each)])
    if most is not None and len(found) > most:
        raise TooMany("too many elements")
    return found


def members_of(raw: Raw | bytes) -> Members:
    """The members of a JSON object, also if its strings hold halves of surrogate pairs. Raises Unreadable if it is no
    object. Raises it, too, if a name holds such a half, or if a name occurs twice in an object with such a half."""
    try:
        return _OBJECT.decode(raw)
    except _NO_JSON:
        found, own, shape = _by_shape(_OBJECT, raw)
    spans = value_spans(shape, found) if len(found) <= _MOST_MEMBERS else None
    # A name with such a half differs from its shape: the bytes between the values must be the same.
    ends = [0, *(end for _, end in (spans or {}).values())]
    if spans is None or any(own[e:s] != shape[e:s] for e, (s, _) in zip(ends, spans.values(), strict=False)):
        raise Unreadable("a name that is not valid Unicode, or that occurs twice")
    return {name: Raw(own[start:end]) for name, (start, end) in spans.items()}


def _by_shape(decoder: msgspec.json.Decoder[T], raw: Raw | bytes) -> tuple[T, memoryview, bytes]:
    """The value of a copy of the same shape that the decoder accepts, the value's own bytes, and the copy. Raises
    Unreadable."""
    own = bytes(raw)
    shape = same_shape(own) or own
    try:
        return decoder.decode(shape), memoryview(own), shape
    except _NO_JSON as error:
        raise Unreadable("no array or object, as it was expected") from error


def value(raw: Raw | bytes) -> object:
    """A small value, parsed. Raises Unreadable on text that is not valid Unicode."""
    try:
        return orjson.loads(bytes(raw))
    except orjson.JSONDecodeError as error:
        raise Unreadable("not valid Unicode") from error


def values_within(found: object, without: Container[str] = ()) -> Iterator[object]:
    """A parsed value and every value within it, except the values of members with the names in ``without``. The search
    has a stack of its own, so that depth causes no recursion."""
    left = [found]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, dict):
            left += [inner for name, inner in one.items() if name not in without]
        elif isinstance(one, list):
            left += one


def small_value(raw: Raw | bytes, most_bytes: int) -> object:
    """A value of at most ``most_bytes``, parsed. None for a longer value, which is not built, and for bytes that are no
    JSON."""
    with suppress(*_NO_JSON):
        return msgspec.json.decode(raw) if len(raw) <= most_bytes else None
    return None


def text_value(raw: Raw | bytes) -> object:
    """A text of the prompt, parsed. Halves of surrogate pairs are kept. Raises Unreadable."""
    text = bytes(raw)
    try:
        if len(text) > PIECE_BYTES and text[:1] == text[-1:] == b'"':
            return string_text(text, 1, len(text) - 1)
        return orjson.loads(text)
    except ValueError as error:
        try:
            return loads(text)
        except (ValueError, RecursionError):
            raise Unreadable("not valid Unicode") from error


def string_of(raw: Raw | bytes) -> str | None:
    """The text that a value is; None for any other value, which is not parsed. Raises Unreadable."""
    found = text_value(raw) if bytes(memoryview(raw)[:1]) == b'"' else None
    return found if isinstance(found, str) else None


def splice(
    body: bytes,
    members: Members,
    changes: Mapping[str, bytes | None],
    messages_at: Span | None = None,
    within: Sequence[Patch] = (),
) -> bytes:
    """The body with top-level members replaced, removed (None) or added at the end. All other bytes stay as they were.

    If ``messages_at`` gives the place of the messages, they are not searched for, and may be patched ``within``.
    """
    within = within if messages_at is not None else ()
    effective = {k: v for k, v in changes.items() if v is not None or k in members}
    if not effective and not within:
        return body
    spans = None if None in effective.values() else value_spans(body, members, messages_at)
    if spans is None:
        if within and messages_at is not None:
            effective["messages"] = _patched(body, messages_at, within)
        return join_members(members, effective)
    patches: list[Patch] = []
    for key, (start, end) in spans.items():
        if (replacement := effective.get(key)) is not None:
            patches.append((start, end, replacement))
        elif key == "messages":
            patches += within
    added = [orjson.dumps(key) + b":" + new for key, new in effective.items() if key not in members and new is not None]
    if added:
        close = body.rindex(b"}")
        patches.append((close, close, (b"," if members else b"") + b",".join(added)))
    return _patched(body, (0, len(body)), patches)


def _patched(body: bytes, span: Span, patches: Sequence[Patch]) -> bytes:
    """The bytes of the span, with the patches applied, which stand in their order."""
    whole, pieces, position = memoryview(body), list[bytes | memoryview](), span[0]  # not copied piece by piece
    for first, behind, new in patches:
        pieces += (whole[position:first], new)
        position = behind
    return b"".join((*pieces, whole[position : span[1]]))


def join_members(members: Mapping[str, Raw | bytes], changes: Mapping[str, bytes | None]) -> bytes:
    """An object of the same member values in the same order, with changes; white space between members is not kept."""
    parts: list[bytes | memoryview] = []
    for key, new in {**{key: memoryview(raw) for key, raw in members.items()}, **changes}.items():
        if new is not None:
            parts += (b",", text_json(key), b":", new)
    return b"".join((b"{", *parts[1:], b"}"))  # not copied piece by piece: messages are large


def _is_json_object(body: bytes) -> bool:
    """Whether the body is a JSON object. This check is slow and thorough, and is used only for bodies that the fast
    reader refuses. Large bodies are not built for it."""
    try:
        if len(body) > _LARGE_BYTES:
            _OBJECT.decode(mended(body))
            return True
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return False


def value_spans(body: bytes, members: Members, messages_at: Span | None = None) -> dict[str, Span] | None:
    """The place of the value of each member in the body. None if a key occurs twice, because spans cannot express that.

    ``messages_at`` is not checked: the caller has already found out that the messages are there, once.
    """
    spans: dict[str, Span] = {}
    position = body.index(b"{") + 1
    for key, raw in members.items():
        if (name := _NAME.match(body, position)) is None:
            return None
        start = name.end()
        if messages_at is not None and key == "messages":
            end = messages_at[1]
        else:
            value_here = memoryview(raw)  # not copied: messages are large
            if not body.startswith(value_here, start):
                return None
            end = start + len(value_here)
        spans[key] = (start, end)
        position = behind_space(body, end) + 1
    return spans if body[position - 1 : position] == b"}" else None


# A member's name up to its value. The quantifiers are possessive: no byte is looked at twice.
_NAME = re.compile(rb'(?<![ \n\r\t])[ \n\r\t]*+"(?:[^"\\]++|\\.)*+"[ \n\r\t]*+:[ \n\r\t]*+', re.DOTALL)


_MOST_DIGITS = 18


def kept_value(raw: Raw | bytes) -> object:
    """The value. If a name occurs several times, its value is the list of all values. A number in an unusual form is a
    string. Raises Unreadable."""
    content = bytes(raw)
    if content[:1] == b'"':
        return text_value(content)
    with suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        value = orjson.loads(content)
        if orjson.dumps(value) == content:
            return value  # it is written again as the same bytes, so that nothing was lost
    try:
        text = content.decode("utf-8", "surrogatepass")
        return json.loads(text, object_pairs_hook=_object, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise Unreadable("nested too deeply, or not valid Unicode") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    every: dict[str, list[object]] = {}
    for name, value in pairs:
        every.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in every.items()}


def _number(text: str) -> object:
    """The number, if it is written in the usual form. Otherwise its text."""
    if len(text) > _MOST_DIGITS:
        return text
    value = float(text) if any(sign in text for sign in ".eE") else int(text)
    return value if repr(value) == text else text


_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
RUN = re.compile(rb"[^\"\[\]{}]*+")
_WORD = re.compile(rb"[^\s,:\"\[\]{}]*+")
# Patterns for text without brackets, and with brackets of one, two and three levels. Only deeper brackets are counted
# one by one.
_FLAT = rb"[^\"\[\]{}]++|" + _STRING
_NESTED = rb"[\[{](?:" + _FLAT + rb")*+[\]}]"
_NESTED = rb"[\[{](?:" + _FLAT + rb"|" + _NESTED + rb")*+[\]}]"
_NESTED = rb"[\[{](?:" + _FLAT + rb"|" + _NESTED + rb")*+[\]}]"
SHALLOW = re.compile(rb"(?:" + _FLAT + rb"|" + _NESTED + rb")*+", re.DOTALL)
# No request has this many members. A body with more is not understood.
_MOST_SCANNED = 1000
_MOST_BRACKETS = 100_000
_MOST_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, the bytes of the value, and the place where these begin."""

    name: str
    value: bytes
    at: int


def scan_members(body: bytes) -> Sequence[Member] | None:
    """All members in their order, also those with equal names. None if the body is not understood."""
    at = behind_space(body, 0)
    if body[at : at + 1] != b"{":
        return None
    found: list[Member] = []
    brackets = _MOST_BRACKETS
    at = behind_space(body, at + 1)
    while body[at : at + 1] != b"}" or found:
        behind_name = behind_string(body, at)
        colon = behind_space(body, max(at, behind_name))
        is_named = behind_name >= 0 and body[colon : colon + 1] == b":"
        if not is_named or behind_name - at > _MOST_NAME_BYTES or len(found) >= _MOST_SCANNED:
            return None
        start = behind_space(body, colon + 1)
        end, brackets = _behind_value(body, start, brackets)
        if end < 0:
            return None
        try:
            name = json.loads(body[at:behind_name].decode("utf-8", "surrogatepass"), strict=False)
        except ValueError:
            return None
        found.append(Member(name, body[start:end], start))
        at = behind_space(body, end)
        if body[at : at + 1] == b"}":
            break
        if body[at : at + 1] != b",":
            return None
        at = behind_space(body, at + 1)
    return found if behind_space(body, at + 1) == len(body) else None


def behind_space(body: bytes, at: int, run: re.Pattern[bytes] = _SPACE) -> int:
    """The end of the white space, or of another ``run`` of bytes, that begins here. It may be empty."""
    while True:
        end = min(at + PIECE_BYTES, len(body))
        found = run.match(body, at, end)
        assert found is not None
        at = found.end()
        if at < end or end == len(body):
            return at


def behind_string(body: bytes, at: int) -> int:
    """The end of the string that begins here. It is -1 if no string begins here, or if the string does not end."""
    if body[at : at + 1] != b'"':
        return -1
    at += 1
    while at < len(body):
        inside = INSIDE.match(body, at, at + PIECE_BYTES)
        assert inside is not None
        if body[inside.end() : inside.end() + 1] == b'"':
            return inside.end() + 1
        if inside.end() == at:
            return -1
        at = inside.end()
    return -1


def _behind_value(body: bytes, at: int, brackets: int) -> tuple[int, int]:
    """The end of the value that begins here (-1 if it is not understood), and how many brackets may still be read."""
    first = body[at : at + 1]
    if first == b'"':
        return behind_string(body, at), brackets
    if first not in (b"{", b"["):
        end = behind_space(body, at, _WORD)
        return (end if end > at else -1), brackets
    at, depth = at + 1, 1
    while brackets > 0:
        between = SHALLOW.match(body, at, at + PIECE_BYTES)
        assert between is not None
        at = between.end()
        mark = body[at : at + 1]
        if mark in b"[]{}" and mark:
            at += 1
            brackets -= 1
            depth += 1 if mark in b"[{" else -1
            if depth == 0:
                return at, brackets
        elif mark == b'"':
            # The string is longer than the rest of the piece.
            at = behind_string(body, at)
        if not mark or at < 0:
            return -1, brackets
    return -1, brackets


def folded(name: str) -> str:
    """The name as the most lenient server reads it: in small letters and compatible forms (Go's reader of JSON reads a
    long s as an s), without blanks and invisible characters."""
    if name.isascii() and name.isprintable() and " " not in name:
        return name.lower()
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in plain if letter.isprintable() and not letter.isspace())


def counted(raw: Raw | bytes, *wanted: bytes) -> int:
    """How often these bytes occur in the text. A pair that is divided by the end of a piece does not count."""
    view = memoryview(raw)
    pieces = (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES))
    return sum(piece.count(each) for piece in pieces for each in wanted)
