"""Shortens the parts of a request in a fixed order.

Parts are shortened only if the whole does not fit: what one part does not use of its cap, another part may use. The
suffix is shortened first, and then the prefix. The tokens of both beyond their caps are removed before any tokens
within a cap. Then the conversation is trimmed (``proxy.core.window.fitting``). The rest is taken from the summary,
from the virtual files (the last one first), from the tokens of the instruction beyond its cap, and at last, if the
profile allows it, from the system text. The selection is never shortened.

The JSON of messages that get parts of a request, and of messages that are shortened, is written here, too.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from msgspec import Raw

from proxy.core.request.message import text_part
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS
from proxy.core.value import dataclass
from proxy.core.window.profile import PartCaps, VirtualFile
from proxy.core.wire.json_body import dumps, elements, join_members, members_of, text_json, text_value, value

Count = Callable[[str], int]
"""Counts the tokens of a text."""

PIECE_CHARS = 256
"""Texts that are shortened are counted in pieces of at most this many characters."""
_LEAST_STEADY_TOKENS = 128
_NO_CONTENT = Raw(b"null")


class PartName(StrEnum):
    """The parts that can be shortened or must be counted."""

    SYSTEM = "system"
    INSTRUCTION = "instruction"
    SELECTION = "selection"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUMMARY = "summary"
    FILES = "virtual_files"


Sizes = Mapping[PartName, int]
"""Tokens by part. A part that does not exist may be left out."""


def beside_conversation(sizes: Sizes, caps: PartCaps, overflow_tokens: int) -> tuple[dict[PartName, int], int]:
    """The tokens that the suffix and the prefix may keep if there are ``overflow_tokens`` too many, and how many are
    still too many."""
    suffix, prefix = PartName.SUFFIX, PartName.PREFIX
    return _reduced(sizes, [(suffix, caps.suffix), (prefix, caps.prefix), (suffix, 0), (prefix, 0)], overflow_tokens)


def behind_conversation(
    sizes: Sizes, caps: PartCaps, overflow_tokens: int, *, may_shorten_system: bool = False
) -> tuple[dict[PartName, int], int]:
    """The tokens of the parts that are shortened only after the conversation, and how many are still too many. If this
    number is more than 0, the request does not fit."""
    order = [(PartName.SUMMARY, caps.summary), (PartName.SUMMARY, 0), (PartName.FILES, 0)]
    order += [(PartName.INSTRUCTION, caps.instruction), (PartName.SYSTEM, caps.system), (PartName.SYSTEM, 0)]
    return _reduced(sizes, order if may_shorten_system else order[:-2], overflow_tokens)


def _reduced(
    sizes: Sizes, order: Sequence[tuple[PartName, int | None]], overflow_tokens: int
) -> tuple[dict[PartName, int], int]:
    """The tokens of the parts after all steps. Each step takes the excess from a part, down to the step's floor; None:
    the step takes nothing."""
    kept = dict(sizes)
    left = max(0, overflow_tokens)
    for part, floor in order:
        if floor is not None and part in kept:
            taken = min(left, max(0, kept[part] - floor))
            kept[part] -= taken
            left -= taken
    return kept, left


def head(text: str, allowed_tokens: int, count: Count) -> str:
    """The beginning of a text, with at most ``allowed_tokens``."""
    return text[: _filled(len(text), _steady(allowed_tokens), lambda at, behind: count(text[at:behind]))]


def tail(text: str, allowed_tokens: int, count: Count) -> str:
    """The end of a text, with at most ``allowed_tokens``. It begins at a fixed distance from the text's own beginning.
    So a text that grows at its end, such as the text before a cursor, is sent with the same beginning for many
    requests: when the text does not fit any more, pieces are left out until three quarters of the room are taken. A
    room that is too small for any cache is filled instead."""
    room, end = _steady(allowed_tokens), len(text)
    if room < _LEAST_STEADY_TOKENS:
        return text[end - _filled(end, room, lambda at, behind: count(text[max(0, end - behind) : end - at])) :]
    size = min(PIECE_CHARS, 1 << room.bit_length() - 3)
    pieces: deque[int] = deque()
    held = start = 0
    for at in range(0, end, size):
        newest = count(text[at : at + size])
        is_full = held + newest > room
        # The newest piece still grows, so its present size does not decide how many other pieces are left out.
        while is_full and pieces and (held * 4 > room * 3 or held + newest > room):
            held -= pieces.popleft()
            start += size
        pieces.append(newest)
        held += newest
    return text[start:]


def _steady(tokens: int) -> int:
    """The tokens, rounded down to five binary digits, so that a few tokens more or less beside a text do not move its
    end."""
    digits = max(0, tokens.bit_length() - 5)
    return tokens >> digits << digits


def _filled(chars: int, allowed_tokens: int, count: Callable[[int, int], int]) -> int:
    """The number of a text's characters that fit. It has whole pieces, and of the next piece repeated halves. A smaller
    number of tokens gives a part of what a larger number gives."""
    end, size = 0, PIECE_CHARS
    while size and end < chars:
        tokens = count(end, end + size)
        if tokens > allowed_tokens:
            size //= 2
        else:
            allowed_tokens, end = allowed_tokens - tokens, end + size
    return min(end, chars)


@dataclass(frozen=True, slots=True)
class WindowTexts:
    """The texts around parts. ``above`` has the line above each part. A summary and its line are a user message of
    their own, and ``summary_ok`` is the assistant's answer to it. All other parts are in the newest user message."""

    above: Mapping[PartName, str]
    summary_ok: str


def own_text(raw: bytes) -> str:
    """The text of a message. If its content is a list, it is the text of its text parts, one line for each. Raises
    Unreadable."""
    content = members_of(raw).get("content", _NO_CONTENT)
    if bytes(content)[:1] == b"[":
        return "\n".join(text for part in elements(content) if (text := _part_text(part)) is not None)
    found = text_value(content)
    return found if isinstance(found, str) else ""


def with_text(raw: bytes, text: str, *, keeps_own: bool = True) -> bytes:
    """A message with a text in front of the client's own text, and a blank line between the two. Unless it
    ``keeps_own``, the text replaces the client's own. The rest of the content follows the text. Raises Unreadable."""
    members = members_of(raw)
    content = members.get("content", _NO_CONTENT)
    if bytes(content)[:1] == b"[":
        others = [bytes(part) for part in elements(content) if keeps_own or _part_text(part) is None]
        return join_members(members, {"content": b"[" + b",".join([text_part(text), *others]) + b"]"})
    own = own_text(raw) if keeps_own else ""
    return join_members(members, {"content": text_json(f"{text}\n\n{own}" if own.strip() else text)})


def shortened_messages(messages: Sequence[tuple[bytes, int]], allowed_tokens: int, count: Count) -> list[bytes]:
    """As much from the beginning of the messages as fits into ``allowed_tokens``. Each message comes with its tokens.
    Raises Unreadable."""
    found: list[bytes] = []
    left = allowed_tokens
    for raw, tokens in messages:
        if tokens > left:
            short = head(own_text(raw), left - MESSAGE_OVERHEAD_TOKENS, count)
            return [*found, join_members(members_of(raw), {"content": text_json(short)})] if short else found
        found.append(raw)
        left -= tokens
    return found


def _part_text(raw: Raw) -> str | None:
    members = members_of(raw)
    is_text = "text" in members and value(members.get("type", _NO_CONTENT)) == "text"
    text = text_value(members["text"]) if is_text else None
    return text if isinstance(text, str) else None


@dataclass(frozen=True, slots=True)
class Payload:
    """The files of a request in the order of their priority. Each has its tokens, and the tokens of its id, which
    counts if the file is left out. ``frame_tokens`` are those of the object without files and without the message's
    text."""

    files: tuple[VirtualFile, ...]
    file_tokens: tuple[int, ...]
    id_tokens: tuple[int, ...]
    frame_tokens: int

    @classmethod
    def of(cls, files: Sequence[VirtualFile], message: str, count: Count) -> "Payload":
        """The payload with all files. If none is active, the first one is."""
        active = next((n for n, file in enumerate(files) if file.is_active), 0)
        ordered = (files[active], *files[:active], *files[active + 1 :])
        empty = cls(ordered, (0,) * len(ordered), (0,) * len(ordered), 0)
        ids = tuple(count(_json(file.id)) + 1 for file in ordered)
        # A file takes the tokens of its id in either case.
        sizes = tuple(max(count(_json(_entry(f))) + 1, own) for f, own in zip(ordered, ids, strict=True))
        frame = count(empty.text(message, 0)) - count(message) + 2
        return cls(ordered, sizes, ids, max(0, frame))

    @property
    def tokens(self) -> int:
        return self.frame_tokens + sum(self.file_tokens)

    @property
    def least_tokens(self) -> int:
        return self.frame_tokens + self.file_tokens[0] + sum(self.id_tokens[1:])

    def fitting(self, allowed_tokens: int) -> int:
        """The number of files that fit into ``allowed_tokens``, and at least one. The time is linear."""
        tokens, shown = self.tokens, len(self.files)
        while shown > 1 and tokens > allowed_tokens:
            shown -= 1
            tokens -= self.file_tokens[shown] - self.id_tokens[shown]
        return shown

    def text(self, message: str, shown: int) -> str:
        """The object with the first ``shown`` files, as compact JSON. Text that is not ASCII is written as it is."""
        return _json(
            {
                "kind": "virtual_files",
                "schema_version": 1,
                "message": message,
                "active_file": self.files[0].id,
                "virtual_files": [_entry(file) for file in self.files[:shown]],
                "omitted_virtual_file_ids": [file.id for file in self.files[shown:]] if shown else [],
            }
        )


def _entry(file: VirtualFile) -> dict[str, str]:
    return {"id": file.id, "content": file.content}


def _json(found: object) -> str:
    return dumps(found).decode()
