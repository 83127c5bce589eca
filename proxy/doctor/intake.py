"""Turns calls into digests and sizes, and keeps the bodies of some of them for a replay."""

from collections.abc import Sequence
from dataclasses import replace

import orjson
from msgspec import structs

from proxy.core.diagnosis.record import SYSTEM, PromptPiece
from proxy.core.diagnosis.wire import is_continuation, wire_record
from proxy.core.digest import digest
from proxy.core.lru import LastUsed
from proxy.core.prompts.volatile_content import volatile_in
from proxy.core.recognition.pieces import Cut, MessageKind, Recogniser, recognise_text
from proxy.core.request.tokens import Encode
from proxy.doctor.clients import Client
from proxy.doctor.entries import Entries
from proxy.doctor.readers.call import Call, Gap, LineSigns, Wire
from proxy.replay.trace import TraceError, chat_body

_KEPT_BYTES = 32 << 20
_MOST_CLIENTS = 1_000
OTHERS = "(other clients)"
_TEXTS = 16_384
_CLOCK = "time"
_MOST_NAME_CHARS = 120
_CONTEXT = (MessageKind.CONTEXT, MessageKind.CANDIDATE)


class Intake:
    """Takes calls in the order in which they are read. ``count`` counts tokens."""

    def __init__(self, entries: Entries, count: Encode, recognisers: Sequence[Recogniser]) -> None:
        self.clients: dict[str, Client] = {}
        self._entries, self._count, self._recognisers = entries, count, recognisers
        self._left = _KEPT_BYTES
        self._signs: LastUsed[bytes, LineSigns] = LastUsed(_TEXTS)
        self._cuts: LastUsed[bytes, Sequence[tuple[Cut, bytes]]] = LastUsed(_TEXTS)

    def take(self, call: Call) -> None:
        """Keep a call. Raises OSError where the disk is full."""
        name = call.client[:_MOST_NAME_CHARS]
        if name not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            name = OTHERS
        client = self.clients.setdefault(name, Client())
        client.wires[call.wire] += 1
        client.gaps.update(call.gaps)
        session, model, provider = (text[:_MOST_NAME_CHARS] for text in (call.session, call.model, call.provider))
        taken = structs.replace(call, client=name, session=session, model=model, provider=provider, body=None)
        self._entries.add(taken if call.body is None else self._digested(client, call.body, taken))

    def _digested(self, client: Client, raw: bytes, call: Call) -> Call:
        """The call with its prompt by digests; without it where the body has more names, or is nested more deeply,
        than any prompt."""
        signs: dict[bytes, LineSigns] = {}

        def cut(piece: PromptPiece, text: str) -> Sequence[PromptPiece]:
            if piece.kind != SYSTEM:
                return self._cut(piece, text)
            if found := self._signs_of(piece.digest, text):
                signs[piece.digest] = found
            return (piece,)

        try:
            body = orjson.loads(raw)
            record = wire_record(body, self._count, at=call.at or 0.0, route=call.provider, cut=cut)
        except (ValueError, OverflowError, RecursionError):
            return call
        self._keep(client, structs.replace(call, body=raw))
        return structs.replace(call, record=record, signs=signs, continues=is_continuation(body))

    def _keep(self, client: Client, call: Call) -> None:
        """Keep the body of a chat request while there is room. No client takes more than half of what is left, so that
        there is some for the others."""
        assert call.body is not None
        size = len(call.body)
        if call.wire is not Wire.CHAT or Gap.CUT in call.gaps or client.size + size > self._left // 2:
            return
        try:
            chat_body(call.body, "")
        except TraceError:
            return
        client.bodies.append(call)
        client.size += size
        self._left -= size

    def _cut(self, piece: PromptPiece, text: str) -> Sequence[PromptPiece]:
        """The files and other pieces that a client is known to put into a message, as the planner cuts it."""
        cuts = self._cuts.find(piece.digest)
        if cuts is None:
            context = recognise_text(self._recognisers, piece.key, text)
            known = context.cuts if context is not None and context.form in _CONTEXT else ()
            texts = ((cut, text[cut.start : cut.end].encode("utf-8", "surrogatepass")) for cut in known)
            cuts = [(cut, digest(piece.key.encode(), content)) for cut, content in texts]
            self._cuts.put(piece.digest, cuts)
        found, before = [] if cuts else [piece], 0
        for cut, own in cuts:
            end = piece.tokens * cut.end // len(text)
            is_marked = piece.is_marked and cut.end == len(text)
            found.append(
                replace(piece, key=cut.key, kind=cut.kind, digest=own, tokens=end - before, is_marked=is_marked)
            )
            before = end
        return found

    def _signs_of(self, name: bytes, text: str) -> LineSigns:
        """The first sign of each line of a text; a line with a time of day is a clock, whatever else stands in it."""
        known = self._signs.find(name)
        if known is not None:
            return known
        found: dict[int, str] = {}
        for sign in volatile_in(text):
            if sign.kind == _CLOCK or sign.line not in found:
                found[sign.line] = sign.kind
        if found and "\n" not in text:
            # A text of one line differs as a whole.
            found[0] = found[1]
        self._signs.put(name, found)
        return found
