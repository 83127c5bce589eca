"""Reads the calls of one log file, whatever product has written it.

A value that cannot be read costs its record and no other one: it comes as a ``Problem`` with its line.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from proxy.core.diagnosis.fingerprints import read_line
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage, usage_of
from proxy.core.wire.json_body import Members, Unreadable
from proxy.doctor.readers.call import Gap, RecordedCall, Wire
from proxy.doctor.readers.claude_code import ClaudeCode
from proxy.doctor.readers.exchange import cause_in, first_usage, gaps_of, request_in, wire_of
from proxy.doctor.readers.fields import at_path, first_text, first_value, members_in
from proxy.doctor.readers.langfuse import langfuse_usage
from proxy.doctor.readers.records import NOT_UTF8, Problem, Record, is_utf8, records
from proxy.doctor.readers.shapes import CLAUDE_CODE, FINGERPRINTS, HAR, LANGFUSE, LITELLM, SHAPES, Shape, shape_of
from proxy.doctor.readers.source import UNREADABLE, Source
from proxy.doctor.readers.times import unix_seconds

NO_CALL = "tells of no call of a model"
NO_CONTENT = "holds a call without its content"
_PROGRESS_RECORDS = 16
_MODEL_PATHS = ("/completions", "/messages", "/responses")
_OTHER_CALLS = re.compile(r"embed|image|audio|speech|transcri|rerank|moderat|count_tokens|files|batch")
_HEADERS = ("request.headers", "headers")


def read_calls(path: Path, on_progress: Callable[[int, int], None]) -> Iterator[RecordedCall | Problem]:
    """The calls of a file in its own order. ``on_progress`` gets how many bytes were read, of how many."""
    line = 0
    try:
        with Source(path) as source:
            reader = _Reader()
            for number, found in enumerate(records(source)):
                line = found.line
                if (call := reader.read(found)) is not None:
                    yield call
                if number % _PROGRESS_RECORDS == 0:
                    on_progress(source.read_bytes, source.size)
            on_progress(source.size, source.size)
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged, or cut"
        yield Problem(line, f"{'is the last one that can' if line else 'cannot'} be read: {reason}")


class _Reader:
    """Reads the records of one file in order."""

    def __init__(self) -> None:
        self._claude_code = ClaudeCode()

    def read(self, found: Record | Problem) -> RecordedCall | Problem | None:
        """The call of a record; None where the record belongs to its log and is no call."""
        if isinstance(found, Problem):
            return found
        members, shape = found.members, shape_of(found.members)
        if shape.name == CLAUDE_CODE:
            return self._claude_code.call(members, found.line)
        if shape.name == FINGERPRINTS:
            return _fingerprint(members, found.line)
        if _is_other_call(members, shape):
            return None
        call = _call(members, shape, found.line)
        if call.body is not None or call.usage is not None:
            return call
        if not all(is_utf8(raw) for raw in members.values()):
            return Problem(found.line, NOT_UTF8)
        # Steps of a program stand among the calls of models.
        is_step = shape.name == LANGFUSE
        return None if is_step else Problem(found.line, NO_CALL if shape is SHAPES[-1] else NO_CONTENT)


def _fingerprint(members: Members, line: int) -> RecordedCall | Problem:
    """A request that the proxy itself has written as digests and sizes."""
    try:
        told = read_line(msgspec.json.encode(members))
    except Unreadable as error:
        return Problem(line, f"holds {error}")
    return RecordedCall(
        line=line,
        log=FINGERPRINTS,
        at=told.record.at,
        client=told.client or FINGERPRINTS,
        session=told.session,
        model=told.model,
        wire=Wire.CHAT,
        body=None,
        usage=told.usage,
        gaps=frozenset({Gap.NO_USAGE} if told.usage is None else ()),
        profile=told.profile,
        record=told.record,
    )


def _is_other_call(members: Members, shape: Shape) -> bool:
    """Whether a record says by its URL or its type that it asks a model for no answer: pages, embeddings, images."""
    if shape.name == LITELLM:
        return bool(_OTHER_CALLS.search(first_text(members, ("call_type",))))
    path = _path(first_text(members, shape.url))
    return bool(path) and not path.endswith(_MODEL_PATHS) and (shape.name == HAR or bool(_OTHER_CALLS.search(path)))


def _call(members: Members, shape: Shape, line: int) -> RecordedCall:
    """The call of a record, as far as the record tells of one."""
    raws = (*(at_path(members, path) for path in shape.request), *_itself(members, shape))
    body = next((found for raw in raws if raw is not None and (found := request_in(raw)) is not None), None)
    usage = _usage(members, shape)
    request = members_in(body) if body is not None else {}
    model = first_text(request, ("model",)) or first_text(members, shape.model)
    if body is not None and request and "model" not in request:
        # A list of messages, whose model the record names.
        body = b'{"model":' + msgspec.json.encode(model) + b"," + body[1:]
    at = unix_seconds(first_value(members, shape.at))
    gaps = gaps_of(body, request) if body is not None else {Gap.NO_REQUEST}
    if Gap.REDACTED in gaps:
        body = None
    causes = (cause_in(at_path(members, path)) for path in shape.answer)
    return RecordedCall(
        line=line,
        log=shape.name,
        at=at,
        client=first_text(members, shape.client) or _agent(members) or shape.name,
        session=first_text(members, shape.session),
        model=model,
        wire=wire_of(request or {"messages": Raw(b"[]")}, _path(first_text(members, shape.url))),
        body=body,
        usage=usage,
        provider=first_text(members, ("custom_llm_provider",)),
        cause=next((cause for cause in causes if cause != UNTOLD), UNTOLD),
        gaps=frozenset(gaps | ({Gap.NO_USAGE} if usage is None else set()) | ({Gap.NO_TIME} if at is None else set())),
    )


def _itself(members: Members, shape: Shape) -> tuple[Raw, ...]:
    """A record of no product may be a request itself."""
    if shape is not SHAPES[-1] or not {"messages", "input"} & members.keys() or "model" not in members:
        return ()
    return (Raw(msgspec.json.encode(members)),)


def _usage(members: Members, shape: Shape) -> Usage | None:
    if shape.name == LANGFUSE:
        return langfuse_usage(members)
    found = first_usage(at_path(members, path) for path in shape.answer)
    return _litellm_usage(members) if found is None and shape.name == LITELLM else found


def _litellm_usage(members: Members) -> Usage | None:
    """The counters of a row, with those of the cache that LiteLLM puts beside them."""
    counted = {name: first_value(members, (name,)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    cached = first_value(members, ("metadata.additional_usage_values",))
    usage = usage_of({**(cached if isinstance(cached, dict) else {}), **counted})
    return usage if usage is not None and usage.prompt else None


def _agent(members: Members) -> str:
    """The name of the program in the user agent, without its version."""
    for path in _HEADERS:
        headers = first_value(members, (path,))
        pairs = list(headers.items()) if isinstance(headers, dict) else []
        if isinstance(headers, list):
            pairs = [(one.get("name"), one.get("value")) for one in headers if isinstance(one, dict)]
        for name, value in pairs:
            if str(name).lower() == "user-agent" and isinstance(value, str):
                return value.partition("/")[0].partition(" ")[0][:64]
    return ""


def _path(url: str) -> str:
    """The path of a URL; empty where it is none."""
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""
