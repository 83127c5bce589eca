"""The calls of the tool by which a model asks for a panel, and the request that answers these calls. Pure.

The tool is never the client's: a model that calls it gets the panel's current text from the proxy. Calls and messages
are JSON objects, as they are read.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import orjson

from proxy.core.wire.json_body import parse_members, splice
from proxy.core.wire.surrogates import dumps

PANEL_TOOL = "dynamic_panel"
MOST_ARGUMENT_CHARS = 64 << 10
"""A call with longer arguments counts as naming no panel."""
MOST_CALLS = 64
"""An answer with more calls than this is not continued."""
_MOST_ADDED_BYTES = 8 << 20
"""The most bytes that are added to a request. More than this, which no model could read, is not sent."""

Object = Mapping[str, object]
PanelAnswers = Callable[[str], str]
"""Returns the text of the panel with this id, or a text that there is no such panel."""


class PanelCallOutcome(StrEnum):
    """Outcome of a call of the proxy's tool."""

    ANSWERED = "answered"
    TAKEN_OUT = "taken_out"
    """The client must continue the answer: it has calls of the client's tools, was cut off, or is one of several."""
    GAVE_UP = "gave_up"
    """The model called again and again, or the budget leaves no room for another call."""
    FAILED = "failed"
    """The upstream did not go on with its answer."""


def object_in(holder: object, name: str) -> Object:
    """The object that is the value of this member. Empty if there is none."""
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def is_ours(call: object) -> bool:
    """Whether a call is one of the proxy's tool."""
    return object_in(call, "function").get("name") == PANEL_TOOL


def called(message: Object, calls: Sequence[Object]) -> Object:
    """The model's message as it is sent back to the model, with these calls of the proxy's tool. Arguments that no
    provider would read are left out, and a call without an id gets one."""
    members = {name: value for name, value in message.items() if value not in (None, "", [], {})}
    written = list(map(_written, calls, range(len(calls))))
    return {"role": "assistant", "content": None, **members, "tool_calls": written}


def continued_request(body: bytes, message: Object, answers: PanelAnswers) -> bytes | None:
    """The request that was sent, with the model's message and the results of its calls added after its messages. It
    asks for one body. None if the result would be too large: then the rest is not even written. Raises InvalidRequest,
    Unreadable, KeyError, ValueError and RecursionError if something cannot be taken apart or written."""
    added = [dumps(message)]
    calls = message["tool_calls"]
    for call in calls if isinstance(calls, list) else ():
        text = answers(_panel_of(object_in(call, "function").get("arguments")) or "")
        added.append(dumps({"role": "tool", "tool_call_id": call["id"], "content": text}))
        if sum(map(len, added)) > _MOST_ADDED_BYTES:
            return None
    members = parse_members(body)
    messages = bytes(members["messages"]).rstrip().removesuffix(b"]")
    whole = {name: None for name in ("stream", "stream_options") if name in members}
    return splice(body, members, {**whole, "messages": b",".join((messages, *added)) + b"]"})


def _written(call: Object, number: int) -> Object:
    arguments = object_in(call, "function").get("arguments")
    function = {"name": PANEL_TOOL, "arguments": "{}" if _panel_of(arguments) is None else arguments}
    members = {name: value for name, value in call.items() if name != "index"}
    return {**members, "id": call.get("id") or f"panel_call_{number}", "type": "function", "function": function}


def _panel_of(arguments: object) -> str | None:
    """The id in the arguments. Empty if they name none, and None if they are no JSON object."""
    if not isinstance(arguments, str) or len(arguments) > MOST_ARGUMENT_CHARS:
        return None
    try:
        found = orjson.loads(arguments)
    except ValueError:
        return None
    named = found.get("id") if isinstance(found, dict) else ""
    known = str(named) if isinstance(named, str | int) else ""
    return known if isinstance(found, dict) else None
