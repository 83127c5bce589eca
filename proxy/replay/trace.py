"""Recorded sessions: one JSON object a line, plain or compressed.

``{"t": seconds, "client": str, "session": str, "request": body, "response": {...}?}``
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Raw

from proxy.core.request.parsed_body import parse_body
from proxy.core.structured.form.section import SECTION, section_of, split
from proxy.core.value import dataclass, replace
from proxy.core.wire.json_body import Unreadable, parse_members, splice, value
from proxy.core.wire.surrogates import same_shape
from proxy.errors import InvalidRequest
from proxy.replay.log_file import UNREADABLE, opened

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
        if same_shape(body) is not None:
            value(body)  # the bills of several policies are compared on texts that every reader takes
    except InvalidRequest as error:
        raise TraceError(f"{at}: 'request' is no chat request: {error.message}") from error
    except Unreadable as error:
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
    steps = [_without(step) for step in trace.steps]
    changed = sum(new is not old for new, old in zip(steps, trace.steps, strict=True))
    return (replace(trace, steps=steps), changed) if changed else (trace, 0)


def _without(step: Step) -> Step:
    if SECTION.encode() not in step.body:
        return step
    try:
        sent = parse_body(step.body)
        raw = section_of(sent.members)
        section = split(raw) if raw is not None else None
    except (InvalidRequest, Unreadable):
        return step
    if section is None or not section.is_split:
        return step
    return replace(step, body=splice(sent.body, sent.members, {SECTION: section.rest}, sent.span))
