"""A rendered request: its blocks, which are the smallest units that a provider's cache distinguishes, and their
markers.

Each provider accepts a cache marker of an OpenAI-format request in certain places, and refuses it in others.
Anthropic's rules are those of litellm 1.109's translation (``llms/anthropic/chat/transformation.py``, ``factory.py``):
a marker is kept on parts and on string content. It is dropped at message level beside list content. On a tool result it
is read only at message level. It is refused inside a tool result's content, on thinking blocks and on empty text.
OpenAI up to GPT-5.5 knows no marker and refuses unknown parameters. GPT-5.6 and newer accept
``prompt_cache_breakpoint`` on parts of messages that are not the assistant's. Groq, Mistral and Fireworks refuse
unknown parameters; other providers ignore them. DashScope reads markers only on content parts, also within a tool
result. All these rules are in the profile.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import orjson

from proxy.core.caches.prompt import Life
from proxy.core.digest import digest
from proxy.core.providers import CacheProfile
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.core.wire.surrogates import utf8
from proxy.errors import UpstreamRejected

Json = Mapping[str, Any]


class BlockKind(StrEnum):
    """The kind of a block. A look-back counts consecutive calls, or consecutive results, as one run."""

    TOOL = "tool"
    TEXT = "text"
    MEDIA = "media"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Block:
    """One position of a prompt. ``digest`` covers role and content, never a marker.

    ``cuts`` are digests of the block's slices, for caches that find a prefix inside a block; empty if the provider does
    not look inside blocks. ``is_empty``: the text has no visible character.
    """

    kind: BlockKind
    digest: bytes
    tokens: int
    cuts: tuple[bytes, ...] = ()
    mark: Life | None = None
    is_empty: bool = False


# Far below the 128-token step of the providers that look inside a block.
SLICE_CHARS = 256

# Token counts can be added if the text is split where a paragraph starts at the margin, because o200k_base's pattern
# never joins a run of newlines with a following letter. So only the changed paragraphs of an edited file are counted
# again.
_PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")
_LONG_CHARS = 2048


class BlockMaker:
    """Makes blocks from text. Each text is counted only once."""

    def __init__(self, encode: Encode, *, cuts: bool, remembered: int = 200_000) -> None:
        self._counter = TokenCounter(encode, capacity=remembered)
        self._cuts = cuts

    def make(
        self, kind: BlockKind, label: Sequence[bytes], text: str, *, extra_tokens: int = 0, mark: Life | None = None
    ) -> Block:
        """A block of ``text``. ``label`` are further values that are part of the prefix (role, name, id)."""
        head = digest(kind.encode(), *label)
        return Block(
            kind=kind,
            digest=digest(head, utf8(text)),
            tokens=self.count(text) + extra_tokens,
            cuts=self._slices(head, text) if self._cuts else (),
            mark=mark,
            is_empty=not text.strip(),
        )

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        if len(text) <= _LONG_CHARS:
            return self._counter.count(digest(utf8(text)), text)
        return sum(self._counter.count(digest(utf8(part)), part) for part in _PARAGRAPH.split(text))

    def _slices(self, head: bytes, text: str) -> tuple[bytes, ...]:
        starts = range(0, max(1, len(text)), SLICE_CHARS)
        return tuple(digest(head if i == 0 else b"", utf8(text[i : i + SLICE_CHARS])) for i in starts)


def object_at(value: object, at: str) -> Json:
    """A part of a request that must be an object. Raises UpstreamRejected if it is none."""
    if not isinstance(value, dict):
        raise refuse(f"Invalid type for '{at}': expected an object.", at, "invalid_type")
    return value


def dumps(value: object, option: int = 0) -> bytes:
    """The JSON of a parsed value. Raises UpstreamRejected if it is nested more deeply than any provider accepts."""
    with suppress(orjson.JSONEncodeError):
        return orjson.dumps(value, option=option)
    try:
        # The value may contain half of a surrogate pair, which is written as an escape.
        return json.dumps(value, sort_keys=bool(option & orjson.OPT_SORT_KEYS)).encode()
    except RecursionError as error:
        raise refuse("The JSON body of your request is nested too deeply.") from error


def parsed_value(raw: bytes, at: str) -> Any:
    """The parsed value, with halves of surrogate pairs kept. Raises UpstreamRejected if it is no JSON."""
    try:
        return text_value(raw)
    except Unreadable as error:
        raise refuse(f"'{at}' is not valid JSON text.", at) from error


def refuse(message: str, param: str | None = None, code: str | None = None) -> UpstreamRejected:
    """A 400 in OpenAI's form."""
    return UpstreamRejected(message, status=400, error_type="invalid_request_error", code=code, param=param)


CACHE_CONTROL = "cache_control"
BREAKPOINT = "prompt_cache_breakpoint"


def reads_control(profile: CacheProfile) -> bool:
    """Whether the provider reads ``cache_control``."""
    return profile.dialect.key == CACHE_CONTROL


def reads_breakpoint(profile: CacheProfile) -> bool:
    """Whether the provider reads ``prompt_cache_breakpoint``."""
    return profile.dialect.key == BREAKPOINT


def forbid(owner: Json, at: str, profile: CacheProfile, *, breakpoint_allowed: bool = False) -> None:
    """Refuse a marker field that the provider does not know on this object."""
    if reads_control(profile) or not (reads_breakpoint(profile) or profile.refuses_unknown):
        return
    for field in (CACHE_CONTROL, BREAKPOINT):
        if field in owner and not (field == BREAKPOINT and breakpoint_allowed and reads_breakpoint(profile)):
            name = f"{at}.{field}" if at else field
            raise refuse(f"Unknown parameter: '{name}'.", name, "unknown_parameter")


def cache_control(owner: Json, at: str) -> Life | None:
    """The TTL for which an Anthropic marker asks."""
    if owner.get(CACHE_CONTROL) is None:
        return None
    control = owner[CACHE_CONTROL]
    if not isinstance(control, Mapping) or control.get("type") != "ephemeral":
        raise refuse(f"{at}.cache_control.type: Input should be 'ephemeral'", f"{at}.cache_control")
    ttl = control.get("ttl", "5m")
    if ttl not in ("5m", "1h"):
        raise refuse(f"{at}.cache_control.ttl: Input should be '5m' or '1h'", f"{at}.cache_control.ttl")
    return "1h" if ttl == "1h" else "5m"


def text_mark(owner: Json, at: str, text: str) -> Life | None:
    """The TTL of an Anthropic marker on text. The text must not be empty."""
    life = cache_control(owner, at)
    if life is not None and not text.strip():
        raise refuse(f"{at}: cache_control cannot be set for empty text blocks", f"{at}.cache_control")
    return life


def breakpoint_mark(owner: Json, at: str, profile: CacheProfile) -> Life | None:
    """The TTL of an OpenAI breakpoint."""
    if owner.get(BREAKPOINT) is None:
        return None
    control = owner[BREAKPOINT]
    if not isinstance(control, Mapping) or control.get("mode") != "explicit":
        raise refuse(f"Invalid value: '{at}.{BREAKPOINT}.mode' must be 'explicit'.", f"{at}.{BREAKPOINT}.mode")
    return named_life(control, f"{at}.{BREAKPOINT}", profile)


def named_life(options: Json, at: str, profile: CacheProfile) -> Life:
    """The TTL for which a ``ttl`` member asks, by the provider's own names."""
    short, long = profile.ttls
    ttl = options.get("ttl", short)
    if ttl == short:
        return "5m"
    if ttl != long or profile.long_life_s <= 0:
        raise refuse(f"Invalid '{at}.ttl'.", f"{at}.ttl", "invalid_value")
    return "1h"
