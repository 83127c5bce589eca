"""Reads the calls of one log file of any known product.

If a value cannot be read, only its record is lost. It is reported as a ``Problem`` with its line.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, structs

from proxy.core.diagnosis.fingerprints import read_line
from proxy.core.lru import LastUsed
from proxy.core.response.usage import Usage, usage_of
from proxy.core.wire.json_body import Members, Unreadable
from proxy.doctor.readers.call import Call, Gap, Problem
from proxy.doctor.readers.exchange import (
    MODEL_PATHS,
    answer_in,
    at_path,
    first_text,
    first_value,
    gaps_of,
    is_chat,
    members_in,
    request_in,
    unix_seconds,
)
from proxy.doctor.readers.records import NOT_UTF8, is_utf8, records
from proxy.doctor.readers.shapes import (
    CLAUDE_CODE,
    COUNTERS,
    FINGERPRINTS,
    HAR,
    LANGFUSE,
    LITELLM,
    SHAPES,
    Shape,
    shape_of,
)
from proxy.replay.log_file import UNREADABLE, opened

NO_CALL = "tells of no call of a model"
NO_CONTENT = "holds a call without its content"
_PROGRESS_RECORDS = 16
_OTHER_CALLS = re.compile(r"embed|image|audio|speech|transcri|rerank|moderat|count_tokens|files|batch")
_AGENT = re.compile(r"[^/ ]{0,64}")
# The blocks of one answer in Claude Code's files are close together. Blocks of a sub-agent may be between them.
_REMEMBERED = 64


def read_calls(path: Path, on_progress: Callable[[int, int], None]) -> Iterator[Call | Problem]:
    """The calls of a file in its own order. ``on_progress`` gets the number of bytes read, and of all bytes."""
    line = 0
    try:
        size, reader = path.stat().st_size, _Reader()
        with opened(path) as (file, read_bytes):
            for number, found in enumerate(records(file)):
                line = found.line if isinstance(found, Problem) else found[0]
                call = found if isinstance(found, Problem) else reader.read(*found)
                if call is not None:
                    yield call
                if number % _PROGRESS_RECORDS == 0:
                    on_progress(read_bytes(), size)
            on_progress(size, size)
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged, or cut"
        yield Problem(line=line, text=f"{'is the last one that can' if line else 'cannot'} be read: {reason}")


class _Reader:
    """Reads the records of one file in order."""

    def __init__(self) -> None:
        self._seen: LastUsed[str, bool] = LastUsed(_REMEMBERED)
        self._compacted: set[str] = set()

    def read(self, line: int, members: Members) -> Call | Problem | None:
        """The call of a record; None if the record belongs to its log but is not a call."""
        shape = shape_of(members)
        if shape.name == FINGERPRINTS:
            return _fingerprint(line, members)
        if _is_other_call(members, shape):
            return None
        call = _call(line, members, shape)
        if shape.name == CLAUDE_CODE:
            return self._claude_code(members, call)
        if call.body is not None or call.usage is not None:
            return call
        if not all(is_utf8(raw) for raw in members.values()):
            return Problem(line=line, text=NOT_UTF8)
        # The records of model calls are mixed with records of a program's steps.
        is_step = shape.name == LANGFUSE
        return None if is_step else Problem(line=line, text=NO_CALL if shape is SHAPES[-1] else NO_CONTENT)

    def _claude_code(self, members: Members, call: Call) -> Call | None:
        """A line of Claude Code's own files. An answer has one line for each of its blocks, all with the same message
        id and usage. The system text and the tools are in no line. Other lines (the user's, snapshots, summaries) are
        not calls. A session's sub-agents have their own conversations."""
        agent, session = first_text(members, ("agentId",)), call.session
        if agent or first_value(members, ("isSidechain",)) is True:
            session += f"/{agent or 'agent'}"
        if (
            first_text(members, ("subtype",)) == "compact_boundary"
            or first_value(members, ("isCompactSummary",)) is True
        ):
            self._compacted.add(session)
        name, is_answer = first_text(members, ("message.id",)), first_text(members, ("type",)) == "assistant"
        if not is_answer or call.usage is None or not call.usage.prompt or self._seen.find(name):
            return None
        self._seen.put(name, bool(name))
        is_compacted = session in self._compacted
        self._compacted.discard(session)
        return structs.replace(call, client="claude-code", session=session, is_chat=False, is_compacted=is_compacted)


def _fingerprint(line: int, members: Members) -> Call | Problem:
    """A request that the proxy itself has logged as digests and sizes."""
    try:
        told = read_line(msgspec.json.encode(members))
    except Unreadable as error:
        return Problem(line=line, text=f"holds {error}")
    return Call(
        line=line,
        at=told.record.at,
        client=told.client or FINGERPRINTS,
        session=told.session,
        model=told.model,
        usage=told.usage,
        gaps=frozenset({Gap.NO_USAGE} if told.usage is None else ()),
        profile=told.profile,
        record=told.record,
    )


def _is_other_call(members: Members, shape: Shape) -> bool:
    """Whether the URL or the type of a record shows that it does not ask a model for an answer: pages, embeddings,
    images."""
    if shape.name == LITELLM:
        return bool(_OTHER_CALLS.search(first_text(members, ("call_type",))))
    path = _path(members, shape)
    return bool(path) and not path.endswith(MODEL_PATHS) and (shape.name == HAR or bool(_OTHER_CALLS.search(path)))


def _call(line: int, members: Members, shape: Shape) -> Call:
    """The call of a record, as far as the record describes it."""
    raws = [raw for path in shape.request if (raw := at_path(members, path)) is not None]
    if shape is SHAPES[-1] and {"messages", "input"} & members.keys() and "model" in members:
        # A record that is from no known product may be a request itself.
        raws.append(Raw(msgspec.json.encode(members)))
    body = next((found for raw in raws if (found := request_in(raw)) is not None), None)
    usage, cause = answer_in(at_path(members, path) for path in shape.answer)
    if usage is None and shape.name in (LITELLM, LANGFUSE):
        usage = _counted(members)
    request: Mapping[str, Raw] = members_in(body)
    model = first_text(request, ("model",)) or first_text(members, shape.model)
    if body is not None and request and "model" not in request:
        # The body is a list of messages; the record names the model.
        body = b'{"model":' + msgspec.json.encode(model) + b"," + body[1:]
    at = unix_seconds(first_value(members, shape.at))
    gaps = gaps_of(body, request) if body is not None else {Gap.NO_REQUEST}
    gaps |= {gap for gap, value in ((Gap.NO_USAGE, usage), (Gap.NO_TIME, at)) if value is None}
    return Call(
        line=line,
        at=at,
        client=first_text(members, shape.client) or _agent(members) or shape.name,
        session=first_text(members, shape.session),
        model=model,
        is_chat=body is None or is_chat(request, _path(members, shape)),
        body=None if Gap.REDACTED in gaps else body,
        usage=usage,
        provider=first_text(members, ("custom_llm_provider",)),
        cause=cause,
        gaps=frozenset(gaps),
    )


def _counted(members: Members) -> Usage | None:
    """The usage by a product's own counters; None if there are none, as in spans and events.

    Langfuse's ``input`` excludes the tokens that the cache read and wrote if an integration follows Langfuse's advice
    ("Token and cost tracking": the counters of a usage exclude each other). It includes them if an integration passes
    the provider's own count on. The total tells which case it is.
    """
    report = {name: first_value(members, paths, int) or 0 for name, paths in COUNTERS.items()}
    if not report["total_tokens"]:
        # These counters exclude each other, so the total is the sum of all of them.
        report["total_tokens"] = sum(each for each in report.values() if isinstance(each, int))
    usage = usage_of(report)
    return usage if usage is not None and usage.prompt else None


def _agent(members: Members) -> str:
    """The name of the program in the user agent, without its version. In HAR, the headers are a list."""
    told = first_value(members, ("request.headers", "headers"))
    headers = told if isinstance(told, list) else []
    if isinstance(told, dict):
        headers = [{"name": name, "value": value} for name, value in told.items()]
    named = (each for each in headers if isinstance(each, dict) and str(each.get("name")).lower() == "user-agent")
    found = _AGENT.match(next((str(each.get("value")) for each in named), ""))
    return found[0] if found is not None else ""


def _path(members: Members, shape: Shape) -> str:
    """The path of a record's URL; empty if it has no URL."""
    try:
        return urlsplit(first_text(members, shape.url)).path.rstrip("/")
    except ValueError:
        return ""
