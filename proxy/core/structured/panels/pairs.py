"""The JSON of what the proxy shows beside the conversation: a call of the tool, and the result that it stands for."""

import re
from collections.abc import Iterable

from proxy.core.digest import digest
from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.structured.panels.panel import Panel
from proxy.core.wire.surrogates import text_json, utf8

CALL_PREFIX = "panel_"
"""How the ids of its calls begin."""
FOOTER = "footer"
MOST_ID_CHARS = 40
"""OpenAI refuses longer ids of calls (https://github.com/vercel/ai/issues/5171)."""
_DIGEST_CHARS = 16
_PLAIN_CHARS = 9
_CALL_ID = re.compile(rb'("id"|"tool_call_id"):"([A-Za-z0-9_-]+)"')


def panel_text(panel: Panel) -> str:
    """What the model reads of a panel: a line with its id and its header, and its content."""
    return f"======= [{panel.id}] {panel.header} =======\n{panel.content}"


def call_id(panel_id: str) -> str:
    """The id of the call that shows a panel. That of a long name is shortened, and ends in the name's digest."""
    named = CALL_PREFIX + panel_id
    if len(named) <= MOST_ID_CHARS:
        return named
    return f"{named[: MOST_ID_CHARS - _DIGEST_CHARS - 1]}_{digest(utf8(panel_id)).hex()[:_DIGEST_CHARS]}"


def with_plain_ids(messages: Iterable[bytes]) -> tuple[bytes, ...]:
    """The messages of pairs with ids of nine letters and digits, made of the ids that they have."""
    # The first match is the id of the call or of the result: quotes within texts are escaped.
    return tuple([_CALL_ID.sub(_plain_id, message, count=1) for message in messages])


def _plain_id(found: re.Match[bytes]) -> bytes:
    return found[1] + b':"' + digest(found[2]).hex()[:_PLAIN_CHARS].encode() + b'"'


def panel_pair(panel_id: str, words: str, text: str) -> tuple[bytes, bytes]:
    """The call for a panel, which says these words, and its result."""
    return _pair(call_id(panel_id), b'{"id":' + text_json(panel_id) + b"}", words, text)


def footer_pair(words: str, text: str) -> tuple[bytes, bytes]:
    """The call and the result that end the display of panels."""
    return _pair(CALL_PREFIX + FOOTER, b'{"action":"end_panels"}', words, text)


def _pair(named: str, arguments: bytes, words: str, text: str) -> tuple[bytes, bytes]:
    name = text_json(named)
    call = (
        b'{"role":"assistant","content":' + text_json(words) + b',"tool_calls":[{"id":' + name
        + b',"type":"function","function":{"name":"' + PANEL_TOOL.encode() + b'","arguments":'
        + text_json(arguments.decode()) + b"}}]}"
    )  # fmt: skip
    return call, b'{"role":"tool","tool_call_id":' + name + b',"content":' + text_json(text) + b"}"
