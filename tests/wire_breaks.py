"""Finds where the requests of a recorded session break the cache, judged only by the sent bytes. It imports nothing of
the product.

A prompt has the form in which a provider renders it: tools, then instructions, then messages, each part of a message on
its own and without cache markers. A request breaks the cache if it continues an earlier one, does not repeat all of it,
and repeats some of it behind the first difference.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

_MARKS = {"cache_control", "prompt_cache_breakpoint", "cachePoint"}
_ANSWERS = {"tool_use", "reasoning", "function_call", "custom_tool_call"}
_RESULTS = {"tool_result", "function_call_output", "custom_tool_call_output", "local_shell_call_output"}


@dataclass(frozen=True)
class Block:
    """One part of a prompt. ``where`` is tools, instructions or talk, ``place`` the index in that list."""

    where: str
    place: int
    text: str
    is_answer: bool = False
    is_plain: bool = False


@dataclass(frozen=True)
class WireBreak:
    """The first difference: the lists that hold the differing pieces, the place in the later request, and the line of
    the text in this place (0: it is no text of several lines)."""

    where: frozenset[str]
    place: int
    line: int


def blocks(body: dict[str, Any]) -> list[Block]:
    """The parts of a request's prompt, in the order in which they are rendered."""
    found = [Block("tools", place, _written(tool)) for place, tool in enumerate(body.get("tools") or [])]
    for name in ("system", "instructions"):
        found += [_block("instructions", place, part, "") for place, part in enumerate(_parts(body.get(name)))]
    messages = body.get("messages", body.get("input")) or []
    messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    is_front = True
    for place, message in enumerate(messages):
        role = message.get("role", "")
        is_front = is_front and role in ("system", "developer")
        found += _message("instructions" if is_front else "talk", place, message, role)
    return found


def is_partial(body: dict[str, Any]) -> bool:
    """Whether the provider keeps the conversation, so that the body holds only its new part."""
    return bool(body.get("previous_response_id")) or (body.get("thread") or {}).get("type") == "continue"


def rendered(body: dict[str, Any], before: Sequence[list[Block]]) -> list[Block]:
    """The whole prompt of a request. If the provider keeps the conversation, it begins with the newest of
    ``before``."""
    own = blocks(body)
    if not is_partial(body) or not before:
        return own
    heads = {block.where for block in own}
    front = [block for block in before[-1] if block.where != "talk" and block.where not in heads]
    front += [block for block in own if block.where != "talk"]
    front.sort(key=lambda block: ("tools", "instructions").index(block.where))
    return front + [block for some in (before[-1], own) for block in some if block.where == "talk"]


def wire_break(before: Sequence[list[Block]], now: list[Block]) -> WireBreak | None:
    """The place where a prompt breaks the cache, compared with the earlier ones of its session; None if it does not."""
    if not before:
        return None
    known = [{block.text for block in old} for old in before]
    alike = [sum(len(block.text) for block in now if block.text in texts) for texts in known]
    old = before[max(range(len(before)), key=lambda i: (alike[i], i))]
    at = next((i for i, (a, b) in enumerate(zip(old, now, strict=False)) if a.text != b.text), min(len(old), len(now)))
    if at == len(old):
        return None
    left, right, line = _lines(old[at:], now[at:])
    spans = SequenceMatcher(None, [b.text for b in left], [b.text for b in right], autojunk=False).get_matching_blocks()
    same = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a.text != b.text), 0)
    pairs = [(span.a + i, span.b + i) for span in spans for i in range(span.size)]
    kept = [pair for pair in pairs if pair[0] >= same and pair[1] >= same]
    if not _goes_on(left, right, kept, now[:at]):
        return None
    first = now[at : at + 1]
    where = frozenset(block.where for block in (*first, old[at]))
    return WireBreak(where, first[0].place if first else -1, same + 1 if line else 0)


def _goes_on(left: list[Block], right: list[Block], kept: list[tuple[int, int]], common: list[Block]) -> bool:
    """Whether both belong to the same conversation, or have the same instructions. They must have a tenth of the text
    behind the difference in common, and also an answer of the model, or a part of the text that differs, or half of the
    instructions and a question."""
    shared = [right[j] for _, j in kept if right[j].text]
    if not shared:
        return False
    rest = min(_size(left[kept[0][0] :]), _size(right[kept[0][1] :]))
    if _size(shared) < rest / 10:
        return False
    if any(block.is_answer for block in (*shared, *common)) or shared[0].where == "instructions":
        return True
    heads = [_size([b for b in some if b.where == "instructions"]) for some in (left, right, shared)]
    return shared[-1].where == "talk" and heads[2] >= min(heads[:2]) / 2


def _lines(left: list[Block], right: list[Block]) -> tuple[list[Block], list[Block], bool]:
    """The first blocks as their lines, if both are texts of instructions."""
    both = (left[0], right[0]) if left and right else ()
    if not both or not all(b.is_plain and b.where == "instructions" and "\n" in b.text for b in both):
        return left, right, False
    ours, theirs = ([Block(b.where, b.place, line) for line in b.text.split("\n")] for b in both)
    return ours + left[1:], theirs + right[1:], True


def _size(some: Sequence[Block]) -> int:
    return sum(len(block.text) + 1 for block in some)


def _message(where: str, place: int, message: dict[str, Any], role: str) -> Iterator[Block]:
    if not role:
        yield _block(where, place, message, role)
        return
    others = {k: v for k, v in message.items() if k not in ("role", "content", *_MARKS) and v}
    for part in _parts(message.get("content")):
        yield _block(where, place, part, role)
    if others:
        yield _block(where, place, others, role)


def _block(where: str, place: int, part: Any, role: str) -> Block:
    text = part.get("text") if isinstance(part, dict) else None
    is_plain = isinstance(text, str) and part.get("type") in ("text", "input_text", "output_text")
    kind = part.get("type") if isinstance(part, dict) else None
    is_answer = kind in _ANSWERS or (role == "assistant" and kind not in _RESULTS)
    written = text if is_plain and where == "instructions" else role + _written(part)
    return Block(where, place, written, is_answer and where == "talk", is_plain)


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _written(value: Any) -> str:
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in _MARKS}
    return json.dumps(value)
