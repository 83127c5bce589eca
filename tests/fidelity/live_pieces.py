"""What the proxy itself puts into a conversation, recognised where it stands: pairs of panels, their end, times."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from . import live_words as words
from .live_history import Message, calls_of, role_of


class Sort(StrEnum):
    """What a piece of the sent conversation is."""

    CLIENT = "client"
    PANEL = "panel"
    FOOTER = "footer"
    REPEAT = "repeat"
    DATETIME = "datetime"
    SUMMARY = "summary"
    CONTEXT = "context"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages ``start`` to ``end`` (exclusive) of what was sent. ``at`` is, of the client's own messages, the place
    among the expected ones."""

    sort: Sort
    start: int
    end: int
    at: int = -1

    @property
    def path(self) -> str:
        return f"messages[{self.start}]"


_CONTEXT_HEADERS = (
    "# Repository Structure (continued)\n\n", "# Repository Files\n\n", "# URL Context\n\n",
    "# Code Review Context\n\n", "# Working Files\n\n", "# Reference Files",
)  # fmt: skip
_CONTEXT_ANSWERS = ("Ok.", "Ok, I've reviewed the URL content.", "Ok, I've reviewed the code changes.")


def piece_before(messages: Sequence[Message], end: int, *, has_context: bool) -> Piece | None:
    """The piece of the proxy's that ends in front of ``end``; None where none does. What is wrong within it is judged
    elsewhere: here it is enough to see what it is meant to be."""
    last = messages[end - 1]
    content = last.get("content") if isinstance(last, dict) else None
    if role_of(last) == "user" and isinstance(content, str) and content.startswith(words.DATETIME):
        return Piece(Sort.DATETIME, end - 1, end)
    if end < 2:
        return None
    first = messages[end - 2]
    if role_of(last) == "tool" and is_ours(first):
        is_end = calls_of(first)[0].get("id") == words.FOOTER_ID
        return Piece(Sort.FOOTER if is_end else Sort.PANEL, end - 2, end)
    if role_of(last) != "assistant" or role_of(first) != "user" or not isinstance(first.get("content"), str):
        return None
    said = first["content"]
    if said.startswith(words.REPEAT) and content == words.REPEAT_ANSWER:
        return Piece(Sort.REPEAT, end - 2, end)
    if said.startswith(words.SUMMARY):
        return Piece(Sort.SUMMARY, end - 2, end)
    if has_context and said.startswith(_CONTEXT_HEADERS) and content in _CONTEXT_ANSWERS:
        return Piece(Sort.CONTEXT, end - 2, end)
    return None


def is_ours(message: Message) -> bool:
    """Whether it calls the tool of the panels, and nothing else."""
    calls = calls_of(message)
    if len(calls) != 1 or not isinstance(calls[0], dict):
        return False
    function: Any = calls[0].get("function")
    return isinstance(function, dict) and function.get("name") == words.TOOL
