"""An answer that is one JSON body, without the calls of our own tool. Pure.

A body without such a call passes as it is. Where another answer goes on with one that called our tool alone, the client
gets the last one's body, with the words of those before in front of its own, and the usage of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.response.panel_calls import (
    CALLING,
    MOST_CALLS,
    PANEL_TOOL,
    TEXTS,
    Object,
    called,
    finish_without,
    is_ours,
    object_in,
)
from proxy.core.response.usage_sums import Report, summed
from proxy.core.wire.surrogates import dumps, loads


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the answers up to now have said, by the member of the message, and used."""

    texts: Mapping[str, str]
    usage: Report | None = None


@dataclass(frozen=True, slots=True)
class PanelBody:
    """One answer. ``body`` is what the client gets, if no other follows. ``taken`` are how many calls of ours there
    were. ``message`` is the model's with the calls that another answer must know the results of: None where none may
    follow. ``earlier`` is what this answer and those before have said and used."""

    body: bytes
    earlier: Earlier
    taken: int = 0
    message: Object | None = None


def panel_body(body: bytes, earlier: Earlier | None = None, *, may_follow: bool) -> PanelBody | None:
    """Read an answer behind the earlier ones. ``may_follow``: another may go on with it. None for what is no answer,
    and for a first one without a call of ours."""
    if earlier is None and PANEL_TOOL.encode() not in body:
        return None
    try:
        payload = loads(body)
        listed = payload.get("choices") if isinstance(payload, dict) else None
        choices = [one for one in listed if object_in(one, "message")] if isinstance(listed, list) else []
        return _read(payload, choices, earlier, may_follow=may_follow) if choices else None
    except (ValueError, RecursionError):
        return None


def _read(payload: Any, choices: Sequence[Any], earlier: Earlier | None, *, may_follow: bool) -> PanelBody | None:
    """The payload is edited where it stands."""
    message, finish = choices[0]["message"], choices[0].get("finish_reason")
    said, calls = dict(message), [call for choice in choices for call in _taken_out(choice)]
    if earlier is None and not calls:
        return None
    is_alone = len(choices) == 1 and "tool_calls" not in message and finish in CALLING
    follows = may_follow and is_alone and 0 < len(calls) <= MOST_CALLS
    earlier = earlier or Earlier({})
    texts = {name: earlier.texts.get(name, "") for name in TEXTS}
    for name, text in texts.items():
        own = message.get(name) or ""
        if isinstance(own, str) and (text or own):
            message[name] = texts[name] = text + own
    report = payload.get("usage")
    usage = summed(earlier.usage, report) if isinstance(report, dict) else earlier.usage
    if usage is not None:
        payload["usage"] = usage
    return PanelBody(dumps(payload), Earlier(texts, usage), len(calls), called(said, calls) if follows else None)


def _taken_out(choice: Any) -> Sequence[Any]:
    """The calls of ours in a choice, which has none of them any more."""
    message = choice["message"]
    calls = message.get("tool_calls")
    ours = [call for call in calls if is_ours(call)] if isinstance(calls, list) else []
    if ours and len(ours) < len(calls):
        message["tool_calls"] = [call for call in calls if not is_ours(call)]
    elif ours:
        del message["tool_calls"]
        choice["finish_reason"] = finish_without(choice.get("finish_reason"))
    return ours
