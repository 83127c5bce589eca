"""The records of a log, and what is looked up in them.

``records`` reads a log one record at a time: lines of JSON, elements of an array in a JSON document, or rows of CSV. A
record is the raw members of one object, with its line. Anything else becomes a ``Problem`` with its line, and reading
goes on with the next record. At most one record is held in memory, and no record that is longer than ``LONGEST_BYTES``.

Values are looked up in raw members, also if a value is a string that holds JSON. ``request_in`` finds the request
within a logged value, and ``answer_in`` the usage within a logged answer, however deeply they are nested. A
``LoggedCall`` is one recorded call of a model from a log of any product.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from io import BufferedReader

import msgspec
from msgspec import Raw, Struct

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass
from proxy.planner.record import PromptRecord
from proxy.protocol.response.outcome import UNTOLD, cause_of
from proxy.protocol.response.usage import Usage, counts_of
from proxy.protocol.wire.json_body import Members, Unreadable, elements, parse_members, small_value

LineSigns = Mapping[int, str]
"""The evident kind of a line of a text ("time", "date", "random", "counter"), by line number; 0: the whole text."""


CutSizes = Sequence[tuple[str, str, bytes, int]]
"""The parts of a text that a recogniser knows: key, kind, digest and length in characters."""


class MissingPart(StrEnum):
    """A part of a call that a log does not hold. ``NO_PROMPT_START``: the provider keeps the beginning of the
    conversation, and the request holds only the new part."""

    NO_REQUEST = "request"
    REDACTED = "redacted"
    CUT = "cut"
    NO_USAGE = "usage"
    NO_TIME = "time"
    NO_PROMPT_START = "prompt-start"


class LoggedCall(Struct, frozen=True, array_like=True, kw_only=True):
    """``line`` is the call's line in its file. ``at`` is the time in unix seconds; None if the log does not tell it.
    ``client`` is the client that sent the prompt, as well as the log can tell, and ``session`` is a name of its
    conversation. ``provider`` is LiteLLM's name of the provider, and ``profile`` is the name of the cache rules.
    ``body`` holds the bytes of the request, and ``record`` the same request as digests; both are None if the log does
    not hold them. ``cause`` is the cause of a miss that the provider itself reports
    (``proxy.protocol.response.outcome``). ``is_chat``: a chat completion was asked for. ``is_compacted``: the
    client has just replaced its conversation by a summary. ``signs`` are the signs of the system texts, by the texts'
    digests. ``cuts`` are the parts of texts that a recogniser knows, also by the texts' digests. ``continues``: the
    provider keeps the conversation in front of the prompt."""

    line: int
    at: float | None
    client: str
    session: str
    model: str
    is_chat: bool = True
    provider: str = ""
    profile: str = ""
    body: bytes | None = None
    record: PromptRecord | None = None
    usage: Usage | None = None
    cause: str = UNTOLD
    gaps: frozenset[MissingPart] = frozenset()
    is_compacted: bool = False
    signs: Mapping[bytes, LineSigns] = {}
    cuts: Mapping[bytes, CutSizes] = {}
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that was left out of a file: ``count`` records for the same reason, the first at ``line`` (0: the whole
    file). ``text`` is a sentence whose subject is the line, or the file."""

    file: str = ""
    line: int
    count: int = 1
    text: str


LONGEST_BYTES = 64 << 20
_HEAD_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20

_NAMES = "log|entries|data|observations|traces|logs|rows|items|results|spend_logs"
_ENVELOPES = frozenset(_NAMES.split("|"))
# A document that holds an array of records, perhaps within one more object: {"log": {"entries": [...]}}.
_ENVELOPE = re.compile(rb'\{\s*+"(?:' + _NAMES.encode() + rb')"\s*+:\s*+[\[{]')
_LIST = re.compile(r'(?:^\s*|"(?:' + _NAMES + r')"\s*:\s*)\[\s*')
_BETWEEN = re.compile(r"[\s,]*+")
_HEADER = re.compile(rb'"?[A-Za-z_][\w. ]{0,100}+"?\s{0,4}+[,;\t]')
_ARRAY_OF_OBJECTS = re.compile(rb"\[\s*\{")

TOO_LONG = f"is longer than {LONGEST_BYTES >> 20} MB"
NOT_JSON = "is no JSON object; perhaps it is torn"
NOT_UTF8 = "holds text that is not valid UTF-8"
BROKEN = "begins an entry that is cut, damaged or too long: nothing behind it can be read"
_NO_ROW = "is no row of CSV"
_OTHER_COLUMNS = "has another number of columns than the first line"

Record = tuple[int, Members]
# A line number, and the JSON of the record that begins there or a sentence that says why there is no record.
_Piece = tuple[int, bytes | str]


def records(file: BufferedReader) -> Iterator[Record | Problem]:
    """The records of a file in its own order. Raises one of ``proxy.lab.UNREADABLE``."""
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES].lstrip()
    if not head:
        yield Problem(line=0, text="is empty")
    is_table = head[:1] not in b"{[" and _HEADER.match(head)
    first, end, _ = head.partition(b"\n")
    # Or it is one JSON value over several lines.
    is_spread = head[:1] == b"{" and end and first.rstrip().endswith((b"{", b"[", b",", b":"))
    is_document = head[:1] == b"[" or _ENVELOPE.match(head) or is_spread
    container = _elements if is_document else _rows if is_table else _lines
    for line, piece in container(file):
        if isinstance(piece, str):
            yield Problem(line=line, text=piece)
        else:
            yield from _parsed(piece, line)


def _parsed(raw: bytes, line: int) -> Iterator[Record | Problem]:
    """The record; for an envelope of several records, the records inside."""
    try:
        members = parse_members(raw)
        arrays = [members[name] for name in members.keys() & _ENVELOPES if _ARRAY_OF_OBJECTS.match(members[name])]
        parts = [part for array in arrays for part in elements(array, most=None)]
    except (InvalidRequest, Unreadable):
        yield Problem(line=line, text=NOT_JSON if is_utf8(raw) else NOT_UTF8)
        return
    if not parts:
        yield line, members
    for part in parts:
        yield from _parsed(bytes(part), line)


def is_utf8(raw: Raw | bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    try:
        str(memoryview(raw), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _lines(file: BufferedReader) -> Iterator[_Piece]:
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_BYTES), b""), 1):
        if len(line) < LONGEST_BYTES or line[-1:] == b"\n":
            if not line.isspace():
                yield number, line
            continue
        while (rest := file.readline(_CHUNK_BYTES)) and rest[-1:] != b"\n":
            pass
        yield number, TOO_LONG


def _elements(file: BufferedReader) -> Iterator[_Piece]:
    """The elements of a document's list. If one is damaged, the beginning of the next one cannot be found."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    decoder, text, at, line, is_inside = json.JSONDecoder(), "", 0, 1, False
    while True:
        begin = _BETWEEN.match(text, at) if is_inside else _LIST.search(text)
        end = at
        if begin is not None:
            is_inside, end = True, begin.end()
            line, at = line + text.count("\n", at, end), end
            if text.startswith("]", at):
                return
            with suppress(ValueError, RecursionError):
                end = decoder.raw_decode(text, at)[1]
        if end > at:
            yield line, text[at:end].encode("utf-8", "surrogateescape")
            line, at = line + text.count("\n", at, end), end
            continue
        # Each read is larger than the one before, because an unfinished element is parsed anew each time.
        rest = text[at:]
        chunk = file.read(max(_CHUNK_BYTES, len(rest))) if len(rest) <= LONGEST_BYTES else b""
        if not chunk:
            yield line, BROKEN if is_inside else NOT_JSON
            return
        text, at = rest + decode(chunk), 0


def _rows(file: BufferedReader) -> Iterator[_Piece]:
    """The rows of CSV as objects. A cell that holds JSON becomes the value that it holds."""
    csv.field_size_limit(LONGEST_BYTES)
    first = file.peek(_CHUNK_BYTES).partition(b"\n")[0]
    comma = max(",;\t", key=lambda mark: first.count(mark.encode()))
    lines = (line.decode("utf-8", "surrogateescape") for line in iter(lambda: file.readline(LONGEST_BYTES), b""))
    reader, names = csv.reader(lines, delimiter=comma), list[str]()
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error:
            yield line, _NO_ROW
            continue
        if row is None:
            return
        if not names:
            names = row
        elif row and len(row) != len(names):
            yield line, _OTHER_COLUMNS
        elif row:
            cells = (_text(name) + b":" + _cell(text) for name, text in zip(names, row, strict=True) if text)
            yield line, b"{" + b",".join(cells) + b"}"


def _cell(text: str) -> bytes:
    if text[0] in '{["' or text[0].isdigit():
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return bytes(msgspec.json.decode(text.encode(), type=Raw))
    return _text(text)


def _text(text: str) -> bytes:
    """The text as a JSON string. Bytes that were not UTF-8 are restored."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")


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
        # A Responses request, and not one for embeddings.
        is_asked = _ASKED.match(bytes(members.get("input", b""))) is not None
        is_responses = is_asked and "model" in members and b"embed" not in bytes(members["model"])
        if is_responses or bytes(members.get("messages", b""))[:1] == b"[":
            return text
    return None


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


def gaps_of(body: bytes, members: Members) -> set[MissingPart]:
    """The parts that are missing in a body: a logging product has taken them out, or the provider keeps them."""
    parents = (
        members.get("previous_response_id"),
        members.get("conversation"),
        members_in(members.get("thread")).get("previous_message_id"),
    )
    found = {
        MissingPart.REDACTED: _REDACTED.search(body),
        MissingPart.CUT: _CUT.search(body),
        MissingPart.NO_PROMPT_START: any(raw and bytes(raw) not in (b"null", b'""', b"{}") for raw in parents),
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
