"""The messages that show a panel: a call of the tool ``dynamic_panel``, its result, the words around them, the tool's
declaration, and the answer to a call that the model makes itself. The words are read from ``prompts/panels.md``."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Raw

from proxy.core.digest import digest
from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.structured.panels.panel import CONVERSATION, Panel
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable, elements, members_of, text_value
from proxy.core.wire.surrogates import text_json, utf8

ISO_TIME = "{iso_time}"
SYSTEM = "{system}"
"""Placeholders of the texts: for a time, and for the client's system prompt."""

_FIRST_KNOWN_S = 1_577_836_800.0
"""The beginning of 2020, in UTC. A clock that shows an earlier time was never set."""
_LAST_KNOWN_S = 253_402_300_800.0
"""The beginning of the year 10000, which cannot be written in this form."""


@dataclass(frozen=True, slots=True)
class PanelTexts:
    """The texts, without blank lines around them. ``timestamp`` and ``datetime`` hold ``{iso_time}``, ``repeat`` holds
    ``{system}``. ``ok`` is the text of the message that is added if an upstream requires a message of the other
    role."""

    header: str
    timestamp: str
    unknown_timestamp: str
    footer: str
    footer_ack: str
    datetime: str
    repeat: str
    repeat_ack: str
    ok: str

    def generated(self, stamp_s: float) -> str:
        """The words for the time at which a panel has changed, in seconds since 1970."""
        return self.timestamp.replace(ISO_TIME, iso_time(stamp_s)) if is_known(stamp_s) else self.unknown_timestamp

    def current(self, time_s: float) -> str:
        """The words for the time at which a prompt was first sent, in seconds since 1970; empty for a time that is not
        known."""
        return self.datetime.replace(ISO_TIME, iso_time(time_s)) if is_known(time_s) else ""


def is_known(time_s: float) -> bool:
    """Whether a clock that was set could show this time."""
    return _FIRST_KNOWN_S <= time_s < _LAST_KNOWN_S


def iso_time(time_s: float) -> str:
    """A known time in UTC, down to the second: ``2026-02-19T14:00:00Z``."""
    return f"{datetime.fromtimestamp(int(time_s), UTC):%Y-%m-%dT%H:%M:%SZ}"


FOOTER = "footer"
MOST_ID_CHARS = 40
"""OpenAI refuses longer ids of calls (https://github.com/vercel/ai/issues/5171)."""
_DIGEST_CHARS = 16
_PLAIN_CHARS = 9
_CALL_ID = re.compile(rb'("id"|"tool_call_id"):"([A-Za-z0-9_-]+)"')


def panel_text(panel: Panel) -> str:
    """The text of a panel for the model: a line with its id and its header, and its content."""
    return f"======= [{panel.id}] {panel.header} =======\n{panel.content}"


def call_id(panel_id: str) -> str:
    """The id of the call that shows a panel. The id for a long name is shortened, and ends in the name's digest."""
    named = f"panel_{panel_id}"
    if len(named) <= MOST_ID_CHARS:
        return named
    return f"{named[: MOST_ID_CHARS - _DIGEST_CHARS - 1]}_{digest(utf8(panel_id)).hex()[:_DIGEST_CHARS]}"


def with_plain_ids(messages: Iterable[bytes]) -> tuple[bytes, ...]:
    """The messages of pairs with ids of nine letters and digits, which are made from their present ids."""
    # The first match is the id of the call or of the result: quotes within texts are escaped.
    return tuple([_CALL_ID.sub(_plain_id, message, count=1) for message in messages])


def _plain_id(found: re.Match[bytes]) -> bytes:
    return found[1] + b':"' + digest(found[2]).hex()[:_PLAIN_CHARS].encode() + b'"'


def panel_pair(panel_id: str, words: str, text: str) -> tuple[bytes, bytes]:
    """The call for a panel, with these words as its content, and its result. The call for the footer ends the display
    of panels."""
    name = text_json(call_id(panel_id))
    arguments = '{"action":"end_panels"}' if panel_id == FOOTER else f'{{"id":{text_json(panel_id).decode()}}}'
    call = (
        b'{"role":"assistant","content":' + text_json(words) + b',"tool_calls":[{"id":' + name
        + b',"type":"function","function":{"name":"' + PANEL_TOOL.encode() + b'","arguments":'
        + text_json(arguments) + b"}}]}"
    )  # fmt: skip
    return call, b'{"role":"tool","tool_call_id":' + name + b',"content":' + text_json(text) + b"}"


DECLARATION = (
    b'{"type":"function","function":{"name":"'
    + PANEL_TOOL.encode()
    + b'","description":"Shows a panel: a part of the context'
    b" that changes on its own, as it is now. Panels are shown without being asked for, whenever they have changed, so"
    b' that there is no need to call this tool.","parameters":{"type":"object","properties":{"id":{"type":"string",'
    b'"description":"The id of the panel."},"action":{"type":"string","enum":["end_panels"],"description":"Ends the'
    b' display of panels."}}}}}'
)
"""The tool as an element of ``tools``. It is the same in every request, so that it never breaks the cache."""

UNKNOWN = "There is no panel with this id."
EMPTY = "This panel is empty at present."


def panel_answer(panels: Iterable[Panel], panel_id: str) -> str:
    """The result of a call for the panel: the text that the conversation shows for it, as it is now. If no panel has
    this id, or if the panel has no content, the result is a fixed sentence that repeats nothing from the call."""
    for panel in panels:
        if panel.id == panel_id and panel.id != CONVERSATION:
            return panel_text(panel) if panel.is_shown else EMPTY
    return UNKNOWN


def with_declaration(tools: Raw | bytes | None) -> bytes | None:
    """The request's tools with the declaration in front of them; None if they are not an array, and therefore stay as
    they are."""
    raw = b"null" if tools is None else bytes(tools).strip()
    if raw != b"null" and not raw.startswith(b"["):
        return None
    own = b"" if raw == b"null" else raw[1:-1]
    return b"[" + DECLARATION + (b"," + own if own.strip() else b"") + b"]"


def names_tool(tools: Raw | bytes | None) -> bool:
    """Whether one of the client's own tools has this name, however it is escaped. Tools that cannot be read count as
    not having it."""
    try:
        own = elements(tools) if tools is not None else []
    except Unreadable:
        return False
    return any(PANEL_TOOL in _names(tool) for tool in own)


def _names(tool: Raw) -> list[object]:
    """The names in a tool's definition. The name stands in the definition itself, or in the member that is named after
    the tool's type."""
    try:
        members = members_of(tool)
        holders = [members, *(members_of(members[kind]) for kind in ("function", "custom") if kind in members)]
        return [text_value(holder["name"]) for holder in holders if "name" in holder]
    except Unreadable:
        return []
