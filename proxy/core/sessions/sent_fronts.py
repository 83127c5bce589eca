"""Remembers requests that were sent in another layout than the client's own: signed thinking binds everything in front
of it.

Newer models sign their thinking. Later they refuse it unless the tools, the system text and all messages in front of it
are those that they saw. The answer to a request may come back with signed thinking. So if a request was not sent as it
came, its layout is remembered in digests. A request of which nothing is remembered was sent as it came, behind the part
that its own signed thinking bound.

Each request is remembered by its whole content. So no other request and no other process can replace it.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct, msgpack

from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.request.transcript import Transcript
from proxy.core.sessions.snapshot import VERSION, unpacked
from proxy.core.sessions.volatile_lines import VolatileRegion

_MOST_FORMS = 8
_MOST_HEADS = 64
_FORMS, _HEADS = "f", "g"
"""The beginnings of the names in a store."""


class SentForm(Struct, frozen=True, array_like=True):
    """The form in which a request of ``count`` messages was sent. ``key`` is the digest of its tools and messages as
    they came. ``elements`` are the digests of its elements in the order in which they were sent. ``regions`` are the
    regions of its system messages that were known to be volatile. ``tools`` are the digests of its tools as they were
    sent, if their order was not the client's."""

    count: int
    key: bytes
    elements: tuple[bytes, ...]
    regions: tuple[VolatileRegion, ...] = ()
    tools: tuple[bytes, ...] = ()


class SentFront(Struct, frozen=True, array_like=True):
    """The facts that are known under one name. ``forms`` are those of a request without signed thinking, or of a
    conversation with signed thinking, the newest last. ``heads`` are the digests of all tools and instructions under
    which a conversation was sent up to some request; empty if they are not known."""

    version: int = VERSION
    forms: tuple[SentForm, ...] = ()
    heads: frozenset[bytes] = frozenset()


_DECODER: Final = msgpack.Decoder(SentFront)
_NOTHING: Final = SentFront()


class FrontTable:
    """The conversations that were sent. The least recently used are dropped first. All models and deployments get the
    same form."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._known: Bounded[str, SentFront] = Bounded(capacity_bytes, _weight)

    def bound(self, scope: str, transcript: Transcript, tools: bytes) -> tuple[int, SentForm | None]:
        """How many messages of a request with signed thinking must keep their places, and the form in which the first
        of them were sent; None if they were sent as they came. ``tools`` is the digest of its tools as they came.

        Nothing is bound if all thinking was made under other instructions: the client has changed them since."""
        names = _forms_names(scope, transcript, tools)
        known = list(chain.from_iterable(self._known.get(name, _NOTHING).forms for name in names))
        fitting = [f for f in known if f.count in transcript.signed and f.key == key_of(transcript, tools, f.count)]
        form = max(fitting, key=lambda one: one.count, default=None)
        if form is not None:
            # The conversation keeps this form, and passes it on to other processes with each request.
            self._put(names[-1], [*(one for one in known if one != form), form])
        if form is None and self._is_under_others(scope, transcript, tools):
            return 0, None
        still, messages = transcript.signed[-1] + 1, transcript.messages
        while still < len(messages) and messages[still].is_answer:
            still += 1  # nothing is inserted in front of an answer
        return still, form

    def _is_under_others(self, scope: str, transcript: Transcript, tools: bytes) -> bool:
        """Whether all signed thinking was made under other instructions. If there is only one message with thinking,
        this cannot be known: many conversations begin alike, with answers that a client writes itself, and not all of
        them were remembered."""
        newest = transcript.signed[-1]
        if newest == transcript.signed[0]:
            return False
        heads = self._known.get(_heads_name(scope, transcript, newest), _NOTHING).heads
        return bool(heads) and _head(transcript, tools) not in heads

    def sent(self, scope: str, transcript: Transcript, tools: bytes, form: SentForm | None) -> Sequence[str]:
        """Record that a request was sent: in this ``form``, or as it came (None). Returns the names under which this is
        remembered: that of its form, and that of its heads."""
        name = _forms_names(scope, transcript, tools)[-1]
        heads_name = _heads_name(scope, transcript, len(transcript.messages))
        if form is not None or name in self._known:
            own = key_of(transcript, tools, len(transcript.messages))
            kept = [one for one in self._known.get(name, _NOTHING).forms if one.key != own]
            self._put(name, [*kept, *([form] if form is not None else ())])
        known = self._known.get(heads_name, _NOTHING).heads
        heads = known
        if transcript.signed:
            heads = self._known.get(_heads_name(scope, transcript, transcript.signed[-1]), _NOTHING).heads
        if heads or not transcript.signed:
            self._put(heads_name, heads=heads | known | {_head(transcript, tools)})
        return name, heads_name

    def packed(self, names: Iterable[str]) -> dict[str, bytes]:
        """The blobs to leave for other processes. A conversation that was sent as it came, under one head, leaves
        nothing."""
        found = {name: self._known.get(name) for name in names}
        return {name: msgpack.encode(one) for name, one in found.items() if one is not None and len(one.heads) != 1}

    def adopt(self, name: str, blob: bytes) -> None:
        """Take over a blob of another process. Raises Unreadable."""
        theirs, ours = unpacked(_DECODER, blob), self._known.get(name, _NOTHING)
        self._put(name, [*theirs.forms, *ours.forms], theirs.heads | ours.heads)

    def _put(self, name: str, forms: Iterable[SentForm] = (), heads: frozenset[bytes] = frozenset()) -> None:
        newest = tuple(dict.fromkeys(forms))[-_MOST_FORMS:]
        self._known.put(name, SentFront(forms=newest, heads=heads if len(heads) <= _MOST_HEADS else frozenset()))


def names_of(scope: str, transcript: Transcript, tools: bytes) -> list[str]:
    """The names under which other processes may have left something about a request."""
    if not transcript.signed:
        return []
    return [*_forms_names(scope, transcript, tools), _heads_name(scope, transcript, transcript.signed[-1])]


def key_of(transcript: Transcript, tools: bytes, count: int) -> bytes:
    """The digest of the tools and of the first ``count`` messages as they came."""
    return digest(tools, b"".join([message.digest for message in transcript.messages[:count]]))


def _forms_names(scope: str, transcript: Transcript, tools: bytes) -> list[str]:
    """The names of the request whose answer had the first signed thinking, and of the conversation since then. Without
    signed thinking: only the name of the request itself."""
    first = transcript.signed[0] if transcript.signed else len(transcript.messages)
    counts = (first, first + 1) if transcript.signed else (first,)
    keys = [key_of(transcript, tools, count) for count in counts]
    return [_FORMS + digest(b"front", scope.encode(), key).hex() for key in keys]


def _heads_name(scope: str, transcript: Transcript, count: int) -> str:
    """The name of the heads of the first ``count`` messages. The instructions do not count, nor whether the client has
    kept older thinking."""
    said = [part.digest for message in transcript.messages[transcript.preamble : count] for part in message.parts]
    return _HEADS + digest(b"heads", scope.encode(), b"%d" % count, b"".join(said)).hex()


def _head(transcript: Transcript, tools: bytes) -> bytes:
    """The digest of the tools and the instructions as they came."""
    return key_of(transcript, tools, transcript.preamble)


def _weight(known: SentFront) -> int:
    forms = sum(200 + 60 * (len(f.elements) + len(f.tools)) + 1_000 * len(f.regions) for f in known.forms)
    return 300 + 60 * len(known.heads) + forms
