"""The documented words of live panels, frozen parts and summaries, as literals of the checker's own (see words.py)."""

import re
from datetime import UTC, datetime
from typing import Any

TOOL = "dynamic_panel"
ID_PREFIX = "panel_"
FOOTER_ID = "panel_footer"
FOOTER_ARGUMENTS = '{"action":"end_panels"}'

BEGINNING = "Beginning of dynamic panel display. All content displayed below may be considered up to date."
STAMP = "Panel automatically generated at "
UNKNOWN = "unknown time"
FOOTER = "End of dynamic panel displays..."
FOOTER_ANSWER = "Panel display complete. Proceeding with conversation."
DATETIME = "Current datetime: "
REPEAT = "System instructions (repeated for emphasis):\n\n"
REPEAT_ANSWER = "Understood. I will follow these instructions."
PLACEHOLDER = "No result was recorded: the call was interrupted, or its result was lost."
SUMMARY = "[History Summary]"
SUMMARY_ANSWER = "Ok, I understand the context from the previous conversation."

DECLARATION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Shows a panel: a part of the context that changes on its own, as it is now. Panels are shown "
        "without being asked for, whenever they have changed, so that there is no need to call this tool.",
        "parameters": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The id of the panel."},
                "action": {"type": "string", "enum": ["end_panels"], "description": "Ends the display of panels."},
            },
        },
    },
}

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FIRST_KNOWN_S = 1_577_836_800
"""2020-01-01: an older time counts as unknown."""


def iso(seconds: float) -> str:
    """A time as it is written, in whole seconds of UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> int | None:
    """The time, in unix seconds, that is written so; None for anything else."""
    if _ISO.fullmatch(text) is None:
        return None
    try:
        found = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(found.timestamp())


def stamp_line(seconds: float) -> str:
    """What stands above a panel."""
    return STAMP + (iso(seconds) if seconds >= _FIRST_KNOWN_S else UNKNOWN)


def stamped(line: str) -> int | None:
    """The time of such a line: 0 for an unknown one, None where it is no such line."""
    said = line.removeprefix(STAMP) if line.startswith(STAMP) else ""
    if said == UNKNOWN:
        return 0
    found = seconds_of(said)
    return found if found is not None and found >= _FIRST_KNOWN_S else None


def panel_text(panel_id: str, header: str, content: str) -> str:
    """A panel as it is shown."""
    return f"======= [{panel_id}] {header} =======\n{content}"


def panel_arguments(panel_id: str) -> str:
    """The arguments of the call whose result shows a panel."""
    return f'{{"id":"{panel_id}"}}'


def call_message(call_id: str, arguments: str, text: str) -> dict[str, Any]:
    """The message whose result is a panel, or the end of the panels."""
    call = {"id": call_id, "type": "function", "function": {"name": TOOL, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def result_message(call_id: str, text: str) -> dict[str, Any]:
    """The result of that call."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}
