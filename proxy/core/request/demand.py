"""The parts of a request that cost money: the kind of call, its size, and what makes it dearer. Pure.

The demand is read from the path and from the small members of the body, never from the prompt. Servers differ in how
they read a value of a type that the API does not have (``"10"``, ``10.0``, ``true``): such a value counts as the
largest number that any server could read. A limit that some server could ignore does not count as a limit, so the
model's own maximum holds. A count that no server can read is named in ``unclear``, and a client whose key has a budget
is told about it.

The limits by path: https://platform.openai.com/docs/api-reference/chat/create,
https://platform.openai.com/docs/api-reference/completions/create,
https://platform.openai.com/docs/api-reference/responses/create, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/generate-content#generationconfig. For each prompt, the provider bills ``best_of`` answers,
not ``n``: https://platform.openai.com/docs/api-reference/completions/create#completions-create-best_of.
"""

import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Raw

from proxy.core.request import wants
from proxy.core.request.wants import COUNTS, LARGEST, PLAIN, Wants, positive, small_object, wants_of
from proxy.core.value import dataclass, replace
from proxy.core.wire.json_body import small_value

Asked = Mapping[str, Raw | bytes]
"""Members of a body, unparsed."""


class Kind(StrEnum):
    """The quantity by which a call is billed."""

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
    """A call whose cost the proxy cannot tell: training, batches, videos, runs of assistants."""


UNIT_KINDS = frozenset({Kind.IMAGE, Kind.SPEECH, Kind.TRANSCRIPTION, Kind.RERANK})
"""Calls that cost something although their answers report no tokens."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One request's demand. ``max_output_tokens`` is the greatest length of each of the ``answers``; None if the
    request does not limit it."""

    kind: Kind = Kind.TEXT
    max_output_tokens: int | None = None
    answers: int = 1
    least_output_tokens: int = 0
    """For a request without a valid limit: a number that some server may take for a limit. An answer may be at least
    that long."""
    predicted_tokens: int = 0
    """How many tokens of a predicted answer may be billed as output beside each answer, counted by its bytes:
    https://platform.openai.com/docs/guides/predicted-outputs#limitations."""
    unclear: str = ""
    """The member that cannot be understood; empty if all can be understood."""
    wants: Wants = PLAIN
    images: int = 0
    documents: int = 0
    characters: int = 0
    """The characters of the text that is to be spoken, at most."""
    seconds: float = 0.0
    """The seconds of sound that are to be made or transcribed, at most."""


@dataclass(frozen=True, slots=True)
class _Path:
    """How requests on paths with this ending are billed, and which members limit the answer there. ``calls`` is the
    member that limits the calls of tools (``wants_of``)."""

    ending: str
    kind: Kind
    limits: Sequence[str] = ()
    calls: str = ""


_CHAT = ("max_tokens", "max_completion_tokens")
_OVERRIDING = "n_predict"
"""llama.cpp's own name for a limit, which overrides ``max_tokens`` there. Other servers ignore it, so that it is no
limit by itself: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md."""
_PATHS = (
    _Path("/threads/[^/]+/messages", Kind.FREE),
    _Path("/chat/completions", Kind.TEXT, _CHAT),
    _Path("/completions", Kind.TEXT, ("max_tokens",)),
    _Path("/responses", Kind.TEXT, ("max_output_tokens",), "max_tool_calls"),
    _Path("/responses/compact", Kind.TEXT),
    _Path("/messages", Kind.TEXT, ("max_tokens",), "max_uses"),
    _Path(":(?:stream)?generatecontent", Kind.TEXT, ("maxOutputTokens", "max_output_tokens")),
    _Path("/embeddings|/moderations|:(?:batch)?embedcontents?", Kind.PROMPT),
    _Path("/rerank", Kind.RERANK),
    _Path("/images/(?:generations|edits|variations)", Kind.IMAGE),
    _Path("/audio/speech", Kind.SPEECH),
    _Path("/audio/(?:transcriptions|translations)", Kind.TRANSCRIPTION),
    _Path("/files|/uploads(?:/[^/]+(?:/(?:parts|complete|cancel))?)?|/responses/[^/]+/cancel", Kind.FREE),
    _Path("/messages/count_tokens|/responses/input_tokens|:counttokens|/(?:de)?tokenize", Kind.FREE),
    _Path("/conversations(?:/[^/]+(?:/items)?)?|/chat/completions/(?!batch$)[^/]+", Kind.FREE),
    _Path("/threads(?:/(?!runs$)[^/]+)?|/assistants(?:/[^/]+)?", Kind.FREE),
)
_BY_ENDING = tuple((re.compile(f"(?:{path.ending})$"), path) for path in _PATHS)
_PLAIN_PATH = re.compile(r"[\w./:@+-]*", re.ASCII)
_SETTINGS = ("generationConfig", "generation_config")
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_TEXT = ("prompt", "input", "documents", "prediction")
MEMBERS = (*_CHAT, _OVERRIDING, "max_output_tokens", *COUNTS[:4], *_TEXT, *wants.MEMBERS)
"""The members of a body that are read here."""

_MOST_IMAGES = 10
"""The most images of one form: https://platform.openai.com/docs/api-reference/images/createEdit#images-createedit-n."""
_CHARACTER_S = 0.1
"""The most seconds of speech per character: speech has ten or more characters a second."""
_SLOWEST = 4.0
"""https://platform.openai.com/docs/api-reference/audio/createSpeech#audio-createspeech-speed"""
_LONGEST_SOUND_S = 36_000.0
"""The longest file that a provider takes: https://elevenlabs.io/docs/capabilities/speech-to-text."""
_LARGE_BYTES = 512 << 10
_MOST_NUMBER_BYTES = 1024
"""A longer value is no number. It is not read, because reading it could take long."""
_MOST_ANSWERS = 1000
"""No provider gives as many answers to one prompt."""
_ARRAY = msgspec.json.Decoder(list[Raw])


def demand_of(method: str, path: str, asked: Asked | None, sound_s: float | None = None) -> Demand:
    """The demand of a request. ``path`` is the path as the most lenient server reads it, in small letters. ``asked``
    are those members of its body that ``MEMBERS`` names, None for a body that was not read. ``sound_s`` is the length
    of the sound in the request, if it is known."""
    found = _path_of(method, path)
    match found.kind:
        case Kind.TEXT if asked is not None:
            return _text_demand(found, asked)
        case Kind.TEXT | Kind.SPEECH | Kind.PROMPT if asked is None:
            return Demand(found.kind, unclear="body")
        case Kind.UNKNOWN:
            return Demand(found.kind)
        case Kind.IMAGE:
            return _image_demand(asked)
        case Kind.RERANK:
            return Demand(found.kind, 0, documents=_documents((asked or {}).get("documents")))
        case Kind.SPEECH if asked is not None:
            characters = len(asked.get("input", b""))
            slowness = 1.0 if "speed" not in asked else _SLOWEST
            return Demand(found.kind, 0, characters=characters, seconds=characters * _CHARACTER_S * slowness)
        case Kind.TRANSCRIPTION:
            return Demand(found.kind, 0, seconds=_LONGEST_SOUND_S if sound_s is None else sound_s)
        case _:
            return Demand(found.kind, 0)


def _text_demand(found: _Path, asked: Asked) -> Demand:
    settings = {name: small_object(asked[name]) for name in _SETTINGS if name in asked and not _is_null(asked[name])}
    sources = (asked, *(members for members in settings.values() if members is not None))
    given = [one[name] for one in sources for name in found.limits if name in one and not _is_null(one[name])]
    if given and _OVERRIDING in asked and not _is_null(asked[_OVERRIDING]):
        given.append(asked[_OVERRIDING])
    limits = [positive(raw) for raw in given]
    answers, unclear = _answers(sources)
    if "prompt" in asked and found.ending == "/completions":
        prompts = _prompts(asked["prompt"])
        answers, unclear = answers * (prompts or 1), unclear or ("" if prompts else "prompt")
    known = [limit for limit in limits if limit is not None]
    limit = max(known) if known and len(known) == len(limits) else None
    unclear = unclear or next((name for name, members in settings.items() if members is None), "")
    wanted, odd = wants_of(asked, found.calls)
    if "prompt" in asked and found.ending != "/completions":
        wanted = replace(wanted, is_beyond=True)  # a stored prompt, which is not in the body
    least = max(_count(raw) or 0 for raw in given) if given and limit is None else 0
    predicted = asked.get("prediction", b"null")
    more = 0 if _is_null(predicted) else len(predicted)
    return Demand(found.kind, limit, answers, least, more, odd or unclear, wanted)


def _image_demand(asked: Asked | None) -> Demand:
    """The fields of a form are not read: a form may ask for the largest number of images."""
    if asked is None:
        return Demand(Kind.IMAGE, 0, images=_MOST_IMAGES)
    count = _few(asked["n"]) if "n" in asked else 1
    return Demand(Kind.IMAGE, 0, unclear="" if count else "n", images=count or 1)


def _documents(raw: Raw | bytes | None) -> int:
    """At least the number of documents: commas inside a document count, too."""
    return 0 if raw is None else bytes(raw).count(b",") + 1


def _path_of(method: str, path: str) -> _Path:
    if method in _HARMLESS:
        return _Path("", Kind.FREE)
    if _PLAIN_PATH.fullmatch(path):
        for ending, found in _BY_ENDING:
            if ending.search(path):
                return found
    return _Path("", Kind.UNKNOWN)


def _answers(sources: Sequence[Asked]) -> tuple[int, str]:
    """How many answers each prompt has at most, and the first member that cannot be read."""
    most, unclear = 1, ""
    for source in sources:
        for name in COUNTS:
            if name in source:
                count = _few(source[name])
                most, unclear = max(most, count or 1), unclear or ("" if count else name)
    return most, unclear


def _few(raw: Raw | bytes) -> int | None:
    """A count of answers; None if it cannot be read, or is larger than any server accepts."""
    count = _count(raw)
    return count if count is not None and count <= _MOST_ANSWERS else None


def _count(raw: Raw | bytes) -> int | None:
    """The largest count that a server could read from the value; None if no server could read one."""
    found = small_value(raw, _MOST_NUMBER_BYTES)
    if isinstance(found, str):
        try:
            found = float(found.strip().replace("_", ""))
        except ValueError:
            return None
    if found is None:
        return 1 if _is_null(raw) else None
    if isinstance(found, bool):
        return 1
    if isinstance(found, int) or (isinstance(found, float) and math.isfinite(found)):
        return max(1, min(math.ceil(found), LARGEST))
    return None


def _prompts(raw: Raw | bytes) -> int | None:
    """How many prompts the member holds. A string or an array of token ids is one prompt. None for a member of another
    type."""
    text = bytes(raw)
    if text[:1] != b"[":
        return 1 if text[:1] in b'"n' else None
    if len(text) > _LARGE_BYTES:
        # Commas inside strings count, too: the count may be too large but never too small, and nothing is decoded.
        return text.count(b",") + 1
    try:
        found = _ARRAY.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.count(b",") + 1
    tokens = sum(1 for one in found if bytes(memoryview(one)[:1]) in b"-0123456789")
    return len(found) - tokens + (tokens > 0) or 1


def _is_null(raw: Raw | bytes) -> bool:
    return bytes(memoryview(raw)[:4]) == b"null"


_WRITING = frozenset({Kind.TEXT, Kind.UNKNOWN})
_OTHERS = re.compile(
    r"/(?:fine_tuning|vector_stores|videos|containers|skills|organization)(?:/|$)"
    r"|/(?:evals(?:/[^/]+)?|classify|score|pooling|ocr)$"
    r"|/(?:batches|runs)/[^/]+/cancel$"
)
"""Training, stores, videos, and calls that end another call: https://platform.openai.com/docs/api-reference."""


def asks_for_text(method: str, path: str) -> bool:
    """Whether a request may ask a model for a text. ``path`` is the path as the most lenient server reads it, in small
    letters."""
    return demand_of(method, path, {}).kind in _WRITING and _OTHERS.search(path) is None
