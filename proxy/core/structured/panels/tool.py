"""The tool ``dynamic_panel``: its declaration, and the answer to a call that the model makes itself."""

from collections.abc import Iterable

from msgspec import Raw

from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.structured.panels.pairs import panel_text
from proxy.core.structured.panels.panel import CONVERSATION, Panel

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
    if raw == b"null" or not raw[1:-1].strip():
        return b"[" + DECLARATION + b"]"
    if not raw.startswith(b"["):
        return None
    return b"[" + DECLARATION + b"," + raw[1:]


def names_tool(tools: Raw | bytes | None) -> bool:
    """Whether the client's own tools have this name somewhere."""
    return tools is not None and f'"{PANEL_TOOL}"'.encode() in bytes(tools)
