"""A log's records, one at a time: lines of JSON, elements of an array in a JSON document, or rows of CSV.

A record is the raw members of one object. Whatever is none is a ``Problem`` with its line, and the next one is read.
At most one record is held, and none that is longer than ``LONGEST_BYTES``.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader

import msgspec
from msgspec import Raw

from proxy.core.wire.json_body import Members, Unreadable, decoded_array, parse_members
from proxy.doctor.readers.fields import first_byte
from proxy.doctor.readers.source import Source
from proxy.errors import InvalidRequest

LONGEST_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20

_NAMES = rb"log|entries|data|observations|traces|logs|rows|items|results|spend_logs"
_ENVELOPES = frozenset(_NAMES.decode().split("|"))
# A document that holds an array of records, perhaps within one more object: {"log": {"entries": [...]}}.
_ENVELOPE = re.compile(rb'\s*\{\s*"(?:' + _NAMES + rb')"\s*:\s*[\[{]')
_LIST = re.compile(r'^\s*\[|"(?:' + _NAMES.decode() + r')"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*+")
_HEADER = re.compile(rb'"?[A-Za-z_][\w. ]{0,100}+"?\s{0,4}+[,;\t]')

TOO_LONG = f"is longer than {LONGEST_BYTES >> 20} MB"
NOT_JSON = "is no JSON object; perhaps it is torn"
NOT_UTF8 = "holds text that is not valid UTF-8"
BROKEN = "begins an entry that is cut, damaged or too long: nothing behind it can be read"


@dataclass(frozen=True, slots=True)
class Record:
    """The raw members of one record, and the line at which it begins, counted from 1."""

    line: int
    members: Members


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something is left out: a sentence whose subject is the line."""

    line: int
    text: str


Found = Record | Problem


def records(source: Source) -> Iterator[Found]:
    """The records of a file in its own order. Raises one of ``source.UNREADABLE``."""
    head = source.head.lstrip()
    if not head:
        yield Problem(0, "is empty")
    elif _is_document(head):
        yield from _elements(source.file)
    elif head[:1] != b"{" and _HEADER.match(head):
        yield from _rows(source.file)
    else:
        yield from _lines(source.file)


def inner(members: Members) -> list[Raw]:
    """The records within a record that is an envelope of several; empty where it is none."""
    for name in members.keys() & _ENVELOPES:
        raw = members[name]
        try:
            if first_byte(raw) == b"[":
                return decoded_array(raw)
            if first_byte(raw) == b"{" and (found := inner(parse_members(bytes(raw)))):
                return found
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Unreadable, InvalidRequest):
            continue
    return []


def _is_document(head: bytes) -> bool:
    """Whether the file is one JSON value over several lines, or an envelope, and no lines of JSON."""
    if head[:1] == b"[" or _ENVELOPE.match(head):
        return True
    first = head.partition(b"\n")[0].rstrip()
    return head[:1] == b"{" and b"\n" in head and first.endswith((b"{", b"[", b",", b":"))


def _lines(file: BufferedReader) -> Iterator[Found]:
    number = 0
    while line := file.readline(LONGEST_BYTES):
        number += 1
        if len(line) == LONGEST_BYTES and line[-1:] != b"\n":
            while line and line[-1:] != b"\n":
                line = file.readline(_CHUNK_BYTES)
            yield Problem(number, TOO_LONG)
        elif not line.isspace():
            yield from _parsed(line, number)


def _parsed(raw: bytes, line: int) -> Iterator[Found]:
    try:
        members = parse_members(raw)
    except (InvalidRequest, Unreadable):
        yield Problem(line, NOT_JSON if is_utf8(raw) else NOT_UTF8)
        return
    parts = inner(members)
    if not parts:
        yield Record(line, members)
    for part in parts:
        yield from _parsed(bytes(part), line)


def is_utf8(raw: Raw | bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    try:
        str(memoryview(raw), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _Window:
    """The part of a document that is looked at: its text, how far it has been read, and the line of that place."""

    def __init__(self, file: BufferedReader) -> None:
        self.text, self.at, self.line = "", 0, 1
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def grow(self) -> bool:
        """Read on, ever more at once, because what has begun is parsed anew each time. False at the end, and where it
        is too long."""
        rest = self.text[self.at :]
        chunk = self._file.read(max(_CHUNK_BYTES, len(rest))) if len(rest) <= LONGEST_BYTES else b""
        self.text, self.at = rest + self._decoder.decode(chunk), 0
        return bool(chunk)

    def go_on(self, end: int) -> None:
        """Go on to a place of the text."""
        self.line += self.text.count("\n", self.at, end)
        self.at = end


def _elements(file: BufferedReader) -> Iterator[Found]:
    """The elements of a document's list. Where one is damaged, nobody can tell where the next one begins."""
    window, decoder = _Window(file), json.JSONDecoder()
    while (begin := _LIST.search(window.text)) is None:
        if not window.grow():
            yield Problem(window.line, NOT_JSON)
            return
    window.go_on(begin.end())
    while True:
        between = _BETWEEN.match(window.text, window.at)
        window.go_on(between.end() if between is not None else window.at)
        if window.text.startswith("]", window.at):
            return
        try:
            end = decoder.raw_decode(window.text, window.at)[1]
        except (ValueError, RecursionError):
            if not window.grow():
                yield Problem(window.line, BROKEN)
                return
            continue
        yield from _parsed(window.text[window.at : end].encode("utf-8", "surrogateescape"), window.line)
        window.go_on(end)


def _rows(file: BufferedReader) -> Iterator[Found]:
    """The rows of CSV as records. A cell that holds JSON stands for the value that it holds."""
    csv.field_size_limit(LONGEST_BYTES)
    lines = _Text(file)
    first = lines.file.peek(_CHUNK_BYTES).partition(b"\n")[0]
    comma = max(",;\t", key=lambda mark: first.count(mark.encode()))
    reader = csv.reader(lines, delimiter=comma)
    names: list[str] | None = None
    while True:
        line = lines.number + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield Problem(line, "is no row of CSV")
            continue
        if names is None:
            names = row
        elif row and len(row) != len(names):
            yield Problem(line, "has another number of columns than the first line")
        elif row:
            yield _row(names, row, line)


class _Text:
    """The lines of a file as text; bytes that are not UTF-8 are kept as lone surrogates."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.number = file, 0

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(LONGEST_BYTES):
            self.number += 1
            yield line.decode("utf-8", "surrogateescape")


def _row(names: list[str], row: list[str], line: int) -> Found:
    try:
        return Record(line, {name: _cell(text) for name, text in zip(names, row, strict=True) if text})
    except UnicodeEncodeError:
        return Problem(line, NOT_UTF8)


def _cell(text: str) -> Raw:
    raw = text.encode()
    if raw[:1] in (b"{", b"[", b'"') or raw[:1].isdigit():
        try:
            return msgspec.json.decode(raw, type=Raw)
        except (msgspec.DecodeError, RecursionError):
            pass
    return Raw(msgspec.json.encode(text))
