"""Random sessions in which no sent byte ever changes: all mixtures of roles, lengths, sizes and pauses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from proxy.lab.demo.tool_agent import NOUNS

Message = dict[str, Any]

_WORDS = [word for pair in NOUNS for word in pair]


@dataclass(frozen=True)
class Sent:
    """One request, sent at a time in seconds."""

    at: float
    body: bytes


def append_only(seed: int) -> list[Sent]:
    """The requests of one account: a conversation that only grows, and perhaps side calls between its requests."""
    chance = Random(seed)
    talk = _Conversation(chance)
    sent: list[Sent] = []
    at = 1_800_000_000.0
    rhythm = chance.choice(_RHYTHMS)
    has_side_calls = chance.random() < 0.25
    for _ in range(round(3 * (80 / 3) ** chance.random())):
        talk.grow()
        sent.append(Sent(at, talk.body()))
        talk.answer()
        at += _pause(chance, rhythm)
        if has_side_calls and chance.random() < 0.2:
            sent.append(Sent(at, talk.side_call()))
            at += chance.uniform(1, 10)
    return sent


def by_itself(seed: int) -> list[Sent]:
    """An agent whose tools answer in system messages: 45 requests, three of which come from a user."""
    chance = Random(seed)
    talk = _Conversation(chance, {"notice": 1.0})
    sent: list[Sent] = []
    at = 1_800_000_000.0
    for number in range(45):
        talk.grow("" if number % 15 else "user")
        sent.append(Sent(at, talk.body()))
        talk.answer()
        at += chance.uniform(5, 60)
    return sent


def with_pauses(seed: int) -> list[Sent]:
    """Twelve requests with three long pauses, and a large fragment in most of them."""
    chance = Random(seed)
    talk = _Conversation(chance, {"user": 1.0})
    share, most, large = chance.uniform(0.5, 0.9), chance.choice((1200, 3000, 6000, 20_000)), chance.choice((800, 4000))
    pauses = chance.sample(range(11), 3)
    sent: list[Sent] = []
    at = 1_800_000_000.0
    for number in range(12):
        talk.turn = large if chance.random() < share else 50
        talk.grow("user")
        sent.append(Sent(at, talk.body()))
        talk.turn = 150
        talk.answer()
        at += chance.uniform(310, most) if number in pauses else chance.uniform(10, 200)
    return sent


def unkept(seed: int) -> list[Sent]:
    """A client that shows its state in front of its newest prompt or behind it, and does not keep the state."""
    chance = Random(seed)
    talk = _Conversation(chance, {"user": 1.0})
    talk.turn = chance.choice((20, 80, 300))
    role, size, count = chance.choice(("user", "user", "system", "developer")), chance.choice((100, 600, 3000)), 1
    count += chance.random() < 0.25
    is_behind, renewed = chance.random() < 0.15, chance.choice((1.0, 1.0, 0.4))
    shown: list[Message] = []
    sent: list[Sent] = []
    at = 1_800_000_000.0
    for _ in range(chance.randint(4, 40)):
        talk.grow("user")
        if not shown or chance.random() < renewed:
            texts = [talk.text(round(size * chance.uniform(0.6, 1.4))) for _ in range(count)]
            shown = [{"role": role, "content": text} for text in texts]
        sent.append(Sent(at, talk.body(shown, is_behind=is_behind)))
        talk.answer()
        at += chance.uniform(310, 3000) if chance.random() < 0.05 else chance.uniform(5, 100)
    return sent


def singles(seed: int) -> list[Sent]:
    """Single requests of one client: the same instructions, each with its own question. No conversation is
    continued."""
    chance = Random(seed)
    instructions = _Conversation(chance, {"user": 1.0}).messages
    size, least, most = round(5 * 800 ** chance.random()), *chance.choice(((1, 60), (100, 500), (400, 4000)))
    sent: list[Sent] = []
    at = 1_800_000_000.0
    for _ in range(chance.randint(1, 20)):
        asked = " ".join(chance.choices(_WORDS, k=max(1, round(size * chance.uniform(0.5, 1.5)))))
        messages = [*instructions, {"role": "user", "content": f"{asked} {chance.randrange(10**9)}"}]
        sent.append(Sent(at, json.dumps({"model": "claude-sonnet-4-5", "messages": messages}).encode()))
        at += chance.uniform(least, most)
    return sent


# The share of long pauses, and the range of their lengths in seconds.
_RHYTHMS = ((0.0, 0, 0), (0.0, 0, 0), (0.1, 310, 3000), (0.3, 310, 3000), (0.15, 200, 400), (0.1, 3700, 40_000))


def _pause(chance: Random, rhythm: tuple[float, float, float]) -> float:
    share, least, most = rhythm
    return chance.uniform(least, most) if chance.random() < share else chance.uniform(3, 90)


class _Conversation:
    """A client that appends. ``ways`` say how often it continues in each way; ``turn`` is the number of words of a
    turn."""

    def __init__(self, chance: Random, ways: dict[str, float] | None = None) -> None:
        self.chance = chance
        self.turn = round(8 * 250 ** chance.random())
        self.large = chance.random() < 0.3
        roles = chance.choice((("system",), ("developer",), ("system", "system"), ()))
        size = round(20 * 400 ** chance.random())
        self.messages: list[Message] = [{"role": role, "content": self.text(size)} for role in roles]
        self.tools = [] if ways else [self._tool(n) for n in range(chance.choice((0, 0, 3, 12)))]
        self.ways = ways or _chosen(chance, has_tools=len(self.tools) > 0)
        self.as_parts = chance.random() < 0.3
        self.calls = 0
        self.is_answered = False

    def text(self, words: int) -> str:
        return " ".join(self.chance.choices(_WORDS, k=max(1, words))) + f" {self.chance.randrange(10**9)}"

    def words(self) -> int:
        words = self.chance.expovariate(1 / self.turn)
        return round(words * 20 if self.large and self.chance.random() < 0.15 else words)

    def grow(self, way: str = "") -> None:
        """Append the messages behind the newest answer in the next request, in this ``way``, or in any way of the
        client."""
        drawn = self.chance.choices(list(self.ways), list(self.ways.values()))[0] if self.is_answered else "user"
        way = way or drawn
        if way == "calls" and self.tools:
            self._results()
        elif way == "several":
            for _ in range(self.chance.randint(2, 5)):
                self._say(self.chance.choice(("user", "system", "assistant")))
            self._say("user")
        else:
            self._say({"notice": "system", "developer": "developer"}.get(way, "user"))

    def answer(self) -> None:
        """The answer, as the client keeps it."""
        self._say("assistant")
        self.is_answered = True

    def body(self, shown: Sequence[Message] = (), *, is_behind: bool = False) -> bytes:
        """The request. Only in this request, the messages ``shown`` stand in front of the newest message, or behind
        it."""
        tools = {"tools": self.tools} if self.tools else {}
        at = len(self.messages) - (not is_behind)
        messages = [*self.messages[:at], *shown, *self.messages[at:]]
        return json.dumps({"model": "claude-sonnet-4-5", **tools, "messages": messages}).encode()

    def side_call(self) -> bytes:
        """A single request with another prompt, which asks for a title."""
        shown = next(one["content"] for one in self.messages if one["role"] == "user")
        asked = [{"role": "system", "content": "Write a title of five words."}, {"role": "user", "content": shown}]
        return json.dumps({"model": "claude-sonnet-4-5", "messages": asked}).encode()

    def _say(self, role: str) -> None:
        text = self.text(self.words())
        parts = [{"type": "text", "text": text}, {"type": "text", "text": self.text(3)}]
        self.messages.append({"role": role, "content": parts if self.as_parts and role == "user" else text})

    def _results(self) -> None:
        """Change the newest answer into one that calls tools, and append their results."""
        before = self.messages[-1]
        ids = [f"call_{self.calls + n}" for n in range(self.chance.choice((1, 1, 1, 2, 4, 25)))]
        self.calls += len(ids)
        calls = [
            {
                "id": one,
                "type": "function",
                "function": {"name": "tool_0", "arguments": json.dumps({"q": self.text(4)})},
            }
            for one in ids
        ]
        self.messages[-1] = {**before, "content": self.chance.choice((None, before["content"])), "tool_calls": calls}
        for one in ids:
            self.messages.append({"role": "tool", "tool_call_id": one, "content": self.text(self.words())})

    def _tool(self, number: int) -> dict[str, Any]:
        about = {"name": f"tool_{number}", "description": self.text(30), "parameters": {"type": "object"}}
        return {"type": "function", "function": about}


def _chosen(chance: Random, *, has_tools: bool) -> dict[str, float]:
    kinds = [
        {"user": 1.0},
        {"notice": 0.95, "user": 0.05},
        {"notice": 0.5, "user": 0.5},
        {"user": 0.7, "notice": 0.15, "developer": 0.1, "several": 0.05},
        {"several": 0.3, "user": 0.7},
    ]
    if has_tools:
        kinds += [{"calls": 0.9, "user": 0.1}, {"calls": 0.6, "notice": 0.2, "user": 0.2}] * 2
    return chance.choice(kinds)
