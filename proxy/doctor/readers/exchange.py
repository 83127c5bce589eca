"""Finds the request within a logged value, and the usage within a logged answer, however deeply they are nested.

Values are looked up in raw members, also if a value is a string that holds JSON.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Raw

from proxy.core.response.miss_diagnostics import UNTOLD, cause_of
from proxy.core.response.usage import Usage, counts_of
from proxy.core.wire.json_body import Members, Unreadable, parse_members, small_value
from proxy.doctor.readers.call import Gap
from proxy.errors import InvalidRequest

_SMALL_BYTES = 64 << 10
# A number counts seconds, milliseconds or microseconds: a time thousands of years away is read in the next unit.
_UNITS, _MOST_SECONDS = (1, 1e3, 1e6), 1e11


def members_in(raw: Raw | bytes | None) -> Members:
    """The members of a value that is an object, or a string that holds one. Any other value has no members."""
    text = content(raw)
    if text[:1] != b"{":
        return {}
    try:
        return parse_members(text)
    except (InvalidRequest, Unreadable):
        return {}


def content(raw: Raw | bytes | None) -> bytes:
    """The bytes of a value; for a string, the bytes of its text."""
    text = b"" if raw is None else bytes(raw).strip()
    if text[:1] != b'"':
        return text
    try:
        return msgspec.json.decode(text, type=str).encode().strip()
    except (msgspec.DecodeError, UnicodeError):
        return b""


def at_path(members: Members, path: str) -> Raw | None:
    """The value at a path of names with dots between them."""
    *outer, last = path.split(".")
    for name in outer:
        members = members_in(members.get(name))
    return members.get(last)


def first_value(members: Members, paths: Sequence[str], kinds: type | tuple[type, ...] = object) -> object:
    """The first small value at one of the paths that is not empty and is of one of the kinds."""
    found = (small_value(raw, _SMALL_BYTES) for path in paths if (raw := at_path(members, path)) is not None)
    return next((one for one in found if one not in (None, "", {}, []) and isinstance(one, kinds)), None)


def first_text(members: Members, paths: Sequence[str]) -> str:
    """The first text at one of the paths; a number counts as one."""
    found = first_value(members, paths, (str, int, float))
    return "" if found is None or isinstance(found, bool) else str(found)


def unix_seconds(value: object) -> float | None:
    """Unix seconds of a number or of an ISO 8601 text; None for anything else. A text without a time zone is UTC."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
            return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return next((number / unit for unit in _UNITS if abs(number) / unit < _MOST_SECONDS), None)


# A value may be wrapped: {"method": ..., "body": "{...}"}, {"content": {"text": "..."}}.
_WRAPPERS = (
    "body", "request_body", "requestBody", "postData", "text", "json", "data", "content", "kwargs", "response",
    "message", "result",
)  # fmt: skip
_DEEPEST = 4
_FEW_BYTES = 32
_REPORTS = frozenset({
    "usage", "usageMetadata", "usage_metadata", "x_groq", "amazon-bedrock-invocationMetrics", "diagnostics",
    "prompt_cache_diagnostics",
})  # fmt: skip
# A text that consists of nothing else. A prompt that merely mentions redaction holds more words.
_REDACTED = re.compile(rb'"(?:redacted-by-litellm|REDACTED_BY_LITELM|[\[<(]?redacted[\])>]?|\*{3,8})"', re.IGNORECASE)
_CUT = re.compile(rb"\(litellm_truncated skipped \d+ chars|<truncated due to size exceeding limit")
MODEL_PATHS = ("/completions", "/messages", "/responses")
# Members that only Anthropic's messages have. They decide if no path tells.
_MESSAGES_ONLY = frozenset({"system", "anthropic_version", "anthropic_beta", "stop_sequences", "thread"})
_MESSAGES_TOOL = re.compile(rb'"input_schema"\s*:')
_MESSAGES_BLOCK = re.compile(rb'"type"\s*:\s*"(?:tool_use|tool_result|thinking)"')
_ASKED = re.compile(rb'"|\[\s*\{')


def _layers(raw: Raw | bytes | None, depth: int = 0) -> Iterator[tuple[bytes, Members]]:
    """A value and the values that it wraps, the outermost first: the text of each, and its members if it is an
    object."""
    text = content(raw)
    members = members_in(text)
    yield text, members
    for name in _WRAPPERS if depth < _DEEPEST else ():
        if name in members:
            yield from _layers(members[name], depth + 1)


def request_in(raw: Raw | bytes | None) -> bytes | None:
    """The body of the request in a value. The value may be the request, hold it, or be the list of its messages. None
    if there is no request."""
    for text, members in _layers(raw):
        if text[:1] == b"[" and _is_list_of_messages(text):
            return b'{"messages":' + text + b"}"
        if bytes(members.get("messages", b""))[:1] == b"[" or _is_responses(members):
            return text
    return None


def _is_responses(members: Members) -> bool:
    """Whether these are the members of a Responses request, and not of a request for embeddings."""
    is_asked = _ASKED.match(bytes(members.get("input", b""))) is not None
    return is_asked and "model" in members and b"embed" not in bytes(members["model"])


def _is_list_of_messages(text: bytes) -> bool:
    try:
        found = msgspec.json.decode(text, type=list[dict[str, Raw]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return bool(found) and all("role" in message for message in found)


def is_chat(members: Members, path: str) -> bool:
    """Whether a body asks for a chat completion, not for one of Anthropic's messages or of OpenAI's Responses. ``path``
    is the path of its URL, if it is known."""
    if path.endswith(MODEL_PATHS):
        return path.endswith("/completions")
    is_messages = not _MESSAGES_ONLY.isdisjoint(members) or (
        _MESSAGES_TOOL.search(bytes(members.get("tools", b""))) is not None
        or _MESSAGES_BLOCK.search(bytes(members.get("messages", b""))) is not None
    )
    return "messages" in members and not is_messages


def gaps_of(body: bytes, members: Members) -> set[Gap]:
    """The parts that are missing in a body: a logging product has taken them out, or the provider keeps them."""
    parents = (
        members.get("previous_response_id"),
        members.get("conversation"),
        members_in(members.get("thread")).get("previous_message_id"),
    )
    found = {
        Gap.REDACTED: _REDACTED.search(body),
        Gap.CUT: _CUT.search(body),
        Gap.NO_PROMPT_START: any(raw and bytes(raw) not in (b"null", b'""', b"{}") for raw in parents),
    }
    return {gap for gap, is_there in found.items() if is_there}


def answer_in(raws: Iterable[Raw | None]) -> tuple[Usage | None, str]:
    """The first usage that one of the answers holds, and the cause of a miss that the provider itself reports. An
    answer is an object, the text of an object, or the text of a stream of events."""
    usage, cause = None, UNTOLD
    for events in (events for raw in raws for events in _reports(raw)):
        counts = None
        for event in events:
            counts = counts_of(event, counts)
            cause = cause_of(event) if cause == UNTOLD else cause
        usage = counts.usage() if usage is None and counts is not None else usage
    return usage, cause


def _reports(raw: Raw | None) -> Iterator[Sequence[Mapping[str, object]]]:
    """The objects that may hold counters in an answer, and in each of its layers. The events of a stream belong
    together."""
    for text, members in _layers(raw):
        small = {
            name: small_value(value, _SMALL_BYTES)
            for name, value in members.items()
            if name in _REPORTS or len(value) < _FEW_BYTES or name.endswith(("_details", "cache_creation"))
        }
        yield [{name: value for name, value in small.items() if value is not None}]
        if text[:1] != b"{" and b"data:" in text:
            told = (line for line in text.splitlines() if b"sage" in line or b"diagnostics" in line)
            events = (small_value(line[5:].strip(), _SMALL_BYTES) for line in told if line.startswith(b"data:"))
            yield [event for event in events if isinstance(event, dict)]
