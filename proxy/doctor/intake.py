"""Turns recorded calls into entries, and keeps the bodies of some of them for a replay."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from proxy.core.diagnosis.record import SYSTEM, PromptRecord
from proxy.core.diagnosis.wire import is_continuation, wire_record
from proxy.core.lru import LastUsed
from proxy.core.prompts.volatile_content import volatile_in
from proxy.core.request.message import SYSTEM_ROLES
from proxy.core.request.tokens import Encode
from proxy.doctor.entries import Entries, Entry, LineSigns
from proxy.doctor.readers.call import Gap, RecordedCall, Wire
from proxy.replay.trace import TraceError, chat_body

_KEPT_BYTES = 32 << 20
_MOST_CLIENTS = 1_000
OTHERS = "(other clients)"
_TEXTS = 4_096
_CLOCK = "time"
_MOST_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class Body:
    """A chat request whose bytes are kept, to be replayed."""

    at: float
    session: str
    model: str
    provider: str
    content: bytes


@dataclass(slots=True)
class Kept:
    """The bodies that are kept of one client, and how many requests it has sent in all, by form. ``told`` are sentences
    on what is not known, besides the gaps; ``modes_untold`` says why nothing is replayed, where it is not that nothing
    was kept."""

    bodies: list[Body] = field(default_factory=list)
    size: int = 0
    calls: Counter[Wire] = field(default_factory=Counter)
    gaps: Counter[Gap] = field(default_factory=Counter)
    told: Sequence[str] = ()
    modes_untold: str = ""


class Intake:
    """Takes calls in the order in which they are read. ``count`` counts tokens."""

    def __init__(self, entries: Entries, count: Encode) -> None:
        self.kept: dict[str, Kept] = {}
        self._entries, self._count = entries, count
        self._left = _KEPT_BYTES
        self._signs: LastUsed[bytes, LineSigns] = LastUsed(_TEXTS)

    def take(self, call: RecordedCall) -> None:
        """Keep a call as an entry. Raises OSError where the disk is full."""
        client = call.client[:_MOST_NAME_CHARS]
        if client not in self.kept and len(self.kept) >= _MOST_CLIENTS:
            client = OTHERS
        kept = self.kept.setdefault(client, Kept())
        kept.calls[call.wire] += 1
        kept.gaps.update(call.gaps)
        record, signs, continues = call.record, {}, False
        body = None if call.body is None else _parsed(call.body)
        if body is not None and (made := self._record(body, call)) is not None:
            record = made
            signs, continues = dict(self._found(record, body)), is_continuation(body)
            self._keep(kept, call)
        self._entries.add(
            Entry(
                at=call.at,
                client=client,
                session=call.session[:_MOST_NAME_CHARS],
                model=call.model[:_MOST_NAME_CHARS],
                provider=call.provider[:_MOST_NAME_CHARS],
                profile=call.profile,
                record=record,
                usage=call.usage,
                cause=call.cause,
                signs=signs,
                continues=continues,
                is_compacted=call.is_compacted,
            )
        )

    def _record(self, body: Mapping[str, object], call: RecordedCall) -> PromptRecord | None:
        """The prompt by digests; None where it is nested more deeply than any prompt."""
        try:
            return wire_record(body, self._count, at=call.at or 0.0, route=call.provider)
        except RecursionError:
            return None

    def _keep(self, kept: Kept, call: RecordedCall) -> None:
        """Keep the body of a chat request while there is room. No client takes more than half of what is left, so that
        there is some for the others."""
        assert call.body is not None
        size = len(call.body)
        if call.wire is not Wire.CHAT or Gap.CUT in call.gaps or kept.size + size > self._left // 2:
            return
        try:
            chat_body(call.body, "")
        except TraceError:
            return
        kept.bodies.append(Body(call.at or 0.0, call.session, call.model, call.provider, call.body))
        kept.size += size
        self._left -= size

    def _found(self, record: PromptRecord, body: Mapping[str, object]) -> Iterator[tuple[int, LineSigns]]:
        """What the lines of system texts evidently are, by the index of the piece."""
        places = [index for index, (kind, _) in enumerate(record.named()) if kind == SYSTEM]
        texts = list(_system_texts(body))
        if len(places) != len(texts):
            return
        for index, text in zip(places, texts, strict=True):
            digest = record.digest(index)
            signs = self._signs.find(digest)
            if signs is None:
                signs = _signs(text)
                self._signs.put(digest, signs)
            if signs:
                yield index, signs


def _parsed(raw: bytes) -> Mapping[str, object] | None:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


def _signs(text: str) -> LineSigns:
    """The first sign of each line; a line with a time of day is a clock, whatever else stands in it."""
    found: dict[int, str] = {}
    for sign in volatile_in(text):
        if sign.kind == _CLOCK or sign.line not in found:
            found[sign.line] = sign.kind
    # A text of one line differs as a whole.
    return {0: found[1], **found} if found and "\n" not in text else found


def _system_texts(body: Mapping[str, object]) -> Iterator[str]:
    """The system texts in the order of the pieces (``proxy.core.diagnosis.wire``); empty where a part is no text."""
    for name in ("system", "instructions"):
        yield from map(_text, _parts(body.get(name)))
    messages = body.get("messages") if "messages" in body else body.get("input")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            return
        yield from map(_text, _parts(message.get("content")))


def _parts(content: object) -> Sequence[object]:
    if isinstance(content, list):
        return content
    return [content] if isinstance(content, str) and content else []


def _text(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""
