"""Removes the calls of the proxy's own tool from an answer, and joins the answers that continue it. Sans-IO, as the
other folds are.

A model asks for a panel by a tool that is never the client's: it gets the panel's current text from the proxy. Calls
and messages are JSON objects, as they are read.

A stream passes as it comes up to the first call of the proxy's tool. The rest is held back and read as one body, in the
same way as an answer that is a JSON body. If the answer calls only the proxy's tool, ``PanelAnswer.message`` is sent
back to the model with the results. The next answer, which is always one body, continues this one: the client gets the
words of both, with a blank line between them, and the sum of their usage in the provider's own form.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain, groupby
from typing import Any

import orjson

from proxy.kit.errors import UpstreamUnavailable
from proxy.kit.value import dataclass, field, replace
from proxy.protocol.response.event_format import MAX_EVENT_BYTES, EventCutter, EventPart, event_data, event_of
from proxy.protocol.response.usage import mapping
from proxy.protocol.wire.json_body import dumps, loads, parse_members, splice

PANEL_TOOL = "dynamic_panel"
MOST_ARGUMENT_CHARS = 64 << 10
"""A call with longer arguments counts as naming no panel."""
MOST_CALLS = 64
"""An answer with more calls than this is not continued."""
# The most bytes that are added to a request. More than this, which no model could read, is not sent.
_MOST_ADDED_BYTES = 8 << 20

Object = Mapping[str, object]
PanelAnswers = Callable[[str], str]
"""Returns the text of the panel with this id, or a text that there is no such panel."""


class PanelCallOutcome(StrEnum):
    """Outcome of a call of the proxy's tool. What each one means stands in ``grafana/METRICS.md``."""

    ANSWERED = "answered"
    TAKEN_OUT = "taken_out"
    GAVE_UP = "gave_up"
    FAILED = "failed"


def object_in(holder: object, name: str) -> Object:
    """The object that is the value of this member. Empty if there is none."""
    return mapping(mapping(holder).get(name))


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
    if not isinstance(found, dict):
        return None
    return str(found["id"]) if isinstance(found.get("id"), str | int) else ""


_MOST_DEPTH = 4
# A larger number does not count. The sum of two such numbers could be one that the JSON writer refuses.
_MOST = 10**12
_SUMS = ("tokens", "requests", "tokencount", "cost")


def summed(earlier: Object | None, last: Object, depth: int = 0) -> Object:
    """The last report with the counters of the earlier ones added: tokens, requests of tools, and the cost. All other
    values (times, the tier) stay as the last report has them."""
    if earlier is None:
        return last
    found: dict[str, object] = dict(last)
    for name, before in earlier.items():
        now = found.get(name)
        if isinstance(before, dict) and depth < _MOST_DEPTH:
            if now is None or isinstance(now, dict):
                found[name] = summed(before, now if isinstance(now, dict) else {}, depth + 1)
        elif _is_count(name, before) and (now is None or _is_count(name, now)):
            found[name] = before + (now or 0)  # type: ignore[operator]
    return found


def _is_count(name: str, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
    return is_number and name.lower().endswith(_SUMS)


MOST_BYTES = 8 << 20
"""A longer body is not read. A stream that goes on for more bytes than this after a call of the proxy's tool is no
answer."""
# A stream that has said more than this before a call of the proxy's tool is not continued.
_MOST_SAID_BYTES = 4 << 20
# Matches events that must be read in a stream that has had no call of the proxy's tool so far.
_CALLS = re.compile(rb'"tool_calls"(?!\s*+:\s*+(?:null|\[\s*+\]))|\[DONE\]')
# The members of a message that are the model's words.
_TEXTS = ("content", "reasoning_content", "reasoning")
# The members of a message that is sent back. Strict servers refuse other members, such as labels of pieces.
_SENT_BACK = ("role", *_TEXTS, "thinking_blocks", "reasoning_details", "tool_calls")
# The finish reasons of an answer whose calls are complete. Some providers say ``stop``.
_CALLING = ("tool_calls", "stop", "function_call")


@dataclass(frozen=True, slots=True)
class PanelAnswer:
    """One answer, or several that continue each other. ``payload`` is the completion that the client gets if no other
    answer follows. ``taken`` is how many calls of the proxy's tool the last answer had. ``message`` is the model's
    message with the calls whose results the next answer needs; None: no other answer may follow. ``words`` are the
    newest words of each kind, also those of a stream that have passed."""

    payload: Mapping[str, Any]
    taken: int = 0
    message: Object | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_words(self) -> bool:
        """Whether the client can use the answer as it is."""
        return bool(_message_of(self.payload).get("content"))


def read_answer(
    payload: Any, before: PanelAnswer | None = None, *, may_follow: bool, calling: Container[str] = ()
) -> PanelAnswer | None:
    """Read a completion that follows the one ``before`` it. The completion is edited in place. ``may_follow``: another
    answer may continue it. The choices with the indices in ``calling`` have already called the client's tools. None if
    the payload is no answer, or if it is the first answer and has no call of the proxy's tool."""
    listed = payload.get("choices") if isinstance(payload, dict) else None
    listed = listed if isinstance(listed, list) else []
    choices = [one for one in listed if object_in(one, "message")]
    calls = [call for choice in choices for call in _ours_in(choice)]
    if not choices or (before is None and not calls):
        return None
    message, finish = choices[0]["message"], choices[0].get("finish_reason")
    said = dict(message)
    for choice in filter(_ours_in, choices):
        own = choice["message"]
        own["tool_calls"] = [call for call in own["tool_calls"] if not is_ours(call)]
        if own["tool_calls"]:
            continue
        del own["tool_calls"]
        if choice.get("finish_reason") in _CALLING and repr(choice.get("index", 0)) not in calling:
            choice["finish_reason"] = "stop"
    is_alone = len(listed) == 1 and "tool_calls" not in message and finish in _CALLING
    follows = may_follow and is_alone and 0 < len(calls) <= MOST_CALLS
    earlier, words = (before.payload, dict(before.words)) if before is not None else ({}, {})
    for name in _TEXTS:
        text, own = _message_of(earlier).get(name) or "", message.get(name) or ""
        if isinstance(own, str | list) and isinstance(text, str | list) and (text or own):
            own_text = own if isinstance(own, str) else ""
            before_it = words.get(name, "")
            # Each answer begins anew, behind a blank line, unless there is white space already.
            is_apart = not (before_it and own_text) or before_it[-1].isspace() or own_text[0].isspace()
            message[name] = _in_one([text, "" if is_apart else "\n\n", own])
            words[name] = own_text or before_it
    report, used = payload.get("usage"), object_in(earlier, "usage") or None
    if isinstance(report, dict) or used is not None:
        payload["usage"] = summed(used, report) if isinstance(report, dict) else used
    return PanelAnswer(payload, len(calls), called(said, calls) if follows else None, words)


def _message_of(payload: Mapping[str, Any]) -> Object:
    return next((found for one in payload.get("choices", ()) if (found := object_in(one, "message"))), {})


def _ours_in(choice: Any) -> Sequence[Any]:
    calls = choice["message"].get("tool_calls")
    return [call for call in calls if is_ours(call)] if isinstance(calls, list) else []


class PanelBody:
    """An answer that is one JSON body. It passes when all of it is known. ``size`` is how many bytes are kept."""

    is_over = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> bytes:
        """Keep a chunk. A body that is too long passes as it is."""
        self._parts.append(chunk)
        self.size += len(chunk)
        return b"" if self.size <= MOST_BYTES else self.end(None)

    def close(self) -> bytes:
        """Returns nothing, because nothing passes before the body is read."""
        return b""

    def read(self, before: PanelAnswer | None = None, *, may_follow: bool) -> PanelAnswer | None:
        """See ``read_answer``."""
        body = b"".join(self._parts)
        if before is None and PANEL_TOOL.encode() not in body:
            return None
        try:
            return read_answer(loads(body), before, may_follow=may_follow)
        except (ValueError, RecursionError):
            return None

    def end(self, answer: PanelAnswer | None) -> bytes:
        """The body that the client gets: that of this answer, or the body as it came."""
        kept, self._parts = b"".join(self._parts), []
        return kept if answer is None else dumps(answer.payload)


@dataclass(slots=True, eq=False)
class PanelStream:
    """An answer that is a stream of events. ``size`` is how many bytes are kept."""

    _cutter: EventCutter = field(default_factory=EventCutter)
    _said: list[bytes] = field(default_factory=list)
    _held: list[dict[str, Any]] = field(default_factory=list)
    _end: list[bytes] = field(default_factory=list)
    _calling: set[str] = field(default_factory=set)
    _is_long: bool = False
    size: int = 0
    is_over: bool = False
    """Whether the last event has come."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk. Returns the bytes that may pass now."""
        is_plain = not self._held and self._cutter.is_between and chunk.endswith(b"\n\n")
        if is_plain and len(chunk) <= MAX_EVENT_BYTES and _CALLS.search(chunk) is None:
            return self._passed(chunk)
        return self._events(self._cutter.feed(chunk))

    def close(self) -> bytes:
        """The stream has ended. Returns the bytes that may pass now."""
        return self._events(self._cutter.close())

    def read(self, *, may_follow: bool) -> PanelAnswer | None:
        """The events that were held back, as a completion. None if there are none."""
        rest = read_answer(_completion(self._held), may_follow=False, calling=self._calling)
        if rest is None or self._is_long or any(b'"error"' in one for one in self._end):
            return rest
        events = [part for part, _ in EventCutter().feed(b"".join(self._said))]
        said = [payload for event in events if (payload := _payload_of(event)) is not None]
        whole = read_answer(_completion([*said, *self._held]), may_follow=may_follow)
        message, words = (whole.message, whole.words) if whole is not None else (None, rest.words)
        sent_back = message and {name: message[name] for name in _SENT_BACK if name in message}
        return replace(rest, message=sent_back, words=words)

    def end(self, answer: PanelAnswer | None) -> bytes:
        """The rest of the stream as events: without calls of the proxy's tool, and with the answers that continue
        it."""
        if answer is None:
            return b"".join(self._end)
        names = {name: value for name, value in self._held[-1].items() if name not in ("choices", "usage")}
        deltas = (object_in(choice, "delta") for one in self._held for choice in one["choices"])
        has_role = any("role" in delta for delta in deltas)  # otherwise the client already has the role
        told = (one for one in answer.payload["choices"] if isinstance(one, dict))
        choices = [_as_delta(one, has_role=has_role) for one in told if isinstance(one.get("message"), dict)]
        events = [{**names, "choices": choices}]
        if (usage := answer.payload.get("usage")) is not None:
            events.append({**names, "choices": [], "usage": usage})
        return b"".join([*(event_of(dumps(one)) for one in events), *self._end])

    def _events(self, parts: Iterable[tuple[bytes, EventPart]]) -> bytes:
        return b"".join([self._event(part) if kind is EventPart.EVENT else part for part, kind in parts])

    def _event(self, event: bytes) -> bytes:
        self.is_over = self.is_over or event_data(event).startswith(b"[DONE]")
        payload = _payload_of(event) if self._held or _CALLS.search(event) else None
        calls: list[tuple[object, object]] = []
        for choice in payload["choices"] if payload is not None else ():
            pieces = object_in(choice, "delta").get("tool_calls")
            calls += [(choice.get("index", 0), piece) for piece in (pieces if isinstance(pieces, list) else ())]
        if not self._held and not any(is_ours(call) for _, call in calls):
            self._calling |= {repr(index) for index, _ in calls}
            return self._passed(event)
        self.size += len(event)
        if self.size > MOST_BYTES:
            raise UpstreamUnavailable("the answer goes on for too long behind a call of a panel")
        if payload is not None:
            self._held.append(payload)
        else:
            self._end.append(event)
        return b""

    def _passed(self, events: bytes) -> bytes:
        """The events, which pass. They are kept for the model's message, unless it is too long."""
        self._is_long = self._is_long or self.size + len(events) > _MOST_SAID_BYTES
        if not self._is_long:
            self.size += len(events)
            self._said.append(events)
        return events


def _payload_of(event: bytes) -> dict[str, Any] | None:
    """The piece of the answer in an event. None if the event is no such piece."""
    try:
        payload: Any = loads(event_data(event))
    except (ValueError, RecursionError):
        return None
    is_piece = isinstance(payload, dict) and not payload.get("error") and isinstance(payload.get("choices"), list)
    return payload if is_piece else None


def _completion(payloads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pieces of a stream, joined into one completion."""
    pieces: dict[object, list[Mapping[str, Any]]] = defaultdict(list)
    for choice in (one for payload in payloads for one in payload["choices"] if isinstance(one, dict)):
        pieces[repr(choice.get("index", 0))].append(choice)
    choices = []
    for some in pieces.values():
        told = {name: value for one in some for name, value in one.items() if name != "delta" and value is not None}
        choices.append(
            {"finish_reason": None, **told, "message": _put_together(object_in(one, "delta") for one in some)}
        )
    reports = [one["usage"] for one in payloads if isinstance(one.get("usage"), dict)]
    return {"choices": choices, **({"usage": reports[-1]} if reports else {})}


def _put_together(deltas: Iterable[Object]) -> dict[str, Any]:
    """The message that is made of these pieces. Texts and lists are joined, calls are joined by their index, and
    thoughts are joined until they are signed. For all other members the last value counts."""
    pieces: dict[str, list[str | list[Any]]] = defaultdict(list)
    found: dict[str, Any] = {}
    for name, value in (item for delta in deltas for item in delta.items()):
        if isinstance(value, str | list) and name != "role":
            pieces[name].append(value)
        elif value is not None:
            found[name] = value
    found |= {name: _in_one(some) for name, some in pieces.items()}
    for name, joined in (("tool_calls", _calls_of), ("thinking_blocks", _thoughts_of)):
        found[name] = joined(one for one in found.get(name) or () if isinstance(one, dict))
    return {name: value for name, value in found.items() if value != []}


def _in_one(pieces: Sequence[str | list[Any]]) -> str | list[Any]:
    """The pieces as one text, or as a list of parts if any of them is such a list. Some providers write their content
    in both forms."""
    if not any(isinstance(piece, list) for piece in pieces):
        return "".join(map(str, pieces))
    parts: list[Any] = []
    for is_text, run in groupby(filter(None, pieces), lambda piece: isinstance(piece, str)):
        some = list(run)
        parts += [{"type": "text", "text": "".join(map(str, some))}] if is_text else chain.from_iterable(some)
    return parts


def _calls_of(pieces: Iterable[dict[str, Any]]) -> list[Object]:
    """The calls, whose first piece has the whole name. The index of each call is the one without the proxy's calls in
    front of it. Some servers give all calls one index: then another id or name means another call. Some servers repeat
    both in each piece."""
    calls: list[tuple[dict[str, Any], list[str]]] = []
    latest: dict[str, int] = {}
    shift = 0
    for piece in pieces:
        function, index = object_in(piece, "function"), piece.get("index")
        call = calls[latest[repr(index)]][0] if repr(index) in latest else None
        name, ids = function.get("name"), (call or piece).get("id")
        is_named = bool(name) and call is not None and name != object_in(call, "function").get("name")
        if call is None or is_named or (ids and piece.get("id") and ids != piece["id"]):
            latest[repr(index)] = len(calls)
            at = {"index": max(0, index - shift)} if type(index) is int and name else {}
            calls.append(({**piece, **at}, []))
            shift += is_ours(piece)
        calls[latest[repr(index)]][1].append(str(function.get("arguments") or ""))
    return [{**one, "function": {**object_in(one, "function"), "arguments": "".join(said)}} for one, said in calls]


def _thoughts_of(pieces: Iterable[dict[str, Any]]) -> list[Object]:
    """Blocks of thoughts. Each block goes on until it is signed; litellm streams Claude's thoughts in this way. Blocks
    are sent back as they came: some providers refuse a conversation in which a call has lost the thoughts before it
    (https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks,
    https://api-docs.deepseek.com/guides/thinking_mode#tool-calls)."""
    blocks: list[tuple[dict[str, Any], list[str]]] = []
    for piece in pieces:
        is_thought, last = piece.get("type") == "thinking", blocks[-1][0] if blocks else {}
        if not is_thought or last.get("type") != "thinking" or last.get("signature"):
            blocks.append((dict(piece), []))
        if is_thought:
            blocks[-1][1].append(str(piece.get("thinking") or ""))
            blocks[-1][0].update({"signature": piece["signature"]} if piece.get("signature") else {})
    return [block | ({"thinking": "".join(parts)} if parts else {}) for block, parts in blocks]


def _as_delta(choice: Mapping[str, Any], *, has_role: bool) -> dict[str, Any]:
    """A choice of a completion as a piece of a stream. A call without an id continues a call that the client has."""
    delta = {name: value for name, value in choice["message"].items() if has_role or name != "role"}
    if isinstance(calls := delta.get("tool_calls"), list):
        has_id = [isinstance(call, dict) and bool(call.get("id")) for call in calls]
        delta["tool_calls"] = [{"index": at, **call} if has_id[at] else call for at, call in enumerate(calls)]
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": delta}
