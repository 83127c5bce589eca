"""The tool ``dynamic_panel``: its declaration, and the answer to a call that the model makes itself."""

from collections.abc import Iterable

from msgspec import Raw

from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.structured.panels.pairs import panel_text
from proxy.core.structured.panels.panel import CONVERSATION, Panel
from proxy.core.wire.json_body import Unreadable, elements, members_of, text_value

DECLARATION = (
    b'{"type":"function","function":{"name":"'
    + PANEL_TOOL.encode()
    + b'","description":"Shows a panel: a part of the context'
    b" that changes on its own, as it is now. Panels are shown without being asked for, whenever they have changed, so"
    b' that there is no need to call this tool.","parameters":{"type":"object","properties":{"id":{"type":"string",'
    b'"description":"The id of the panel."},"action":{"type":"string","enum":["end_panels"],"description":"Ends the'
    b' display of panels."}}}}}'
)
"""The tool as an element of ``tools``. It is the same in every request, so that it never breaks a cache."""

UNKNOWN = "There is no panel with this id."
EMPTY = "This panel is empty at present."


def panel_answer(panels: Iterable[Panel], panel_id: str) -> str:
    """The result of a call for the panel: what the conversation shows of it, as it is now. An id without a panel, and a
    panel without content, are answered by a sentence, in which nothing of the call is repeated."""
    for panel in panels:
        if panel.id == panel_id and panel.id != CONVERSATION:
            return panel_text(panel) if panel.is_shown else EMPTY
    return UNKNOWN


def with_declaration(tools: Raw | bytes | None) -> bytes | None:
    """The request's tools with the declaration in front of them; None where they are no array, and stay as they
    are."""
    raw = b"null" if tools is None else bytes(tools).strip()
    if raw != b"null" and not raw.startswith(b"["):
        return None
    own = b"" if raw == b"null" else raw[1:-1]
    return b"[" + DECLARATION + (b"," + own if own.strip() else b"") + b"]"


def names_tool(tools: Raw | bytes | None) -> bool:
    """Whether one of the client's own tools has this name, however it is escaped. What cannot be read names none."""
    try:
        own = elements(tools) if tools is not None else []
    except Unreadable:
        return False
    return any(PANEL_TOOL in _names(tool) for tool in own)


def _names(tool: Raw) -> list[object]:
    """What a definition calls its tool: the name stands in it, or in the member that is named like its type."""
    try:
        members = members_of(tool)
        holders = [members, *(members_of(members[kind]) for kind in ("function", "custom") if kind in members)]
        return [text_value(holder["name"]) for holder in holders if "name" in holder]
    except Unreadable:
        return []
