"""Signed thinking binds what stands in front of it: what the client kept there goes out as it went out before.

Written from the rule alone. A block is known by its own bytes, wherever the client puts it: in ``thinking_blocks``, in
``reasoning_details``, or among the parts of the content.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from .checker import check
from .view import MARKER_KEYS, SYSTEM_ROLES, canonical, parts_of, plain_text, unmarked
from .violations import Rule, Violation

Body = dict[str, Any]
_MEMBERS = ("thinking_blocks", "reasoning_details")
_SEALS = ("signature", "data", "encrypted_content")
_TYPES = ("thinking", "redacted_thinking", "reasoning")


def seals_of(message: Body) -> tuple[str, ...]:
    """The signed blocks of a message, each in one strict form."""
    content = message.get("content")
    blocks = [block for name in _MEMBERS for block in message.get(name) or () if isinstance(block, dict)]
    if isinstance(content, list):
        blocks += [part for part in content if isinstance(part, dict) and part.get("type") in _TYPES]
    return tuple(canonical(block) for block in blocks if any(block.get(seal) for seal in _SEALS))


def _bare(message: Body) -> str:
    """A message without markers, a single text part as good as a string."""
    plain = {key: value for key, value in unmarked(message).items() if key != "content"}
    calls = plain.get("tool_calls")
    if isinstance(calls, list):
        plain["tool_calls"] = [unmarked(call) for call in calls]
    parts = parts_of(message.get("content"))
    return canonical([sorted(plain.items()), message.get("content") if parts is None else parts])


def _tools(body: Body) -> str:
    tools = [unmarked(tool) for tool in body.get("tools") or []]
    return canonical([{**tool, "function": unmarked(tool.get("function"))} for tool in tools])


def _fronts(body: Body) -> list[str]:
    """The tools with no message, with the first one, with the first two ...: each as a digest."""
    running = sha256(_tools(body).encode("utf-8", "surrogatepass"))
    found = [running.hexdigest()]
    for message in body["messages"]:
        running.update(_bare(message).encode("utf-8", "surrogatepass") + b"\n")
        found.append(running.hexdigest())
    return found


def _opening(body: Body) -> str:
    """How the conversation begins."""
    return next((_bare(message) for message in body["messages"] if message["role"] not in SYSTEM_ROLES), "")


def _with_plain_front(body: Body, count: int) -> Body:
    """The request without the markers of its first messages and of its tools, which may move."""
    if not count:
        return body
    tools = {"tools": [unmarked(tool) for tool in body["tools"]]} if "tools" in body else {}
    return {**body, **tools, "messages": [*map(_plain, body["messages"][:count]), *body["messages"][count:]]}


def _plain(message: Body) -> Body:
    bare = json.loads(_bare(message))
    parts = bare[1]
    is_text = isinstance(parts, list) and len(parts) == 1 and plain_text(parts[0]) is not None
    content = {"content": parts[0]["text"] if is_text else parts} if "content" in message else {}
    return {
        key: content.get(key, value) if key == "content" else dict(bare[0]).get(key, value)
        for key, value in message.items()
        if key not in MARKER_KEYS
    }


class SignedThinking:
    """The requests of one conversation, or of several, in their order."""

    def __init__(self) -> None:
        self._made: dict[str, dict[str, Body]] = {}
        self._counts: set[tuple[str, int]] = set()
        self._seen: dict[tuple[str, tuple[str, ...]], str] = {}

    def check(self, original: Body, sent: Body, *, mode: str, **terms: Any) -> list[Violation]:
        """All rules that ``sent`` breaks, this one among them: a front that went out in another form than the client's
        is judged as if the client had sent that."""
        fronts, opening = _fronts(original), _opening(original)
        sent_fronts = _fronts(sent)
        bound, count = self._as_bound(original, fronts, sent_fronts)
        found = check(bound, _with_plain_front(sent, count), mode=mode, **terms)
        placed = list(_signed(original, sent))
        for index, seals, place in placed:
            made, seen = self._made.get(fronts[index]), self._seen.get((fronts[index], seals))
            # Which of two equal requests an answer belongs to, nobody can tell.
            may_be = {seen} if seen is not None else set(made or ())
            # Where the conversation had a request of as many messages that said something else, the client has changed
            # what stood in front of its answer.
            is_bound = made is not None or (opening, index) not in self._counts
            if is_bound and may_be and sent_fronts[place] not in may_be:
                said = "what stands in front of signed thinking is not what stood there before"
                found.append(Violation(Rule.SIGNED, f"messages[{place}]", said))
        for index, seals, place in placed:
            self._seen.setdefault((fronts[index], seals), sent_fronts[place])
        self._counts.add((opening, len(fronts) - 1))
        self._made.setdefault(fronts[-1], {})[sent_fronts[-1]] = sent
        return found

    def _as_bound(self, original: Body, fronts: Sequence[str], sent: Sequence[str]) -> tuple[Body, int]:
        """The request with the longest bound front as it went out, where that was not as it came, and how many messages
        that has."""
        messages = original["messages"]
        for index in range(len(messages) - 1, -1, -1):
            known = self._made.get(fronts[index]) if seals_of(messages[index]) else None
            if known is None:
                continue
            front, before = next((pair for pair in known.items() if pair[0] in sent), list(known.items())[-1])
            if front == fronts[index]:
                break
            tools = {"tools": before["tools"]} if "tools" in original else {}
            body = {**original, **tools, "messages": [*before["messages"], *messages[index:]]}
            return _with_plain_front(body, len(before["messages"])), len(before["messages"])
        return original, 0


def _signed(original: Body, sent: Body) -> Iterator[tuple[int, tuple[str, ...], int]]:
    """Each message with signed blocks: its place, the blocks, and its place in what is sent."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, message in enumerate(sent["messages"]):
        places.setdefault(seals_of(message), []).append(place)
    for index, message in enumerate(original["messages"]):
        seals = seals_of(message)
        if seals and places.get(seals):
            yield index, seals, places[seals].pop(0)
