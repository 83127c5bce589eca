"""The shapes of the logs that can be read: for each log, the names of its fields.

A record is of the first shape whose ``needs`` it has. If several paths are given, the first one with a value counts.
Sources: design of our own recordings (``proxy/replay/trace.py``); LiteLLM's table ``LiteLLM_SpendLogs``
(``schema.prisma``, 1.109) and what it stores in ``metadata``; Langfuse's observations as the table exports them
(camel case) and as the blob storage does (snake case, "Blob Storage Export Field Reference"); HAR 1.2
(http://www.softwareishard.com/blog/har-12-spec/); Claude Code 2.1.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from proxy.core.value import dataclass
from proxy.core.wire.json_body import Members

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


def shape_of(members: Members) -> Shape:
    """The shape of a record."""
    return next(shape for shape in SHAPES if any(needs <= members.keys() for needs in shape.needs))
