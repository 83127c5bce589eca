"""Turns calls into digests and sizes, and keeps the bodies of some of them for a replay."""

import orjson
from msgspec import structs

from proxy.core.diagnosis.record import SYSTEM, PromptPiece
from proxy.core.diagnosis.wire import is_continuation, wire_record
from proxy.core.lru import LastUsed
from proxy.core.prompts.volatile_content import volatile_in
from proxy.core.request.tokens import Encode
from proxy.doctor.clients import Client
from proxy.doctor.entries import Entries
from proxy.doctor.readers.call import Call, Gap, LineSigns
from proxy.replay.trace import TraceError, chat_body

_KEPT_BYTES = 32 << 20
_MOST_CLIENTS = 1_000
OTHERS = "(other clients)"
_TEXTS = 4_096
_CLOCK = "time"
_MOST_NAME_CHARS = 120


class Intake:
    """Takes calls in the order in which they are read. ``count`` counts tokens."""

    def __init__(self, entries: Entries, count: Encode) -> None:
        self.clients: dict[str, Client] = {}
        self._entries, self._count = entries, count
        self._left = _KEPT_BYTES
        self._signs: LastUsed[bytes, LineSigns] = LastUsed(_TEXTS)

    def take(self, call: Call) -> None:
        """Keep a call. Raises OSError where the disk is full."""
        name = call.client[:_MOST_NAME_CHARS]
        if name not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            name = OTHERS
        client = self.clients.setdefault(name, Client())
        client.chats += call.is_chat
        client.gaps.update(call.gaps)
        session, model, provider = (text[:_MOST_NAME_CHARS] for text in (call.session, call.model, call.provider))
        taken = structs.replace(call, client=name, session=session, model=model, provider=provider, body=None)
        self._entries.add(taken if call.body is None else self._digested(client, call.body, taken))

    def _digested(self, client: Client, raw: bytes, call: Call) -> Call:
        """The call with its prompt by digests; without it where the body is nested more deeply than any prompt."""
        signs: dict[bytes, LineSigns] = {}

        def look(piece: PromptPiece, text: str) -> None:
            if piece.kind != SYSTEM:
                return
            found = self._signs.find(piece.digest)
            if found is None:
                found = _signs(text)
                self._signs.put(piece.digest, found)
            if found:
                signs[piece.digest] = found

        try:
            body = orjson.loads(raw)
            record = wire_record(body, self._count, at=call.at or 0.0, route=call.provider, on_text=look)
        except (ValueError, RecursionError):
            return call
        self._keep(client, structs.replace(call, body=raw))
        return structs.replace(call, record=record, signs=signs, continues=is_continuation(body))

    def _keep(self, client: Client, call: Call) -> None:
        """Keep the body of a chat request while there is room. No client takes more than half of what is left, so that
        there is some for the others."""
        assert call.body is not None
        size = len(call.body)
        if not call.is_chat or Gap.CUT in call.gaps or client.size + size > self._left // 2:
            return
        try:
            chat_body(call.body, "")
        except TraceError:
            return
        client.bodies.append(call)
        client.size += size
        self._left -= size


def _signs(text: str) -> LineSigns:
    """The first sign of each line of a text; a line with a time of day is a clock, whatever else stands in it."""
    found: dict[int, str] = {}
    for sign in volatile_in(text):
        if sign.kind == _CLOCK or sign.line not in found:
            found[sign.line] = sign.kind
    # A text of one line differs as a whole.
    return {0: found[1], **found} if found and "\n" not in text else found
