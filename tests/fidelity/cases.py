"""Two small requests laid out by hand, and short ways to change and check them."""

from typing import Any

from . import words
from .chats import EDITABLE_ACK, EDITABLE_OPENING, READ_ONLY_ACK, READ_ONLY_OPENING, said
from .checker import Rule, Violation, check

Body = dict[str, Any]

SYSTEM = "You are careful.\nToday is Saturday.\nAnswer briefly.\n"
TAG = "<stratiform-context>\nToday is Saturday.\n</stratiform-context>"
A, B, C = "a.py\n```\nprint('a')\n```", "b.py\n```\nprint('b')\n```", "c.py\n```\n```"
LONG, SHORT = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}


def files_message(opening: str, *entries: str) -> str:
    return opening + "".join(f"\n{entry}\n" for entry in entries)


def aider() -> Body:
    """0 system, 1-2 read-only, 3-4 turn, 5-6 chat files, 7-8 reflection, 9 prompt, 10 system reminder."""
    return {
        "model": "gpt-4o",
        "messages": [
            said("system", SYSTEM),
            said("user", files_message(READ_ONLY_OPENING, "ro.md\n```\n# R\n```")),
            said("assistant", READ_ONLY_ACK),
            said("user", "rename it"),
            said("assistant", "Done."),
            said("user", files_message(EDITABLE_OPENING, A, B, C)),
            said("assistant", EDITABLE_ACK),
            said("user", "now the tests"),
            said("assistant", "No blocks."),
            said("user", "The block did not match."),
            said("system", "# *SEARCH/REPLACE block* Rules:"),
        ],
        "temperature": 0,
        "stream": True,
    }


def split(header: str = words.EDITABLE) -> Body:
    """a.py and c.py in a part behind the system message; the opening, b.py, the acknowledgement before the prompt."""
    body = aider()
    old = body["messages"]
    part = [said("user", header + A + "\n\n" + C + "\n"), said("assistant", "Ok.")]
    active = [said("user", files_message(EDITABLE_OPENING, B)), said("assistant", EDITABLE_ACK)]
    body["messages"] = [old[0], *part, *old[1:5], *old[7:9], *active, *old[9:]]
    return body


def agent() -> Body:
    """0 system, 1 prompt, 2 two calls, 3-4 their results."""
    calls = [{"id": i, "type": "function", "function": {"name": "read", "arguments": '{"n": 1.0}'}} for i in "xy"]
    return {
        "model": "claude",
        "messages": [
            said("system", SYSTEM),
            said("user", "look"),
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "x", "content": "one"},
            {"role": "tool", "tool_call_id": "y", "content": "two"},
        ],
        "tools": [{"type": "function", "function": {"name": n, "parameters": {"b": 1, "a": 2.0}}} for n in ("r", "w")],
        "temperature": 1.0,
    }


def run(original: Body, sent: Body, **terms: Any) -> list[Violation]:
    return check(original, sent, **{"mode": "tier", "profile": "anthropic", **terms})


def rules(original: Body, sent: Body, **terms: Any) -> set[Rule]:
    return {violation.rule for violation in run(original, sent, **terms)}


def with_messages(body: Body, *messages: dict[str, Any]) -> Body:
    return {**body, "messages": list(messages)}


def edited(body: Body, index: int, **changes: Any) -> Body:
    messages = list(body["messages"])
    messages[index] = {**messages[index], **changes}
    return {**body, "messages": messages}


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def mark(body: Body, *places: tuple[int, dict[str, str]]) -> Body:
    """Marks the texts of some messages, as parts."""
    for index, value in places:
        text = body["messages"][index]["content"]
        body["messages"][index]["content"] = [{"type": "text", "text": text, "cache_control": value}]
    return body
