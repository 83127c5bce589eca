"""The JSON of what the proxy shows beside the conversation: a call of the tool, and the result that it stands for."""

from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.structured.panels.panel import Panel
from proxy.core.wire.surrogates import text_json

CALL_PREFIX = "panel_"
"""How the ids of its calls begin."""
FOOTER = "footer"


def panel_text(panel: Panel) -> str:
    """What the model reads of a panel: a line with its id and its header, and its content."""
    return f"======= [{panel.id}] {panel.header} =======\n{panel.content}"


def panel_pair(panel_id: str, words: str, text: str) -> tuple[bytes, bytes]:
    """The call for a panel, which says these words, and its result."""
    return _pair(CALL_PREFIX + panel_id, b'{"id":' + text_json(panel_id) + b"}", words, text)


def footer_pair(words: str, text: str) -> tuple[bytes, bytes]:
    """The call and the result that end the display of panels."""
    return _pair(CALL_PREFIX + FOOTER, b'{"action":"end_panels"}', words, text)


def _pair(call_id: str, arguments: bytes, words: str, text: str) -> tuple[bytes, bytes]:
    name = text_json(call_id)
    call = (
        b'{"role":"assistant","content":' + text_json(words) + b',"tool_calls":[{"id":' + name
        + b',"type":"function","function":{"name":"' + PANEL_TOOL.encode() + b'","arguments":'
        + text_json(arguments.decode()) + b"}}]}"
    )  # fmt: skip
    return call, b'{"role":"tool","tool_call_id":' + name + b',"content":' + text_json(text) + b"}"
