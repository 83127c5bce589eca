"""How conversations went out whose layout was not the client's own: signed thinking binds what stands in front of it.

Newer models sign what they thought, and refuse it later unless the tools, the system text and all messages in front of
it are those that they saw. So the layout of a request whose answer may come back with signed thinking is remembered: in
digests, and under the messages that the client sent. A request of which nothing is remembered here went out as the
client sent it, but for what stands in front of its own last signed thinking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Struct, msgpack

from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.request.transcript import Transcript
from proxy.core.sessions.volatile_lines import VolatileRegion
from proxy.core.wire.json_body import Unreadable

_VERSION: Final = 1
_MOST_FORMS = 8
_MOST_HEADS = 64


class SentForm(Struct, frozen=True, array_like=True):
    """How a request of ``count`` messages went out. ``key`` is the digest of its tools and messages as they came,
    ``elements`` are the digests of its elements in their order, and ``regions`` are what was known to be volatile in
    its system messages."""

    count: int
    key: bytes
    elements: tuple[bytes, ...]
    regions: tuple[VolatileRegion, ...] = ()


class SentFronts(Struct, array_like=True):
    """What was sent of one conversation. ``heads`` are the digests of its tools and instructions, and ``count`` is the
    number of messages of the newest request. ``is_whole``: no request is missing here."""

    version: int = _VERSION
    heads: list[bytes] = []
    count: int = 0
    is_whole: bool = True
    forms: Annotated[list[SentForm], Meta(max_length=_MOST_FORMS)] = []


@dataclass(frozen=True, slots=True)
class BoundFront:
    """What must stay as it went out: the first ``still`` messages are where they are for good, and the first of them
    were laid out as ``form`` says, where that is given. The number is 0 where nothing is bound."""

    still: int = 0
    form: SentForm | None = None


_UNBOUND = BoundFront()
_DECODER: Final = msgpack.Decoder(SentFronts)
_encode: Final = msgpack.Encoder().encode


class FrontTable:
    """The conversations that were sent, the least recently used out first. They are known by whose they are, and by
    how they begin: every model and every deployment is sent the same."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._known: Bounded[str, SentFronts] = Bounded(capacity_bytes, _weight)

    def bound(self, scope: str, transcript: Transcript, tools: bytes) -> BoundFront:
        """What is bound in a request. ``tools`` is the digest of its tools as they came.

        The newest form that fits is the one that the signed thinking behind it was made with. Nothing is bound where
        the instructions are others than in every request before: the client has changed them, and all thinking of the
        conversation was made under others."""
        if not transcript.signed:
            return _UNBOUND
        known = self._known.get(name_of(scope, transcript))
        still = transcript.signed[-1] + 1
        if known is None:
            return BoundFront(_turn_end(transcript, still))
        places = set(transcript.signed)
        fitting = [f for f in known.forms if f.count in places and f.key == _key(transcript, tools, f.count)]
        if fitting:
            form = max(fitting, key=lambda one: one.count)
            known.forms.remove(form)
            known.forms.append(form)
            return BoundFront(_turn_end(transcript, still), form)
        is_changed = _is_whole(known, transcript) and _head(transcript, tools) not in known.heads
        return _UNBOUND if is_changed else BoundFront(_turn_end(transcript, still))

    def sent(self, scope: str, transcript: Transcript, tools: bytes, form: SentForm | None) -> None:
        """A request went out: as ``form`` says, or as it came (None)."""
        name, head, count = name_of(scope, transcript), _head(transcript, tools), len(transcript.messages)
        known = self._known.get(name) or SentFronts(is_whole=not transcript.signed)
        known.is_whole, known.count = _is_whole(known, transcript), count
        if head not in known.heads:
            known.heads = [*known.heads, head][-_MOST_HEADS:]
        if form is not None or any(one.count == count for one in known.forms):
            key = _key(transcript, tools, count)
            known.forms = [one for one in known.forms if one.key != key]
            known.forms = [*known.forms, *([form] if form is not None else ())][-_MOST_FORMS:]
        self._known.put(name, known)

    def packed(self, scope: str, transcript: Transcript) -> dict[str, bytes]:
        """What to leave for others; nothing of a conversation that went out as it came, under one head."""
        name = name_of(scope, transcript)
        known = self._known.get(name)
        return {name: _encode(known)} if known is not None and (known.forms or len(known.heads) > 1) else {}

    def adopt(self, name: str, blob: bytes) -> None:
        """Take over what others have sent. Raises Unreadable."""
        try:
            packed = _DECODER.decode(blob)
        except (DecodeError, RecursionError) as error:
            raise Unreadable("no fronts") from error
        if packed.version != _VERSION:
            raise Unreadable("fronts of another version")
        known = self._known.get(name)
        if known is not None:
            keys = {form.key for form in known.forms}
            packed.forms = [*(form for form in packed.forms if form.key not in keys), *known.forms][-_MOST_FORMS:]
            packed.heads = [*(head for head in packed.heads if head not in known.heads), *known.heads][-_MOST_HEADS:]
            packed.count = max(known.count, packed.count)
        self._known.put(name, packed)


def form_of(
    transcript: Transcript, tools: bytes, elements: tuple[bytes, ...], regions: Sequence[VolatileRegion]
) -> SentForm:
    """The form of a request that goes out as these elements."""
    count = len(transcript.messages)
    return SentForm(count, _key(transcript, tools, count), elements, tuple(regions))


def name_of(scope: str, transcript: Transcript) -> str:
    """Under what name a conversation is known: by its first turn."""
    opening = transcript.pairs[0][1] if transcript.pairs else b""
    return "f" + digest(b"front", scope.encode(), opening).hex()


def _key(transcript: Transcript, tools: bytes, count: int) -> bytes:
    return digest(tools, *[message.digest for message in transcript.messages[:count]])


def _head(transcript: Transcript, tools: bytes) -> bytes:
    return _key(transcript, tools, transcript.preamble)


def _is_whole(known: SentFronts, transcript: Transcript) -> bool:
    """Whether the newest signed thinking is the answer to a request that is known, or stood in one."""
    return known.is_whole and (not transcript.signed or transcript.signed[-1] <= known.count)


def _turn_end(transcript: Transcript, count: int) -> int:
    """So many messages, and those behind them that answer the last one: nothing is put in front of an answer."""
    messages = transcript.messages
    while count < len(messages) and messages[count].role in ("assistant", "tool"):
        count += 1
    return count


def _weight(known: SentFronts) -> int:
    digests = len(known.heads) + sum(len(form.elements) + 20 * len(form.regions) for form in known.forms)
    return 600 + 200 * len(known.forms) + 60 * digests
