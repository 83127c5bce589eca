"""Conversations for tests of compactions, in a short notation.

``u1 a5 u1`` is a user message of 1,000 tokens, an answer of 5,000 and another user message. ``s`` is a system message,
``c`` an assistant's call of a tool, ``r`` the result of the call in front of it. In the sent messages, ``S`` is the
pair of messages that holds a summary.
"""

from typing import Any

import orjson

from proxy.app.factories import load_compaction_texts
from proxy.context import Conversation, Turn
from proxy.context.history import RuledHistory, ruled
from proxy.context.history.compaction import (
    Compaction,
    CompactionPrices,
    digest_of_known,
)
from proxy.context.panels import CacheTerms

TEXTS = load_compaction_texts()
UNCACHED = CompactionPrices(CacheTerms(read=1.0, write=1.0), output=5.0, requests=10)
CACHED = CompactionPrices(CacheTerms(read=0.1, write=1.25), output=5.0, requests=10)
_ROLES = {"u": "user", "a": "assistant", "s": "system", "c": "assistant", "r": "tool"}


def messages_of(talk: str) -> list[dict[str, Any]]:
    """The messages. Each contains its own number and its tokens. System messages are not numbered."""
    found: list[dict[str, Any]] = []
    call = ""
    for word in talk.split():
        number = sum(1 for message in found if message["role"] != "system")
        message: dict[str, Any] = {"role": _ROLES[word[0]], "content": f"{number}: {word}"}
        if word[0] == "c":
            call = f"call-{number}"
            function = {"name": "run", "arguments": "{}"}
            message["tool_calls"] = [{"id": call, "type": "function", "function": function}]
        if word[0] == "r":
            message["tool_call_id"] = call
        found.append(message)
    return found


def ruled_of(talk: str) -> RuledHistory:
    """The conversation after all rules that come before a compaction."""
    return ruled(Conversation.of([orjson.dumps(message) for message in messages_of(talk)]), {})


def compaction_of(ruled: RuledHistory, covered: int, known: int, summary: str) -> Compaction:
    """The compaction of a conversation's beginning; both counts are of the client's messages."""
    return Compaction(covered, known, digest_of_known(ruled, known), summary)


def tokens(turn: Turn) -> int:
    """The number of tokens that a message of this notation names; a summary has 500."""
    word = str(orjson.loads(turn.raw)["content"]).partition(": ")[2]
    return round(float(word[1:]) * 1000) if word[:1] in _ROLES and word else 500


def sent(found: RuledHistory) -> str:
    """The sent messages, in the same notation."""
    contents = [orjson.loads(turn.raw)["content"] for turn in found.conversation]
    return " ".join(
        "S" if content.startswith(TEXTS.header) else content.partition(": ")[2]
        for content in contents
        if content != TEXTS.ok
    )
