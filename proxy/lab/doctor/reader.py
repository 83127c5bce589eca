"""Reads the calls of log files of any known product.

If a value cannot be read, only its record is lost. It is reported as a ``Problem`` with its line. ``SHAPES`` are the
shapes of the logs that can be read: for each log, the names of its fields. A record is of the first shape whose
``needs`` it has. If several paths are given, the first one with a value counts.
Sources: design of our own recordings (``proxy.lab``); LiteLLM's table ``LiteLLM_SpendLogs``
(``schema.prisma``, 1.109) and what it stores in ``metadata``; Langfuse's observations as the table exports them
(camel case) and as the blob storage does (snake case, "Blob Storage Export Field Reference"); HAR 1.2
(http://www.softwareishard.com/blog/har-12-spec/); Claude Code 2.1.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, structs

from proxy.kit.lru import LastUsed
from proxy.kit.value import dataclass
from proxy.lab import UNREADABLE, opened
from proxy.lab.doctor.records import (
    MODEL_PATHS,
    NOT_UTF8,
    LoggedCall,
    MissingPart,
    Problem,
    answer_in,
    at_path,
    first_text,
    first_value,
    gaps_of,
    is_chat,
    is_utf8,
    members_in,
    records,
    request_in,
    unix_seconds,
)
from proxy.planner.record import read_line
from proxy.protocol.response.usage import Usage, usage_of
from proxy.protocol.wire.json_body import Members, Unreadable

CLAUDE_CODE = "Claude Code"
LITELLM = "LiteLLM"
LANGFUSE = "Langfuse"
HAR = "HAR"
FINGERPRINTS = "fingerprints"
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "x-claude-code-session-id", "session-id", "thread-id")


@dataclass(frozen=True, slots=True)
class Shape:
    """The places where one product puts the fields that are read here. ``needs`` are sets of names; a record must have
    all names of one set."""

    name: str
    needs: Sequence[frozenset[str]]
    at: Sequence[str] = ()
    client: Sequence[str] = ()
    session: Sequence[str] = ()
    request: Sequence[str] = ()
    answer: Sequence[str] = ()
    model: Sequence[str] = ("model",)
    url: Sequence[str] = ()


SHAPES = (
    Shape(name=FINGERPRINTS, needs=[frozenset({"v", "session", "record"})]),
    Shape(
        name="Stratiform",
        needs=[frozenset({"t", "request"})],
        at=("t",),
        client=("client",),
        session=("session",),
        request=("request",),
        answer=("response",),
        url=("path",),
    ),
    Shape(
        name=LITELLM,
        needs=[frozenset({"request_id", "startTime", "api_key"})],
        at=("startTime",),
        client=(
            "metadata.user_api_key_alias", "metadata.user_api_key_team_alias", "team_id", "end_user", "user", "api_key",
        ),
        session=("session_id",),
        request=("proxy_server_request", "messages"),
        answer=("metadata.usage_object", "response"),
        model=("model", "model_group"),
    ),
    Shape(
        name=LANGFUSE,
        needs=[
            frozenset({"id", trace, time, "input"})
            for trace in ("traceId", "trace_id")
            for time in ("startTime", "start_time")
        ],
        at=("startTime", "start_time"),
        client=("traceName", "trace_name", "userId", "user_id", "name"),
        session=("sessionId", "session_id", "traceId", "trace_id"),
        request=("input",),
        model=("model", "providedModelName", "provided_model_name"),
    ),
    Shape(
        name=HAR,
        needs=[frozenset({"startedDateTime", "request", "response"})],
        at=("startedDateTime",),
        request=("request.postData.text",),
        answer=("response.content",),
        url=("request.url",),
    ),
    Shape(
        name=CLAUDE_CODE,
        # Snapshots and summaries name no session.
        needs=[frozenset({name, "type"}) for name in ("sessionId", "snapshot", "leafUuid")],
        at=("timestamp",),
        session=("sessionId",),
        answer=("message",),
        model=("message.model",),
    ),
    Shape(
        name="requests and answers",
        needs=[frozenset()],
        at=("t", "time", "timestamp", "ts", "at", "created_at", "created", "start_time", "startTime", "datetime"),
        client=("client", "app", "application", "service", "user", "team", "key_alias", "request.user", "body.user"),
        session=(
            "session", "session_id", "sessionId", "conversation_id", "thread_id", "request.metadata.session_id",
            *(f"{where}.{name}" for where in ("headers", "request.headers") for name in _SESSION_HEADERS),
        ),
        request=("request", "req", "request_body", "requestBody", "body", "input", "kwargs", "payload"),
        answer=("response", "resp", "response_body", "responseBody", "output", "result", "completion", "usage"),
        model=("model", "response.model"),
        url=("path", "url", "endpoint", "request.url", "request.path"),
    ),
)  # fmt: skip
"""The shapes, sorted by how much they need. The last one takes every record."""

_INPUT, _OUTPUT = ("prompt_tokens", "promptTokens", "inputUsage"), ("completion_tokens", "completionTokens")
_DETAILS = ("usageDetails", "usage_details", "usage", "metadata.additional_usage_values")
COUNTERS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        name: (*(f"{details}.{each}" for details in _DETAILS for each in (*nested, *tops)), *tops)
        for name, nested, tops in (
            ("prompt_tokens", ("input", "input_tokens"), _INPUT),
            ("completion_tokens", ("output", "output_tokens"), (*_OUTPUT, "outputUsage")),
            (
                "cache_read_input_tokens",
                ("input_cached_tokens", "input_cache_read", "cached_tokens", "input_cached"),
                ("cache_read_input_tokens",),
            ),
            (
                "cache_creation_input_tokens",
                ("input_cache_creation", "input_cache_write", "input_cache_creation_5m"),
                ("cache_creation_input_tokens",),
            ),
            ("total_tokens", ("total",), ("total_tokens", "totalUsage")),
        )
    }
)
"""The paths of the counters of the products that have their own counters, LiteLLM and Langfuse."""


NO_CALL = "tells of no call of a model"
NO_CONTENT = "holds a call without its content"
_PROGRESS_RECORDS = 16
_OTHER_CALLS = re.compile(r"embed|image|audio|speech|transcri|rerank|moderat|count_tokens|files|batch")
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".har", ".csv", ".log")
_COMPRESSED = (".xz", ".gz", ".bz2")
_LOGS = tuple(suffix + packed for suffix in _SUFFIXES for packed in ("", *_COMPRESSED))
NONE_READ = "holds no call of a model that can be read"
_AGENT = re.compile(r"[^/ ]{0,64}")
# The blocks of one answer in Claude Code's files are close together. Blocks of a sub-agent may be between them.
_REMEMBERED = 64


Progress = Callable[[Path, int, int], None]
"""Called with a file, how many of its bytes were read, and how many bytes it has."""


def read_logs(paths: Sequence[Path], on_progress: Progress) -> Iterator[tuple[Path, LoggedCall | Problem]]:
    """Everything in the named files, and in the logs of the named folders, by name."""
    for named in dict.fromkeys(paths):
        files = [named]
        if named.is_dir():
            files = sorted(file for file in named.rglob("*") if file.name.endswith(_LOGS) and file.is_file())
            yield named, Problem(line=0, text=f"is a directory: the {len(files):,} logs in it are read")
        for path in files:
            calls = read_calls(path, partial(on_progress, path))
            # A file without a call is a problem of its own.
            yield path, next(calls, Problem(line=0, text=NONE_READ))
            yield from ((path, found) for found in calls)


def read_calls(path: Path, on_progress: Callable[[int, int], None]) -> Iterator[LoggedCall | Problem]:
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

    def read(self, line: int, members: Members) -> LoggedCall | Problem | None:
        """The call of a record; None if the record belongs to its log but is not a call."""
        shape = next(shape for shape in SHAPES if any(needs <= members.keys() for needs in shape.needs))
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

    def _claude_code(self, members: Members, call: LoggedCall) -> LoggedCall | None:
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


def _fingerprint(line: int, members: Members) -> LoggedCall | Problem:
    """A request that the proxy itself has logged as digests and sizes."""
    try:
        told = read_line(msgspec.json.encode(members))
    except Unreadable as error:
        return Problem(line=line, text=f"holds {error}")
    return LoggedCall(
        line=line,
        at=told.record.at,
        client=told.client or FINGERPRINTS,
        session=told.session,
        model=told.model,
        usage=told.usage,
        gaps=frozenset({MissingPart.NO_USAGE} if told.usage is None else ()),
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


def _call(line: int, members: Members, shape: Shape) -> LoggedCall:
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
    gaps = gaps_of(body, request) if body is not None else {MissingPart.NO_REQUEST}
    gaps |= {gap for gap, value in ((MissingPart.NO_USAGE, usage), (MissingPart.NO_TIME, at)) if value is None}
    return LoggedCall(
        line=line,
        at=at,
        client=first_text(members, shape.client) or _agent(members) or shape.name,
        session=first_text(members, shape.session),
        model=model,
        is_chat=body is None or is_chat(request, _path(members, shape)),
        body=None if MissingPart.REDACTED in gaps else body,
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
