"""Live panels for tests: conversations in short notation, and the sent messages, read only from their JSON."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from proxy.app.factories import load_panel_texts
from proxy.context.panels.board import Inlay
from tests.talk import assistant, calling, result, user

TEXTS = load_panel_texts()
START_S = 1_800_000_000
"""Short times count from this one, so that they are fixed; longer ones are seconds since 1970."""
SHORT_S = 1_000_000


def word_of(iso: str) -> str:
    """A time in the notation of the vectors."""
    seconds = int(datetime.fromisoformat(iso).timestamp())
    return str(seconds - START_S if 0 <= seconds - START_S < SHORT_S else seconds)


def message(name: str) -> bytes:
    """The message of this name: ``u0`` is a user's, ``a0`` an assistant's, ``c0`` a call, ``r0`` its result."""
    made = {"u": user, "a": assistant}.get(name[0])
    if made is not None:
        return orjson.dumps(made(name))
    return orjson.dumps(calling(name) if name[0] == "c" else result(f"c{name[1]}", name))


class SentTurns(NamedTuple):
    """A conversation as it is sent, with the index of each message in the client's own conversation."""

    turns: Sequence[Any]
    origins: Sequence[int]


def unchanged(turns: Sequence[Any]) -> SentTurns:
    """A conversation that is sent in the form that the client gives it."""
    return SentTurns(turns, range(len(turns)))


def wire(inlay: Inlay, sent: SentTurns, *, has_talk: bool = True) -> list[bytes]:
    """The messages in the order in which they are sent."""
    found = [m for block in inlay.front for m in block.messages]
    for index in range(len(sent.turns) + 1):
        found += [m for block in inlay.within.get(index, ()) for m in block.messages]
        found += [sent.turns[index].raw] if has_talk and index < len(sent.turns) else []
    return found


def notation(messages: Sequence[bytes]) -> str:
    """Messages in the notation of the vectors, made only from their JSON."""
    said, skip = "", 0
    bodies: list[dict[str, Any]] = [json.loads(raw) for raw in messages]
    for body, after in zip(bodies, [*bodies[1:], {}], strict=False):
        skip -= 1
        if skip >= 0:
            continue
        content = body["content"] or ""
        calls = body.get("tool_calls", ())
        if calls and calls[0]["function"]["name"] == "dynamic_panel":
            assert after["tool_call_id"] == calls[0]["id"]
            name, skip = calls[0]["id"].removeprefix("panel_"), 1
            if name == "footer":
                assert (content, after["content"]) == (TEXTS.footer, TEXTS.footer_ack)
                said = said.rstrip() + "} "
                continue
            head, _, time = content.rpartition("Panel automatically generated at ")
            assert head in ("", TEXTS.header + "\n\n")
            time = "?" if time == "unknown time" else word_of(time)
            said += f"{'{' if head else ''}[{name}@{time}] "
        elif content.startswith("Current datetime: "):
            said += f"@{word_of(content.removeprefix('Current datetime: '))} "
        elif content.startswith("System instructions"):
            assert after == {"role": "assistant", "content": TEXTS.repeat_ack}
            said, skip = said + "* ", 1
        else:
            said += (calls[0]["id"] if calls else content) + " "
    return said.rstrip()
