"""The request within a logged value, and the usage within a logged answer, however deep a product has put them."""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from proxy.core.response.miss_diagnostics import UNTOLD, cause_of
from proxy.core.response.usage import Counts, Usage, counts_of
from proxy.core.wire.json_body import Members, small_value
from proxy.doctor.readers.call import Gap, Wire
from proxy.doctor.readers.fields import content, first_byte, members_in

# A value may be wrapped: {"method": ..., "body": "{...}"}, {"content": {"text": "..."}}.
_WRAPPERS = (
    "body", "request_body", "requestBody", "postData", "text", "json", "data", "content", "kwargs", "response",
    "message", "result",
)  # fmt: skip
_DEEPEST = 4
_USAGE_BYTES = 64 << 10
_DIAGNOSTICS = ("diagnostics", "prompt_cache_diagnostics")
_USAGE_NAMES = ("usage", "usageMetadata", "usage_metadata", "x_groq", "amazon-bedrock-invocationMetrics")
# A text of nothing else; a prompt that merely speaks of it holds more words.
_REDACTED = re.compile(rb'"(?:redacted-by-litellm|REDACTED_BY_LITELM|[\[<(]?redacted[\])>]?|\*{3,8})"', re.IGNORECASE)
_CUT = re.compile(rb"\(litellm_truncated skipped \d+ chars|<truncated due to size exceeding limit")
# What only Anthropic's messages have, where no path tells.
_MESSAGES_ONLY = frozenset({"system", "anthropic_version", "anthropic_beta", "stop_sequences", "thread"})
_ITEMS = re.compile(rb"\[\s*\{")
_MESSAGES_TOOL = re.compile(rb'"input_schema"\s*:')
_MESSAGES_BLOCK = re.compile(rb'"type"\s*:\s*"(?:tool_use|tool_result|thinking)"')


def request_in(raw: Raw | bytes | None, depth: int = 0) -> bytes | None:
    """The body of the request that a value is, holds, or is the list of messages of; None where there is none."""
    text = content(raw)
    if text[:1] == b"[":
        return b'{"messages":' + text + b"}" if _is_list_of_messages(text) else None
    members = members_in(text)
    if _is_list(members, "messages") or _is_responses(members):
        return text
    if depth < _DEEPEST:
        for name in _WRAPPERS:
            if name in members and (found := request_in(members[name], depth + 1)) is not None:
                return found
    return None


def wire_of(members: Members, path: str) -> Wire:
    """The form of a request body; ``path`` is that of its URL, where it is known."""
    path = path.partition("?")[0].rstrip("/")
    for ending, wire in (("/messages", Wire.MESSAGES), ("/responses", Wire.RESPONSES), ("/completions", Wire.CHAT)):
        if path.endswith(ending):
            return wire
    if "messages" not in members:
        return Wire.RESPONSES
    is_anthropic = not _MESSAGES_ONLY.isdisjoint(members) or (
        _MESSAGES_TOOL.search(bytes(members.get("tools", b""))) is not None
        or _MESSAGES_BLOCK.search(bytes(members["messages"])) is not None
    )
    return Wire.MESSAGES if is_anthropic else Wire.CHAT


def gaps_of(body: bytes, members: Members) -> set[Gap]:
    """What a logging product has taken out of a body, and what the provider keeps instead of it."""
    gaps = set()
    if _REDACTED.search(body):
        gaps.add(Gap.REDACTED)
    if _CUT.search(body):
        gaps.add(Gap.CUT)
    if _says_something(members.get("previous_response_id")) or _says_something(members.get("conversation")):
        gaps.add(Gap.NO_PROMPT_START)
    if _says_something(members_in(members.get("thread")).get("previous_message_id")):
        gaps.add(Gap.NO_PROMPT_START)
    return gaps


def usage_in(raw: Raw | bytes | None) -> Usage | None:
    """The usage in an answer: an object, the text of one, or the text of a stream of events."""
    counts = _counts(content(raw), 0)
    return None if counts is None else counts.usage()


def _counts(text: bytes, depth: int) -> Counts | None:
    if text[:1] != b"{":
        return _streamed(text)
    members = members_in(text)
    found = counts_of(_reports(members))
    for name in _WRAPPERS if depth < _DEEPEST else ():
        if found is None and name in members:
            found = _counts(content(members[name]), depth + 1)
    return found


def cause_in(raw: Raw | bytes | None) -> str:
    """What the provider itself says of a miss, in an answer or in the text of a stream."""
    text = content(raw)
    if b"diagnostics" not in text:
        return UNTOLD
    payloads = [text] if text[:1] == b"{" else [line[5:] for line in text.splitlines() if line.startswith(b"data:")]
    for payload in payloads:
        members = members_in(payload)
        for part in (members, *(members_in(members.get(name)) for name in _WRAPPERS if name in members)):
            small = {name: small_value(part[name], _USAGE_BYTES) for name in _DIAGNOSTICS if name in part}
            if (cause := cause_of(small)) != UNTOLD:
                return cause
    return UNTOLD


def _streamed(text: bytes) -> Counts | None:
    """The counters of all events that have some."""
    counts = None
    for line in text.splitlines() if b"data:" in text else ():
        if b"sage" in line and line.startswith(b"data:"):
            event = small_value(line[5:].strip(), _USAGE_BYTES)
            if isinstance(event, dict):
                counts = counts_of(event, counts)
    return counts


def _reports(members: Members) -> Mapping[str, object]:
    """The members that may hold counters, and the counters of an object that is a usage itself."""
    return {
        name: value
        for name, raw in members.items()
        if (name in _USAGE_NAMES or len(raw) < 32 or name.endswith(("_details", "cache_creation")))
        and (value := small_value(raw, _USAGE_BYTES)) is not None
    }


def _is_responses(members: Members) -> bool:
    """Whether these are the members of a Responses request, and not of one for embeddings."""
    asked = bytes(members.get("input", b""))
    is_asked = asked[:1] == b'"' or bool(_ITEMS.match(asked))
    return is_asked and "model" in members and b"embed" not in bytes(members["model"])


def _is_list(members: Members, name: str) -> bool:
    return name in members and first_byte(members[name]) == b"["


def _is_list_of_messages(text: bytes) -> bool:
    try:
        found = msgspec.json.decode(text, type=list[dict[str, Raw]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return bool(found) and all("role" in message for message in found)


def _says_something(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) not in (b"null", b'""', b"{}")


def first_usage(raws: Iterable[Raw | None]) -> Usage | None:
    """The first usage that one of the answers holds."""
    return next((found for raw in raws if raw is not None and (found := usage_in(raw)) is not None), None)
