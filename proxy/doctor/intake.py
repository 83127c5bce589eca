"""Turns calls into digests and sizes, keeps them in the order of time, and the bodies of some of them for a replay."""

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
import orjson
from msgspec import structs

from proxy.core.diagnosis.record import SYSTEM, PromptPiece
from proxy.core.diagnosis.wire import is_continuation, wire_record
from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.prompts.volatile_content import volatile_in
from proxy.core.recognition.pieces import MessageKind, PieceKind, Recogniser, recognise_text
from proxy.core.request.tokens import Encode
from proxy.doctor.findings import Client
from proxy.doctor.readers.call import Call, CutSizes, Gap, LineSigns
from proxy.replay.trace import TraceError, chat_body


class Entries:
    """All calls. ``add`` and reading may raise OSError if the disk is full."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the entries
        self._order: list[tuple[float, int, int]] = []
        self._end = 0

    def add(self, call: Call) -> None:
        """Keep one more call. Calls without a time keep the order in which they came, in front of calls with a time."""
        written = msgspec.msgpack.encode(call)
        self._file.write(written)
        self._order.append((-math.inf if call.at is None else call.at, self._end, len(written)))
        self._end += len(written)

    def __iter__(self) -> Iterator[Call]:
        """The calls in the order of time. Calls with equal times keep the order in which they came."""
        decoder = msgspec.msgpack.Decoder(Call)
        for _, start, length in sorted(self._order):
            self._file.seek(start)
            yield decoder.decode(self._file.read(length))

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


_KEPT_BYTES = 32 << 20
_MOST_CLIENTS = 1_000
OTHERS = "(other clients)"
_KNOWN_BYTES = 32 << 20
_PART_BYTES = 300
_CLOCK = "time"
_MOST_NAME_CHARS = 120


_Known = tuple[LineSigns, CutSizes]
"""The signs and the parts of a text that was seen before."""


class Intake:
    """Takes calls in the order in which they are read. ``count`` counts tokens; ``recognisers`` know clients' texts."""

    def __init__(self, entries: Entries, count: Encode, recognisers: Sequence[Recogniser] = ()) -> None:
        self.clients: dict[str, Client] = {}
        self._entries, self._count, self._recognisers = entries, count, recognisers
        self._left = _KEPT_BYTES
        self._known: Bounded[bytes, _Known] = Bounded(
            _KNOWN_BYTES, lambda known: _PART_BYTES * (1 + sum(map(len, known)))
        )

    def take(self, call: Call) -> None:
        """Keep a call. Raises OSError if the disk is full."""
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
        """The call with its prompt as digests; without the prompt if the body is nested more deeply than any prompt."""
        signs: dict[bytes, LineSigns] = {}
        cuts: dict[bytes, CutSizes] = {}

        def look(piece: PromptPiece, text: str) -> None:
            known = self._known.get(piece.digest)
            if known is None:
                is_system = piece.kind == SYSTEM
                known = (_signs(text), ()) if is_system else ({}, _cuts(self._recognisers, piece.key, text))
                self._known[piece.digest] = known
            self._known.used(piece.digest)
            own_signs, own_cuts = known
            if own_signs:
                signs[piece.digest] = own_signs
            if own_cuts:
                cuts[piece.digest] = own_cuts

        try:
            body = orjson.loads(raw)
            record = wire_record(body, self._count, at=call.at or 0.0, route=call.provider, on_text=look)
        except (ValueError, RecursionError):
            return call
        self._keep(client, structs.replace(call, body=raw))
        return structs.replace(call, record=record, signs=signs, cuts=cuts, continues=is_continuation(body))

    def _keep(self, client: Client, call: Call) -> None:
        """Keep the body of a chat request while there is room. No client takes more than half of the room that is left,
        so that the others have some room, too."""
        assert call.body is not None
        size = len(call.body)
        if not call.is_chat or Gap.CUT in call.gaps or client.size + size > self._left // 2:
            return
        with suppress(TraceError):
            chat_body(call.body, "")
            client.bodies.append(call)
            client.size += size
            self._left -= size


def _cuts(recognisers: Sequence[Recogniser], role: str, text: str) -> CutSizes:
    """The parts of a message that holds context, without its opening. Any other message has no parts."""
    found = recognise_text(recognisers, role, text)
    if found is None or found.form not in (MessageKind.CONTEXT, MessageKind.CANDIDATE):
        return ()
    parts = ((c, text[c.start : c.end]) for c in found.cuts if c.kind is not PieceKind.OPENING)
    return [(c.key, str(c.kind), digest(part.encode("utf-8", "surrogatepass")), len(part)) for c, part in parts]


def _signs(text: str) -> LineSigns:
    """The first sign of each line of a text. A line with a time of day is a clock, whatever else it holds."""
    found: dict[int, str] = {}
    for sign in volatile_in(text):
        if sign.kind == _CLOCK or sign.line not in found:
            found[sign.line] = sign.kind
    # If a text of one line differs, it differs as a whole.
    return {0: found[1], **found} if found and "\n" not in text else found
