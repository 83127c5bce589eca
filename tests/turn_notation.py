"""Conversations in the short notation of the vectors for the history's rules.

``user``, ``asst`` and ``sys`` are messages, ``user:hi`` has a content of its own. ``null``, ``""`` and ``[a|image]``
are no content, an empty one, and a list of parts; ``_`` is a space and ``/`` a line break. ``call(1,2)`` is an
assistant's message with two calls and no content, ``call(1):hi`` has a content, too; ``result(1)`` answers a call.
``oldcall`` and ``oldresult`` have the form that was used before tools, ``odd`` has an unknown role. ``3x{user asst}``
repeats the two messages three times. ``user@9`` is a message of nine tokens, whose content names this number.
"""

import json
import re
from typing import Any

from proxy.context import Conversation
from proxy.context.history import PLACEHOLDER, MessageMeta, Status
from tests.talk import Body, calling, result, said, text_part
from tests.vectors import Vector

ROLES = {"user": "user", "asst": "assistant", "sys": "system", "odd": "narrator"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
_WORD = re.compile(r"(?P<name>[a-z]+)(?:\((?P<ids>[0-9,]+)\))?(?::(?P<text>[^@]+))?(?:@(?P<tokens>\d+))?")
_REPEATED = re.compile(r"(\d+)x\{([^{}]*)\}")


def words(notation: str) -> list[str]:
    """The words of the messages. Words in braces are repeated as often as the notation says."""
    while "{" in notation:
        notation = _REPEATED.sub(lambda found: f"{found[2]} " * int(found[1]), notation)
    return notation.split()


def message(word: str) -> Body:
    """The message for a word. ``lost(1)`` is the result that says that there is no result."""
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
    """The number of tokens that a word gives for its message."""
    found = _WORD.fullmatch(word)
    return int(found["tokens"]) if found and found["tokens"] else default


def written(body: Body) -> bytes:
    """The message with white space that none of our JSON writers makes, so that changed bytes are noticed."""
    return json.dumps(body, separators=(" , ", " : ")).encode()


def noted(notation: str) -> Conversation:
    """The conversation for the words."""
    return Conversation.of([written(message(word)) for word in words(notation)])


def _part(word: str) -> Body:
    return IMAGE if word == "image" else text_part("" if word == '""' else word)


def _content(word: str) -> Any:
    if word in ("null", '""'):
        return None if word == "null" else ""
    if word.startswith("["):
        return [_part(each) for each in word[1:-1].split("|") if each]
    return word.replace("_", " ").replace("/", "\n")


def metas_of(vector: Vector) -> dict[int, MessageMeta]:
    """The metas of the messages: ``2=summarized:short``."""
    return dict(map(_meta, vector.one("metas").split()))


def _meta(word: str) -> tuple[int, MessageMeta]:
    index, _, rest = word.partition("=")
    status, _, tl_dr = rest.partition(":")
    return int(index), MessageMeta(int(index), Status(status), tl_dr)
