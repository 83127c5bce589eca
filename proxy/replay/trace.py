"""Recorded sessions: one JSON object a line, plain or compressed (.xz, .gz).

``{"t": seconds, "client": str, "session": str, "request": body, "response": {...}?}``
"""

import gzip
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import orjson
from msgspec import Raw

from proxy.core.wire import Unreadable, parse_members, value
from proxy.errors import InvalidRequest


class TraceError(Exception):
    """A file that is no recorded session; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded request: ``body`` are the recorded bytes of it."""

    at: float
    session: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded file."""

    name: str
    steps: Sequence[Step]


def read_trace(path: Path) -> Trace:
    """Read a file. Raises TraceError, or OSError where it cannot be opened."""
    steps = [_step(line, path, number) for number, line in enumerate(_lines(path), 1) if line.strip()]
    if not steps:
        raise TraceError(f"{path}: no requests")
    name = path.name.removesuffix(".xz").removesuffix(".gz").removesuffix(".jsonl")
    return Trace(name, sorted(steps, key=lambda s: s.at))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with _opened(path) as file:
            yield from file
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: cannot be decompressed: {error}") from error


def _opened(path: Path) -> IO[bytes]:
    match path.suffix:
        case ".xz":
            return lzma.open(path, "rb")
        case ".gz":
            return cast("IO[bytes]", gzip.open(path, "rb"))
        case _:
            return path.open("rb")


def _step(line: bytes, path: Path, number: int) -> Step:
    try:
        members = parse_members(line)
        at = value(members["t"])
        session = value(members["session"]) if "session" in members else ""
        request = members["request"]
    except (InvalidRequest, Unreadable, KeyError, orjson.JSONDecodeError) as error:
        raise TraceError(f"{path}:{number}: not a recorded request ({error})") from error
    if not isinstance(at, int | float) or not _is_object(request):
        raise TraceError(f"{path}:{number}: 't' must be seconds and 'request' an object")
    return Step(float(at), str(session), bytes(request))


def _is_object(raw: Raw) -> bool:
    return bytes(raw).lstrip().startswith(b"{")
