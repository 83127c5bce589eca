"""An answer that is one JSON body, without the calls of our own tool. Pure.

Only what must change is replaced in the provider's bytes. Where another answer goes on with one that called our tool
alone, the client gets the last one's body, with the words of those before in front of its own, and the usage of all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from msgspec import Raw

from proxy.core.response.event_format import payload_of
from proxy.core.response.panel_calls import CALLING, MOST_ARGUMENT_BYTES, MOST_CALLS, PANEL_TOOL, PanelCall, panel_call
from proxy.core.response.said_message import TEXTS
from proxy.core.response.usage_sums import Report, summed
from proxy.core.wire.json_body import Members, Unreadable, elements, join_members, members_of, splice, text_value, value

_NULL = b"null"
_EMPTY = (_NULL, b'""', b"[]", b"{}")


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the answers before have said and used. ``texts`` are JSON strings, by their member of the message."""

    texts: Mapping[str, bytes]
    usage: Report | None = None


NOTHING_EARLIER = Earlier({})


@dataclass(frozen=True, slots=True)
class PanelBody:
    """One answer. ``body`` is without our calls. ``wanted`` are the calls that another answer must know the results of:
    none where the client gets this one. ``taken`` are how many calls of ours there were."""

    body: bytes
    taken: int = 0
    wanted: tuple[PanelCall, ...] = ()
    message: Members | None = None
    usage: Report | None = None

    @property
    def has_text(self) -> bool:
        """Whether it has words for the client."""
        return self.message is not None and bytes(self.message.get("content", _NULL)) not in _EMPTY

    def called(self) -> bytes:
        """The message as the model made it, with the calls as they are answered."""
        members = {name: raw for name, raw in (self.message or {}).items() if bytes(raw) not in _EMPTY}
        calls = b"[" + b",".join(call.raw for call in self.wanted) + b"]"
        content = bytes(members.pop("content", Raw(_NULL)))
        return join_members(members, {"content": content, "tool_calls": calls})

    def after(self, earlier: Earlier) -> Earlier:
        """What this answer and the earlier ones have said and used."""
        texts = dict(earlier.texts)
        for name in TEXTS:
            raw = bytes((self.message or {}).get(name, b""))
            if raw[:1] == b'"':
                texts[name] = _joined(texts.get(name), raw)
        return Earlier(texts, earlier.usage if self.usage is None else summed(earlier.usage, self.usage))

    def behind(self, earlier: Earlier) -> bytes:
        """The body that the client gets behind the earlier answers."""
        try:
            return self._behind(earlier)
        except Unreadable:
            return self.body

    def _behind(self, earlier: Earlier) -> bytes:
        members = members_of(self.body)
        usage = self.after(Earlier({}, earlier.usage)).usage
        is_same = usage is None or earlier.usage is None
        changes: dict[str, bytes | None] = {} if is_same else {"usage": orjson.dumps(usage)}
        choices = elements(members["choices"]) if bytes(members.get("choices", _NULL)) != _NULL else []
        if choices and earlier.texts:
            choice = members_of(choices[0])
            message = members_of(choice["message"]) if "message" in choice else {}
            spoken = splice(bytes(choice["message"]), message, _prefixed(message, earlier.texts)) if message else b"{}"
            first = splice(bytes(choices[0]), choice, {"message": spoken})
            changes["choices"] = b"[" + b",".join((first, *map(bytes, choices[1:]))) + b"]"
        return splice(self.body, members, changes)


def panel_body(body: bytes, *, may_follow: bool) -> PanelBody:
    """Read an answer. ``may_follow``: another may go on with it. What cannot be read stays as it is."""
    try:
        return _read(body, may_follow=may_follow)
    except Unreadable:
        return PanelBody(body)


def _read(body: bytes, *, may_follow: bool) -> PanelBody:
    members = members_of(body)
    report = payload_of(bytes(members["usage"])) if "usage" in members else None
    usage = report if isinstance(report, dict) else None
    choices = elements(members["choices"]) if bytes(members.get("choices", _NULL)) != _NULL else []
    read = [_choice(raw) for raw in choices]
    message = read[0].message if read else None
    calls = tuple(call for one in read for call in one.calls)
    if not calls:
        return PanelBody(body, message=message, usage=usage)
    edited = splice(body, members, {"choices": b"[" + b",".join(one.raw for one in read) + b"]"})
    is_alone = len(read) == 1 and read[0].is_alone and len(calls) <= MOST_CALLS
    return PanelBody(edited, len(calls), calls if may_follow and is_alone else (), message, usage)


@dataclass(frozen=True, slots=True)
class _Choice:
    raw: bytes
    message: Members | None = None
    calls: tuple[PanelCall, ...] = ()
    is_alone: bool = False


def _choice(raw: Raw) -> _Choice:
    members = members_of(raw)
    message = members_of(members["message"]) if bytes(members.get("message", _NULL)) != _NULL else {}
    if bytes(message.get("tool_calls", _NULL)) == _NULL:
        return _Choice(bytes(raw), message)
    kept, calls = list[bytes](), list[PanelCall]()
    for entry in elements(message["tool_calls"]):
        call = _our_call(entry, len(calls))
        if call is None:
            kept.append(bytes(entry))
        else:
            calls.append(call)
    if not calls:
        return _Choice(bytes(raw), message)
    finish = value(members["finish_reason"]) if "finish_reason" in members else None
    changes: dict[str, bytes | None] = {
        "message": splice(
            bytes(members["message"]), message, {"tool_calls": b"[" + b",".join(kept) + b"]" if kept else None}
        )
    }
    if not kept and finish in ("tool_calls", "function_call"):
        changes["finish_reason"] = b'"stop"'
    is_alone = not kept and isinstance(finish, str) and finish in CALLING
    return _Choice(splice(bytes(raw), members, changes), message, tuple(calls), is_alone)


def _our_call(entry: Raw, number: int) -> PanelCall | None:
    members = members_of(entry)
    function = members_of(members["function"]) if bytes(members.get("function", _NULL)) != _NULL else {}
    if "name" not in function or text_value(function["name"]) != PANEL_TOOL:
        return None
    arguments = bytes(function.get("arguments", b'""'))
    return panel_call(members, arguments if len(arguments) <= MOST_ARGUMENT_BYTES else None, number)


def _prefixed(message: Members, texts: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The members of a message that change, with these texts in front of its own."""
    changes: dict[str, bytes | None] = {}
    for name, text in texts.items():
        own = bytes(message.get(name, _NULL))
        if own == _NULL or own[:1] == b'"':
            changes[name] = _joined(text, own if own != _NULL else None)
        elif own[:1] == b"[":
            part = b'{"type":"text","text":' + text + b"}"
            changes[name] = b"[" + b",".join((part, *map(bytes, elements(own)))) + b"]"
    return changes


def _joined(text: bytes | None, more: bytes | None) -> bytes:
    """One JSON string of two."""
    if text is None or more is None:
        return text or more or b'""'
    return text[:-1] + more[1:]
