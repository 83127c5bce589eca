"""The logs that are read, each as the names of its fields.

A record is of the first shape whose ``needs`` it has. Where several paths are given, the first that says something
counts. Sources: design of our own recordings (``proxy/replay/trace.py``); LiteLLM's table ``LiteLLM_SpendLogs``
(``schema.prisma``, 1.109) and what it stores in ``metadata``; Langfuse's observations as the table exports them
(camel case) and as the blob storage does (snake case, "Blob Storage Export Field Reference"); HAR 1.2
(http://www.softwareishard.com/blog/har-12-spec/); Claude Code 2.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.wire.json_body import Members


@dataclass(frozen=True, slots=True)
class Shape:
    """Where one product puts what is asked for here."""

    name: str
    needs: frozenset[str]
    at: Sequence[str]
    client: Sequence[str]
    session: Sequence[str]
    request: Sequence[str]
    answer: Sequence[str] = ()
    model: Sequence[str] = ("model",)
    url: Sequence[str] = ()


CLAUDE_CODE = "Claude Code"
LITELLM = "LiteLLM"
LANGFUSE = "Langfuse"
HAR = "HAR"
FINGERPRINTS = "fingerprints"
RECORDING = "Stratiform"
EXCHANGES = "requests and answers"

_LANGFUSE_TIME = ("startTime", "start_time")
_LANGFUSE_CLIENT = ("traceName", "trace_name", "userId", "user_id", "name")
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "x-claude-code-session-id", "session-id", "thread-id")

SHAPES = (
    Shape(
        name=FINGERPRINTS,
        needs=frozenset({"v", "session", "record"}),
        at=(),
        client=(),
        session=(),
        request=(),
    ),
    Shape(
        name=RECORDING,
        needs=frozenset({"t", "request"}),
        at=("t",),
        client=("client",),
        session=("session",),
        request=("request",),
        answer=("response",),
        url=("path",),
    ),
    Shape(
        name=LITELLM,
        needs=frozenset({"request_id", "startTime", "api_key"}),
        at=("startTime",),
        client=(
            "metadata.user_api_key_alias", "metadata.user_api_key_team_alias", "team_id", "end_user", "user", "api_key",
        ),
        session=("session_id",),
        request=("proxy_server_request", "messages"),
        answer=("metadata.usage_object", "response"),
        model=("model", "model_group"),
    ),
    *(
        Shape(
            name=LANGFUSE,
            needs=frozenset({"id", trace, time, "input"}),
            at=(time,),
            client=_LANGFUSE_CLIENT,
            session=("sessionId", "session_id", trace),
            request=("input",),
            model=("model", "providedModelName", "provided_model_name"),
        )
        for trace in ("traceId", "trace_id")
        for time in _LANGFUSE_TIME
    ),
    Shape(
        name=HAR,
        needs=frozenset({"startedDateTime", "request", "response"}),
        at=("startedDateTime",),
        client=(),
        session=(),
        request=("request.postData.text",),
        answer=("response.content",),
        url=("request.url",),
    ),
    *(
        Shape(
            name=CLAUDE_CODE,
            needs=needs,
            at=("timestamp",),
            client=(),
            session=("sessionId",),
            request=(),
        )
        # Snapshots and summaries belong to no session by name.
        for needs in (
            frozenset({"sessionId", "type"}), frozenset({"snapshot", "type"}), frozenset({"leafUuid", "type"}),
        )
    ),
    Shape(
        name=EXCHANGES,
        needs=frozenset(),
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
"""By how much they ask for; the last one takes every record."""


def shape_of(members: Members) -> Shape:
    """The shape of a record."""
    names = members.keys()
    return next(shape for shape in SHAPES if shape.needs <= names)
