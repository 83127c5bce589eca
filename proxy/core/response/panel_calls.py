"""Calls of the tool by which a model asks for a panel, and the request that answers them. Pure.

The tool is never the client's: whoever calls it gets the panel's current text from the proxy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson
from msgspec import Raw

from proxy.core.wire.json_body import Unreadable, join_members, parse_members, splice, text_value
from proxy.core.wire.surrogates import text_json
from proxy.errors import InvalidRequest

PANEL_TOOL = "dynamic_panel"
MOST_ARGUMENT_BYTES = 64 << 10
"""A call with longer arguments names no panel."""
MOST_CALLS = 64
"""An answer with more calls than this is not continued."""


class PanelCallOutcome(StrEnum):
    """What became of a call of our tool."""

    ANSWERED = "answered"
    TAKEN_OUT = "taken_out"
    """The answer is the client's to go on with: it has calls of its own, was cut off, or is one of several."""
    GAVE_UP = "gave_up"
    """The model called again and again, or the budget leaves no room for another call."""
    FAILED = "failed"
    """The upstream did not go on with its answer."""


CALLING = frozenset({"tool_calls", "stop", "function_call"})
"""How an answer ends whose calls are whole. Some providers say ``stop``."""

Members = Mapping[str, Raw | bytes]
PanelAnswers = Callable[[str], str]
"""The text of the panel of this id, or that there is none."""


@dataclass(frozen=True, slots=True)
class PanelCall:
    """One call. ``raw`` is the call as JSON, as it stands in the message of the model; ``panel`` is the id that it
    asks for, empty where it names none."""

    raw: bytes
    id: str
    panel: str

    def result(self, answers: PanelAnswers) -> bytes:
        """The message that answers it."""
        content = text_json(answers(self.panel))
        return b'{"role":"tool","tool_call_id":' + text_json(self.id) + b',"content":' + content + b"}"


def panel_call(members: Members, arguments: bytes | None, number: int) -> PanelCall:
    """A call of these members with these arguments: a JSON string, None where they are too long. Arguments that no
    provider would read are left out. ``number`` names a call that has no id."""
    given = text_of(members.get("id"))
    call_id = given or f"panel_call_{number}"
    panel = _panel_of(arguments)
    is_read = panel is not None and arguments is not None and arguments[:1] == b'"'
    function = b'{"name":' + orjson.dumps(PANEL_TOOL) + b',"arguments":'
    function += (arguments if is_read and arguments is not None else b'"{}"') + b"}"
    changes: dict[str, bytes | None] = {"id": text_json(call_id), "type": b'"function"', "function": function}
    raw = join_members({name: Raw(bytes(value)) for name, value in members.items() if name != "index"}, changes)
    return PanelCall(raw, call_id, panel or "")


def results_of(calls: Iterable[PanelCall], answers: PanelAnswers, most_bytes: int) -> list[bytes] | None:
    """The results of the calls; None where they have more bytes together: what is beyond is not even written."""
    found: list[bytes] = []
    left = most_bytes
    for call in calls:
        found.append(call.result(answers))
        left -= len(found[-1])
        if left < 0:
            return None
    return found


def continued_request(body: bytes, message: bytes, results: Sequence[bytes]) -> bytes | None:
    """The request that was sent, with the model's message and the results of its calls behind its messages. None where
    it cannot be taken apart."""
    try:
        members = parse_members(body)
    except (InvalidRequest, Unreadable):
        return None
    messages = bytes(members["messages"]).rstrip() if "messages" in members else b""
    if not messages.endswith(b"]") or messages[:-1].rstrip() == b"[":
        return None
    added = b",".join((messages[:-1], message, *results))
    return splice(body, members, {"messages": added + b"]"})


def _panel_of(arguments: bytes | None) -> str | None:
    """The id in the arguments: empty where they name none, None where they are no JSON object in a JSON string."""
    if arguments is None:
        return None
    try:
        found = orjson.loads(text_of(arguments).encode())
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    named = found.get("id")
    return str(named) if type(named) in (str, int) else ""


def text_of(raw: Raw | bytes | None) -> str:
    """A text; empty for whatever is none."""
    try:
        text = text_value(raw) if raw is not None else ""
    except Unreadable:
        return ""
    return text if isinstance(text, str) else ""
