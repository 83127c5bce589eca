"""What a request renders to: blocks, the smallest things that a provider's cache tells apart."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from proxy.core.caches.prompt import Life
from proxy.core.digest import digest
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.errors import UpstreamRejected


class BlockKind(StrEnum):
    """What a block is. Consecutive calls, and consecutive results, are one run for a look-back."""

    TOOL = "tool"
    TEXT = "text"
    MEDIA = "media"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Block:
    """One position. ``digest`` covers role and content, never a marker.

    ``cuts`` are digests of the block's slices, for caches that find a prefix inside a block; empty where the provider
    does not look there. ``is_empty`` is text without a visible character.
    """

    kind: BlockKind
    digest: bytes
    tokens: int
    cuts: tuple[bytes, ...] = ()
    mark: Life | None = None
    is_empty: bool = False


# Far below the 128-token step of the providers that look inside a block.
SLICE_CHARS = 256

# A count is additive where a paragraph starts at the margin: o200k_base's pattern never joins a run of newlines with a
# following letter. So an edited file is counted again only where it changed.
_PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")
_LONG_CHARS = 2048


class BlockMaker:
    """Makes blocks from text, counting every text once."""

    def __init__(self, encode: Encode, *, cuts: bool, remembered: int = 200_000) -> None:
        self._counter = TokenCounter(encode, capacity=remembered)
        self._cuts = cuts

    def make(
        self, kind: BlockKind, label: Sequence[bytes], text: str, *, extra_tokens: int = 0, mark: Life | None = None
    ) -> Block:
        """A block of ``text``; ``label`` is what else enters the prefix (role, name, id)."""
        head = digest(kind.encode(), *label)
        encoded = _bytes(text)
        return Block(
            kind=kind,
            digest=digest(head, encoded),
            tokens=self.count(text) + extra_tokens,
            cuts=self._slices(head, text) if self._cuts else (),
            mark=mark,
            is_empty=not text.strip(),
        )

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if len(text) <= _LONG_CHARS:
            return self._counter.count(digest(_bytes(text)), text)
        return sum(self._counter.count(digest(_bytes(part)), part) for part in _PARAGRAPH.split(text))

    def _slices(self, head: bytes, text: str) -> tuple[bytes, ...]:
        starts = range(0, max(1, len(text)), SLICE_CHARS)
        return tuple(digest(head if i == 0 else b"", _bytes(text[i : i + SLICE_CHARS])) for i in starts)


def dumps(value: object, option: int = 0) -> bytes:
    """JSON of a parsed value. Raises UpstreamRejected where it is nested deeper than any provider takes."""
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        pass
    try:
        # Half of a surrogate pair, perhaps: that is written as an escape.
        return json.dumps(value, sort_keys=bool(option & orjson.OPT_SORT_KEYS)).encode()
    except RecursionError as error:
        raise refuse("The JSON body of your request is nested too deeply.") from error


def parsed_value(raw: bytes, at: str) -> Any:
    """A parsed value, halves of surrogate pairs included. Raises UpstreamRejected for what is no JSON."""
    try:
        return text_value(raw)
    except Unreadable as error:
        raise refuse(f"'{at}' is not valid JSON text.", at) from error


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def refuse(message: str, param: str | None = None, code: str | None = None) -> UpstreamRejected:
    """A 400 in OpenAI's form."""
    return UpstreamRejected(message, status=400, error_type="invalid_request_error", code=code, param=param)
