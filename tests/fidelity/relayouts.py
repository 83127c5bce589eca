"""Valid re-layouts, built from the structure of a chat and not from its text: what the checker must accept.

Written by hand beside the checker, so that "everything is refused" and "everything is accepted" both fail the tests.
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from . import words
from .chats import AiderChat, Context, Message, said
from .strategies import Body

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_LIVES: tuple[tuple[Body, ...], ...] = (
    ({"type": "ephemeral"},),
    ({"type": "ephemeral"}, {"type": "ephemeral"}, {"type": "ephemeral"}, {"type": "ephemeral"}),
    ({"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages that move together."""

    messages: tuple[Message, ...]


@st.composite
def _cut(draw: st.DrawFn, text: str) -> Any:
    """The text as a string, as one part, or cut into parts none of which is blank."""
    at = draw(st.lists(st.integers(0, len(text)), max_size=3, unique=True).map(sorted))
    borders = [0, *at, len(text)]
    pieces = [text[a:b] for a, b in zip(borders, borders[1:], strict=False)]
    if draw(st.booleans()):
        return text
    if not all(piece.strip() for piece in pieces):
        pieces = [text]
    return [{"type": "text", "text": piece} for piece in pieces]


@st.composite
def _units(draw: st.DrawFn, context: Context) -> list[Unit]:
    """One context message whole, or taken apart: any files in any parts, the opening with the last."""
    entries = draw(st.permutations(context.entries))
    count = draw(st.integers(0, min(3, len(entries))))
    if count == 0:
        return [_unit(draw(_cut(context.text)), context.acknowledgement)]
    cuts = sorted(draw(st.lists(st.integers(1, len(entries)), min_size=count, max_size=count, unique=True)))
    chunks = [entries[a:b] for a, b in zip([0, *cuts], [*cuts, len(entries)], strict=False)]
    header = words.HEADERS[context.header]
    units = []
    for chunk in chunks[:-1]:
        edge = draw(st.sampled_from(["\n", "\n\n", ""]))
        units.append(_unit(draw(_cut(header + "\n\n".join(chunk) + edge)), words.ACKNOWLEDGEMENT))
    active = context.opening + "".join(f"\n{entry}\n" for entry in chunks[-1])
    return [*units, _unit(draw(_cut(active)), context.acknowledgement)]


def _unit(content: Any, acknowledgement: str) -> Unit:
    return Unit(({"role": "user", "content": content}, said("assistant", acknowledgement)))


def _slots(fixed: Sequence[Message]) -> list[int]:
    """Places among the fixed messages where context may stand: behind the system, before a user turn."""
    first = next((i for i, message in enumerate(fixed) if message["role"] != "system"), len(fixed))
    last = max(i for i, message in enumerate(fixed) if message["role"] == "user")
    return [i for i in range(first, last + 1) if i == first or fixed[i]["role"] == "user"]


@st.composite
def relaid_aider(draw: st.DrawFn, chat: AiderChat) -> Body:
    """A valid re-layout of aider's request. The chat must have a free fence."""
    fixed = copy.deepcopy(chat.preamble() + chat.turns() + chat.current() + chat.tail())
    slots = _slots(fixed)
    placed: dict[int, list[Unit]] = {slot: [] for slot in slots}
    for context in draw(st.permutations(chat.contexts())):
        units = draw(_units(context))
        where = sorted(draw(st.lists(st.sampled_from(slots), min_size=len(units), max_size=len(units))))
        for slot, unit in zip(where, units, strict=True):
            placed[slot].append(unit)
    messages: list[Message] = []
    for index, message in enumerate(fixed):
        messages += [copy.deepcopy(m) for unit in placed.get(index, []) for m in unit.messages]
        messages.append(message)
    body = {**chat.body(), "messages": messages}
    return draw(relaid_plain(body))


@st.composite
def relaid_plain(draw: st.DrawFn, body: Body, relocate: bool = True) -> Body:
    """The same order with system texts cut, lines relocated, and markers set as Anthropic takes them."""
    body = copy.deepcopy(body)
    messages: list[Message] = body["messages"]
    moved = draw(_take_lines(messages)) if relocate and draw(st.booleans()) else []
    messages[:] = [m for m in messages if m["content"] != "" or m["role"] not in ("system", "developer")]
    for message in messages:
        if message["role"] == "system" and isinstance(message["content"], str):
            message["content"] = draw(_cut(message["content"]))
    if moved:
        draw(_place_tag(messages, "\n".join(moved)))
    draw(_set_markers(body))
    return body


@st.composite
def _take_lines(draw: st.DrawFn, messages: list[Message]) -> list[str]:
    """Takes whole lines out of system messages that are strings, if a user message is there to stand before."""
    moved: list[str] = []
    seen: set[str] = set()
    if not any(message["role"] == "user" for message in messages):
        return moved
    for message in messages:
        if message["role"] not in ("system", "developer") or not isinstance(message["content"], str):
            continue
        lines = _LINE.findall(message["content"])
        if seen & set(lines):
            continue  # which of two equal lines was taken cannot be told, and need not be
        seen |= set(lines)
        taken = draw(st.sets(st.integers(0, len(lines) - 1), max_size=2)) if lines else set()
        left = "".join(line for i, line in enumerate(lines) if i not in taken)
        if left.strip() or not left:
            moved += [lines[i].removesuffix("\n") for i in sorted(taken)]
            message["content"] = left
    return moved


@st.composite
def _place_tag(draw: st.DrawFn, messages: list[Message], inner: str) -> None:
    tag = words.TAG_OPEN + inner + words.TAG_CLOSE
    if messages[-1]["role"] == "tool" and draw(st.booleans()):
        messages.append(said("user", tag))
        return
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    if draw(st.booleans()):
        messages.insert(last, {"role": "user", "content": tag})
        return
    content = messages[last]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    messages[last]["content"] = [{"type": "text", "text": tag}, *parts]


def _markable(body: Body) -> list[Any]:
    """The objects that a marker of ours may stand on, in the provider's order."""
    holders: list[Any] = list(body.get("tools", [])[-1:])
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        if role == "tool":
            texts = [content] if isinstance(content, str) else [part["text"] for part in content]
            holders += [message] if "".join(texts).strip() else []
        elif role == "assistant":
            continue
        elif isinstance(content, str):
            holders += [message] if content.strip() else []
        else:
            holders += [p for p in content if p.get("type") == "text" and len(p) == 2 and p["text"].strip()]
    return holders


@st.composite
def _set_markers(draw: st.DrawFn, body: Body) -> None:
    lives = draw(st.sampled_from(_LIVES))
    holders = _markable(body)
    chosen = draw(st.lists(st.sampled_from(range(len(holders))), max_size=len(lives), unique=True)) if holders else []
    for life, index in zip(lives, sorted(chosen), strict=False):
        holder = holders[index]
        if holder.get("role") in ("system", "developer", "user"):
            holder["content"] = [{"type": "text", "text": holder["content"], "cache_control": dict(life)}]
        else:
            holder["cache_control"] = dict(life)
