"""Sessions whose client sets markers of its own, where clients set them: each policy is that of some client or gateway,
but for the random one."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from tests.append_only import Message, Sent

_MOST_AT_RANDOM = 3


def _of(messages: Sequence[Message], role: str) -> list[int]:
    return [number for number, message in enumerate(messages) if message["role"] == role]


# The messages that a policy marks.
_POLICIES: Mapping[str, Callable[[Sequence[Message], Random], set[int]]] = {
    "system and last two users": lambda told, _: {*_of(told, "system")[:1], *_of(told, "user")[-2:]},
    "system and last": lambda told, _: {*_of(told, "system")[:1], len(told) - 1},
    "system and first user": lambda told, _: {*_of(told, "system")[:1], *_of(told, "user")[:1]},
    "system": lambda told, _: set(_of(told, "system")[:1]),
    "last": lambda told, _: {len(told) - 1},
    "last three": lambda told, _: set(range(len(told))[-3:]),
    "random": lambda told, chance: set(chance.sample(range(len(told)), min(len(told), _MOST_AT_RANDOM))),
}


def marked_by_client(sent: Sequence[Sent], seed: int) -> list[Sent]:
    """The same requests with the markers of a client's policy. A system message may be marked for an hour."""
    chance = Random(seed)
    places = _POLICIES[chance.choice(list(_POLICIES))]
    is_long = chance.random() < 0.2
    return [replace(one, body=_marked(one.body, places, chance, is_long=is_long)) for one in sent]


def _marked(
    body: bytes, places: Callable[[Sequence[Message], Random], set[int]], chance: Random, *, is_long: bool
) -> bytes:
    whole = json.loads(body)
    for number in places(whole["messages"], chance):
        message = whole["messages"][number]
        control = {"type": "ephemeral", **({"ttl": "1h"} if is_long and number == 0 else {})}
        content = message.get("content")
        if message["role"] == "tool":
            message["cache_control"] = control
        elif content:
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message["content"] = [*parts[:-1], {**parts[-1], "cache_control": control}]
    return json.dumps(whole).encode()
