"""What a provider bills for recorded wire bodies, by no code of the product: what is read is what an earlier body had
in front of one of its marks, letter for letter; for providers without marks, what both begin with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Body = Mapping[str, Any]
MARK_KEYS = ("cache_control", "prompt_cache_breakpoint", "cachePoint")
_LOOK_BACK = 20


@dataclass(frozen=True)
class Piece:
    """A text of the prompt, and whether a mark stands behind it."""

    text: str
    is_marked: bool = False


def pieces_of(body: Body) -> list[Piece]:
    """The prompt of a body in the order in which providers put it together: tools, system, messages."""
    tools = body.get("tools") or (body.get("toolConfig") or {}).get("tools") or []
    turns = body.get("messages") or body.get("input") or body.get("contents") or []
    found: list[Piece] = []
    for one in (*tools, body.get("system") or body.get("instructions") or (), *turns):
        for piece in _within(one):
            if piece.text:
                found.append(piece)
            elif found:
                found[-1] = Piece(found[-1].text, is_marked=True)
    return found


def _within(node: object) -> Iterator[Piece]:
    """The texts of a part of a body; an empty one is a mark on what is in front of it."""
    if isinstance(node, str):
        yield Piece(node)
    elif isinstance(node, list | tuple):
        for one in node:
            yield from _within(one)
    elif isinstance(node, Mapping):
        inner = node.get("toolSpec") or node.get("function") or node
        if "parameters" in inner or "input_schema" in inner or "inputSchema" in inner:
            yield Piece(f"tool {inner['name']}")
        else:
            results = [one.get("content") for one in [node.get("toolResult")] if one]
            for held in (*results, node.get("content"), node.get("text"), node.get("output"), node.get("parts")):
                yield from _within(held)
        if any(node.get(key) is not None for key in MARK_KEYS):
            yield Piece("")


def bill(bodies: Sequence[Body], *, read: float, write: float, has_marks: bool) -> float:
    """What the prompts cost together, as a share of what they cost without a cache."""
    entries: set[tuple[str, ...]] = set()
    before: list[tuple[str, ...]] = []
    plain = cost = 0.0
    for body in bodies:
        pieces = pieces_of(body)
        texts = tuple(piece.text for piece in pieces)
        sizes = [len(text) for text in texts]
        marks = [at + 1 for at, piece in enumerate(pieces) if piece.is_marked]
        if has_marks:
            ends = {end for mark in marks for end in range(max(1, mark - _LOOK_BACK), mark + 1)}
            got = max((end for end in ends if texts[:end] in entries), default=0)
            last = max(marks, default=0)
            entries |= {texts[:mark] for mark in marks}
        else:
            got = max((_common(texts, other) for other in before), default=0)
            last = len(texts)
            before.append(texts)
        plain += sum(sizes)
        cost += read * sum(sizes[:got]) + write * sum(sizes[got:last]) + sum(sizes[max(last, got) :])
    return cost / plain


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
