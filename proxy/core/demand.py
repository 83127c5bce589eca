"""What a request asks for that costs money: the kind of call, how much of it, and what makes it dearer. Pure.

It is read from the path and from the small members of the body, never from the prompt. Servers differ in how they read
a value of a type that the API does not have (``"10"``, ``10.0``, ``true``): such a value counts at the largest reading
that any of them could have. A limit that some server could pass over is none, so that the model's own maximum holds; a
count that nobody can read is named in ``unclear``, and a key that has a budget is told so.

The limits by path: https://platform.openai.com/docs/api-reference/chat/create,
https://platform.openai.com/docs/api-reference/completions/create,
https://platform.openai.com/docs/api-reference/responses/create, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/generate-content#generationconfig. The provider bills ``best_of`` answers to each prompt, and
not ``n`` of them: https://platform.openai.com/docs/api-reference/completions/create#completions-create-best_of.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec import Raw


class Kind(StrEnum):
    """What a call is billed by."""

    TEXT = "text"
    """Tokens of a prompt and of answers."""
    PROMPT = "prompt"
    """Tokens of a prompt alone: embeddings, moderation."""
    RERANK = "rerank"
    IMAGE = "image"
    SPEECH = "speech"
    TRANSCRIPTION = "transcription"
    FREE = "free"
    UNKNOWN = "unknown"
    """A call of which nobody here can tell what it costs: training, batches, videos, runs of assistants."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One request's demand. ``max_output_tokens`` is how long each of ``answers`` may be, None where the request does
    not limit it."""

    kind: Kind = Kind.TEXT
    max_output_tokens: int | None = None
    answers: int = 1
    unclear: str = ""
    """The member that cannot be understood; empty where all can."""


@dataclass(frozen=True, slots=True)
class _Path:
    """How requests on paths with that ending are billed, and which members limit the answer there."""

    ending: str
    kind: Kind
    limits: Sequence[str] = ()


_CHAT = ("max_tokens", "max_completion_tokens")
_PATHS = (
    _Path("/threads/[^/]+/messages", Kind.FREE),
    _Path("/chat/completions", Kind.TEXT, _CHAT),
    _Path("/completions", Kind.TEXT, ("max_tokens",)),
    _Path("/responses(?:/compact)?", Kind.TEXT, ("max_output_tokens",)),
    _Path("/messages", Kind.TEXT, ("max_tokens",)),
    _Path(":(?:stream)?generatecontent", Kind.TEXT, ("maxOutputTokens", "max_output_tokens")),
    _Path("/embeddings|/moderations|:(?:batch)?embedcontents?", Kind.PROMPT),
    _Path("/rerank", Kind.RERANK),
    _Path("/images/(?:generations|edits|variations)", Kind.IMAGE),
    _Path("/audio/speech", Kind.SPEECH),
    _Path("/audio/(?:transcriptions|translations)", Kind.TRANSCRIPTION),
    _Path("/files|/uploads(?:/[^/]+(?:/(?:parts|complete|cancel))?)?|/responses/[^/]+/cancel", Kind.FREE),
    _Path("/messages/count_tokens|/responses/input_tokens|:counttokens|/(?:de)?tokenize", Kind.FREE),
    _Path("/conversations(?:/[^/]+(?:/items)?)?|/chat/completions/[^/]+", Kind.FREE),
    _Path("/threads(?:/[^/]+)?|/assistants(?:/[^/]+)?", Kind.FREE),
)
_BY_ENDING = tuple((re.compile(f"(?:{path.ending})$"), path) for path in _PATHS)
_PLAIN_PATH = re.compile(r"[\w./:@+-]*", re.ASCII)
_COUNTS = ("n", "best_of", "num_completions", "num_generations", "candidateCount", "candidate_count")
_SETTINGS = ("generationConfig", "generation_config")
_WITHOUT_ANSWER = frozenset({Kind.PROMPT, Kind.RERANK, Kind.FREE})
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
MEMBERS = (*_CHAT, "max_output_tokens", *_COUNTS[:4], *_SETTINGS, "prompt")
"""The members of a body that are read here."""

_LARGE_BYTES = 512 << 10
_MOST_NUMBER_BYTES = 1024
"""What is longer is no number: it is not read, for that could take long."""
_LARGEST = 1 << 53
"""A larger number is taken for this one: beyond it numbers of JSON are no exact counts."""
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


def demand_of(method: str, path: str, asked: Mapping[str, Raw | bytes] | None) -> Demand:
    """What a request demands. ``path`` is as the most lenient server reads it, in small letters; ``asked`` are those
    members of its body that ``MEMBERS`` names, None for a body that was not read."""
    found = _path_of(method, path)
    if found.kind in _WITHOUT_ANSWER:
        return Demand(found.kind, 0)
    if found.kind is not Kind.TEXT or asked is None:
        return Demand(found.kind)
    settings = [members for name in _SETTINGS if name in asked and (members := _object(asked[name])) is not None]
    sources = (asked, *settings)
    limits = [_limit(one[name]) for one in sources for name in found.limits if name in one and not _is_null(one[name])]
    answers, unclear = _answers(sources)
    if "prompt" in asked and found.ending == "/completions":
        prompts = _prompts(asked["prompt"])
        answers, unclear = answers * (prompts or 1), unclear or ("" if prompts else "prompt")
    known = [limit for limit in limits if limit is not None]
    limit = max(known) if known and len(known) == len(limits) else None
    return Demand(found.kind, limit, answers, unclear)


def _path_of(method: str, path: str) -> _Path:
    if method in _HARMLESS:
        return _Path("", Kind.FREE)
    if _PLAIN_PATH.fullmatch(path):
        for ending, found in _BY_ENDING:
            if ending.search(path):
                return found
    return _Path("", Kind.UNKNOWN)


def _answers(sources: Sequence[Mapping[str, Raw | bytes]]) -> tuple[int, str]:
    """How many answers each prompt has at the most, and the first member that cannot be read."""
    most, unclear = 1, ""
    for source in sources:
        for name in _COUNTS:
            if name in source:
                count = _count(source[name])
                most, unclear = max(most, count or 1), unclear or ("" if count else name)
    return most, unclear


def _limit(raw: Raw | bytes) -> int | None:
    """A limit that every server reads alike; None for one that some may pass over."""
    found = _value(raw)
    return min(found, _LARGEST) if type(found) is int and found > 0 else None


def _count(raw: Raw | bytes) -> int | None:
    """The largest count that a server could read; None where none could read any."""
    found = _value(raw)
    if isinstance(found, str):
        found = _number(found)
    if found is None:
        return 1 if _is_null(raw) else None
    if isinstance(found, bool):
        return 1
    if isinstance(found, int | float) and math.isfinite(found):
        return max(1, min(math.ceil(found), _LARGEST))
    return None


def _number(text: str) -> float | None:
    try:
        return float(text.strip().replace("_", ""))
    except ValueError:
        return None


def _prompts(raw: Raw | bytes) -> int | None:
    """How many prompts the member is: a string or an array of token ids is one; None for what is neither."""
    text = bytes(raw)
    if text[:1] != b"[":
        return 1 if text[:1] in b'"n' else None
    if len(text) > _LARGE_BYTES:
        # Commas inside of strings count, too: too many rather than too few, and nothing is built.
        return text.count(b",") + 1
    try:
        found = _ARRAY.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.count(b",") + 1
    tokens = sum(1 for one in found if bytes(memoryview(one)[:1]) in b"-0123456789")
    return len(found) - tokens + (tokens > 0) or 1


def _is_null(raw: Raw | bytes) -> bool:
    return bytes(memoryview(raw)[:4]) == b"null"


def _value(raw: Raw | bytes) -> object:
    if len(raw) > _MOST_NUMBER_BYTES:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _object(raw: Raw | bytes) -> Mapping[str, Raw] | None:
    try:
        return _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
