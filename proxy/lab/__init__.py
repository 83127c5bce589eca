"""Tools around the proxy that serving never needs: replay, explanation, diagnosis of logs, demonstrations.

Nothing outside of this package imports it. ``proxy.cli`` takes its commands over from here, by one line.

The tools work on recorded sessions. A trace is a file with one JSON object a line, plain or compressed:
``{"t": seconds, "client": str, "session": str, "request": body, "response": {...}?}``.
``opened`` reads a file as plain UTF-8 bytes, however it is compressed. Its first bytes, not its name, tell its format.
``read_trace`` makes a ``Trace`` of it, whose requests can be replayed.
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

from msgspec import Raw

from proxy.context import SECTION, section_of, split
from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass, replace
from proxy.protocol.request import parse_body
from proxy.protocol.wire.json_body import Unreadable, parse_members, same_shape, splice, value

COMMANDS = {
    "try": ("proxy.lab.demo.command:try_", "see on a short conversation what the cache saves"),
    "demo": ("proxy.lab.demo.command", "show on sample sessions what the proxy saves"),
    "replay": ("proxy.lab.replay.command", "replay recorded sessions, and compare what they cost"),
    "explain": ("proxy.lab.replay.explain", "show the layout of one recorded request, and why"),
    "doctor": ("proxy.lab.doctor.report", "find out in logs why caches missed, and what that costs"),
}

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeError)
"""The errors that reading raises if a file is damaged, or cut within its compression."""

_COMPRESSED: Mapping[bytes, Callable[[IO[bytes]], object]] = MappingProxyType(
    {b"\xfd7zXZ\x00": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@contextmanager
def opened(path: Path) -> Iterator[tuple[io.BufferedReader, Callable[[], int]]]:
    """The file behind its byte order mark, and a function that says how many of its bytes on the disk were read so far
    (0 for a pipe). Raises one of ``UNREADABLE``, as reading does."""
    with path.open("rb") as raw:
        begin = raw.peek(8)
        open_as = next((how for magic, how in _COMPRESSED.items() if begin.startswith(magic)), None)
        # These readers have their own small buffers: content in front of a damaged place is still read.
        file = raw if open_as is None else cast("io.BufferedReader", open_as(raw))
        begin = file.peek(4)
        if begin.startswith(_UTF_16):
            file = io.BufferedReader(_Transcoded(file))
        elif begin.startswith(codecs.BOM_UTF8):
            file.read(len(codecs.BOM_UTF8))
        yield file, lambda: raw.tell() if raw.seekable() else 0


class _Transcoded(io.RawIOBase):
    """UTF-16, which some shells write, as UTF-8."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._text = io.TextIOWrapper(file, "utf-16", errors="replace", newline="")
        self._left = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer. Returns the number of bytes, 0 at the end."""
        # Half of a surrogate pair has no bytes in UTF-8.
        self._left = self._left or self._text.read(1 << 20).encode("utf-8", "replace")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


SUFFIXES = (".jsonl", ".jsonl.xz", ".jsonl.gz")
_ODD = "holds text that is not valid Unicode"
# The calendar ends there, in both directions.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799


class TraceError(Exception):
    """A file is not a recorded session. The message names file and line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded request. ``body`` holds its recorded bytes."""

    at: float
    session: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded file, its requests in the order of time."""

    name: str
    steps: Sequence[Step]


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """The named files, and the files in each named folder, sorted by name. Raises TraceError."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
        if not inside:
            raise TraceError(f"{path}: no recorded sessions in it ({', '.join('*' + s for s in SUFFIXES)})")
        found += inside
    return list(dict.fromkeys(found))


def read_trace(path: Path) -> Trace:
    """Read a file. Raises TraceError."""
    try:
        with opened(path) as (file, _):
            steps = [_step(line, path, number) for number, line in enumerate(file, 1) if line.strip()]
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged, or cut"
        raise TraceError(f"{path}: cannot be read: {reason}") from error
    if not steps:
        raise TraceError(f"{path}: no requests")
    return Trace(trace_name(path), sorted(steps, key=lambda s: s.at))


def trace_name(path: Path) -> str:
    """The file's name without its suffixes."""
    return path.name.removesuffix(".xz").removesuffix(".gz").removesuffix(".jsonl")


def _step(line: bytes, path: Path, number: int) -> Step:
    at = f"{path}:{number}"
    try:
        members = parse_members(line)
    except InvalidRequest as error:
        raise TraceError(f"{at}: not a JSON object") from error
    except Unreadable as error:
        raise TraceError(f"{at}: {_ODD}") from error
    seconds = _value(members.get("t"), f"{at}: 't'")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TraceError(f"{at}: 't' must be seconds")
    if not _FIRST_S <= seconds <= _LAST_S:
        raise TraceError(f"{at}: 't' must be seconds of a year from 1 to 9999")
    if "request" not in members:
        raise TraceError(f"{at}: 'request' is missing")
    session = _value(members.get("session"), f"{at}: 'session'")
    return Step(float(seconds), "" if session is None else str(session), chat_body(members["request"], at))


def chat_body(raw: Raw | bytes, at: str) -> bytes:
    """The bytes of a chat request that can be replayed. ``at`` is its place in the file. Raises TraceError."""
    body = bytes(raw)
    try:
        parse_body(body).chat()
        body.decode()
        if same_shape(body) is not None:
            value(body)  # the bills of several policies are compared on texts that every reader takes
    except InvalidRequest as error:
        raise TraceError(f"{at}: 'request' is no chat request: {error.message}") from error
    except (Unreadable, UnicodeDecodeError) as error:
        raise TraceError(f"{at}: 'request' {_ODD}") from error
    return body


def _value(raw: Raw | None, name: str) -> object:
    try:
        return None if raw is None else value(raw)
    except Unreadable as error:
        raise TraceError(f"{name} {_ODD}") from error


def without_prompts(trace: Trace) -> tuple[Trace, int]:
    """The session without the members by which requests ask for prompts and a context window, and the number of
    requests that had such members. Requests that cannot be read stay as they are."""
    steps, changed = list(trace.steps), 0
    for index, step in enumerate(steps):
        if SECTION.encode() not in step.body:
            continue
        with suppress(InvalidRequest, Unreadable):
            sent = parse_body(step.body)
            raw = section_of(sent.members)
            if raw is not None and (section := split(raw)).is_split:
                body = splice(sent.body, sent.members, {SECTION: section.rest}, sent.span)
                steps[index], changed = replace(step, body=body), changed + 1
    return (replace(trace, steps=steps), changed) if changed else (trace, 0)
