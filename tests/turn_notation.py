"""Conversations in short notation, as the vectors of the history's rules write them.

``user``, ``asst`` and ``sys`` are messages, ``user:hi`` has a content of its own. ``null``, ``""`` and ``[a|image]``
are no content, an empty one, and a list of parts; ``_`` is a space and ``/`` a line break. ``call(1,2)`` is an
assistant's message with two calls and no content, ``call(1):hi`` has a content, too; ``result(1)`` answers a call.
``oldcall`` and ``oldresult`` have the form before tools, ``odd`` has a role that nobody knows. ``3x{user asst}`` is
three times the same. ``user@9`` is a message of nine tokens, whose content says so.
"""

import json
import re
from typing import Any

from proxy.core.structured.history.repair import PLACEHOLDER
from proxy.core.structured.messages import Conversation
from tests.talk import Body, calling, result, said, text_part

ROLES = {"user": "user", "asst": "assistant", "sys": "system", "odd": "narrator"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
_WORD = re.compile(r"(?P<name>[a-z]+)(?:\((?P<ids>[0-9,]+)\))?(?::(?P<text>[^@]+))?(?:@(?P<tokens>\d+))?")
_REPEATED = re.compile(r"(\d+)x\{([^{}]*)\}")


def words(notation: str) -> list[str]:
    """The words of the messages, those in braces as often as it says."""
    while "{" in notation:
        notation = _REPEATED.sub(lambda found: f"{found[2]} " * int(found[1]), notation)
    return notation.split()


def message(word: str) -> Body:
    """The message that a word means. ``lost(1)`` is the result that says that there is none."""
    found = _WORD.fullmatch(word)
    assert found, word
    name, ids = found["name"], (found["ids"] or "").split(",")
    text = found["text"] or (word if found["tokens"] else None)
    if name == "call":
        return calling(*ids, content=_content(text or "null"))
    if name in ("result", "lost"):
        return result(ids[0], PLACEHOLDER if name == "lost" else _content(text or name))
    if name == "oldcall":
        return said("assistant", None, function_call={"name": "run", "arguments": "{}"})
    if name == "oldresult":
        return said("function", "done", name="run")
    return said(ROLES[name], _content(text or name))


def tokens_of(word: str, default: int) -> int:
    """How many tokens a word says that its message has."""
    found = _WORD.fullmatch(word)
    return int(found["tokens"]) if found and found["tokens"] else default


def written(body: Body) -> bytes:
    """The message with white space that no JSON writer of ours makes, so that changed bytes are seen."""
    return json.dumps(body, separators=(" , ", " : ")).encode()


def noted(notation: str) -> Conversation:
    """The conversation that the words mean."""
    return Conversation.of([written(message(word)) for word in words(notation)])


def _part(word: str) -> Body:
    return IMAGE if word == "image" else text_part("" if word == '""' else word)


def _content(word: str) -> Any:
    if word in ("null", '""'):
        return None if word == "null" else ""
    if word.startswith("["):
        return [_part(each) for each in word[1:-1].split("|") if each]
    return word.replace("_", " ").replace("/", "\n")
