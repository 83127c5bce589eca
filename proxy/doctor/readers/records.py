"""A log's records, one at a time: lines of JSON, elements of an array in a JSON document, or rows of CSV.

A record is the raw members of one object, with its line. Anything else becomes a ``Problem`` with its line, and reading
goes on with the next record. At most one record is held in memory, and no record that is longer than ``LONGEST_BYTES``.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader

import msgspec
from msgspec import Raw

from proxy.core.wire.json_body import Members, Unreadable, decoded_array, parse_members
from proxy.doctor.readers.call import Problem
from proxy.errors import InvalidRequest

LONGEST_BYTES = 64 << 20
_HEAD_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20

_NAMES = "log|entries|data|observations|traces|logs|rows|items|results|spend_logs"
_ENVELOPES = frozenset(_NAMES.split("|"))
# A document that holds an array of records, perhaps within one more object: {"log": {"entries": [...]}}.
_ENVELOPE = re.compile(rb'\{\s*+"(?:' + _NAMES.encode() + rb')"\s*+:\s*+[\[{]')
_LIST = re.compile(r'(?:^\s*|"(?:' + _NAMES + r')"\s*:\s*)\[\s*')
_BETWEEN = re.compile(r"[\s,]*+")
_HEADER = re.compile(rb'"?[A-Za-z_][\w. ]{0,100}+"?\s{0,4}+[,;\t]')
_ARRAY_OF_OBJECTS = re.compile(rb"\[\s*\{")

TOO_LONG = f"is longer than {LONGEST_BYTES >> 20} MB"
NOT_JSON = "is no JSON object; perhaps it is torn"
NOT_UTF8 = "holds text that is not valid UTF-8"
BROKEN = "begins an entry that is cut, damaged or too long: nothing behind it can be read"
_NO_ROW = "is no row of CSV"
_OTHER_COLUMNS = "has another number of columns than the first line"

Record = tuple[int, Members]
_Piece = tuple[int, bytes | str]
"""A line number, and the JSON of the record that begins there or a sentence that says why there is no record."""


def records(file: BufferedReader) -> Iterator[Record | Problem]:
    """The records of a file in its own order. Raises one of ``proxy.replay.log_file.UNREADABLE``."""
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES].lstrip()
    if not head:
        yield Problem(line=0, text="is empty")
    is_table = head[:1] not in b"{[" and _HEADER.match(head)
    first, end, _ = head.partition(b"\n")
    # Or it is one JSON value over several lines.
    is_spread = head[:1] == b"{" and end and first.rstrip().endswith((b"{", b"[", b",", b":"))
    is_document = head[:1] == b"[" or _ENVELOPE.match(head) or is_spread
    container = _elements if is_document else _rows if is_table else _lines
    for line, piece in container(file):
        if isinstance(piece, str):
            yield Problem(line=line, text=piece)
        else:
            yield from _parsed(piece, line)


def _parsed(raw: bytes, line: int) -> Iterator[Record | Problem]:
    """The record; for an envelope of several records, the records inside."""
    try:
        members = parse_members(raw)
        arrays = [members[name] for name in members.keys() & _ENVELOPES if _ARRAY_OF_OBJECTS.match(members[name])]
        parts = [part for array in arrays for part in decoded_array(array)]
    except (InvalidRequest, Unreadable, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield Problem(line=line, text=NOT_JSON if is_utf8(raw) else NOT_UTF8)
        return
    if not parts:
        yield line, members
    for part in parts:
        yield from _parsed(bytes(part), line)


def is_utf8(raw: Raw | bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    try:
        str(memoryview(raw), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _lines(file: BufferedReader) -> Iterator[_Piece]:
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_BYTES), b""), 1):
        if len(line) < LONGEST_BYTES or line[-1:] == b"\n":
            if not line.isspace():
                yield number, line
            continue
        while (rest := file.readline(_CHUNK_BYTES)) and rest[-1:] != b"\n":
            pass
        yield number, TOO_LONG


def _elements(file: BufferedReader) -> Iterator[_Piece]:
    """The elements of a document's list. If one is damaged, the beginning of the next one cannot be found."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    decoder, text, at, line, is_inside = json.JSONDecoder(), "", 0, 1, False
    while True:
        begin = _BETWEEN.match(text, at) if is_inside else _LIST.search(text)
        end = at
        if begin is not None:
            is_inside, end = True, begin.end()
            line, at = line + text.count("\n", at, end), end
            if text.startswith("]", at):
                return
            with suppress(ValueError, RecursionError):
                end = decoder.raw_decode(text, at)[1]
        if end > at:
            yield line, text[at:end].encode("utf-8", "surrogateescape")
            line, at = line + text.count("\n", at, end), end
            continue
        # Each read is larger than the one before, because an unfinished element is parsed anew each time.
        rest = text[at:]
        chunk = file.read(max(_CHUNK_BYTES, len(rest))) if len(rest) <= LONGEST_BYTES else b""
        if not chunk:
            yield line, BROKEN if is_inside else NOT_JSON
            return
        text, at = rest + decode(chunk), 0


def _rows(file: BufferedReader) -> Iterator[_Piece]:
    """The rows of CSV as objects. A cell that holds JSON becomes the value that it holds."""
    csv.field_size_limit(LONGEST_BYTES)
    first = file.peek(_CHUNK_BYTES).partition(b"\n")[0]
    comma = max(",;\t", key=lambda mark: first.count(mark.encode()))
    lines = (line.decode("utf-8", "surrogateescape") for line in iter(lambda: file.readline(LONGEST_BYTES), b""))
    reader, names = csv.reader(lines, delimiter=comma), list[str]()
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error:
            yield line, _NO_ROW
            continue
        if row is None:
            return
        if not names:
            names = row
        elif row and len(row) != len(names):
            yield line, _OTHER_COLUMNS
        elif row:
            cells = (_text(name) + b":" + _cell(text) for name, text in zip(names, row, strict=True) if text)
            yield line, b"{" + b",".join(cells) + b"}"


def _cell(text: str) -> bytes:
    if text[0] in '{["' or text[0].isdigit():
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return bytes(msgspec.json.decode(text.encode(), type=Raw))
    return _text(text)


def _text(text: str) -> bytes:
    """The text as a JSON string. Bytes that were not UTF-8 are restored."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")
