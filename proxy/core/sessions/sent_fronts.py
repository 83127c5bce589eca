"""How conversations went out whose layout was not the client's own: signed thinking binds what stands in front of it.

Newer models sign what they thought, and refuse it later unless the tools, the system text and all messages in front of
it are those that they saw. So the layout of each request is remembered that did not go out as it came, in digests: its
answer may come back with signed thinking. A request of which nothing is remembered went out as it came, behind what its
own signed thinking bound.
"""

from typing import Final

from msgspec import Struct, field, msgpack

from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.request.transcript import Transcript
from proxy.core.sessions.snapshot import VERSION, unpacked
from proxy.core.sessions.volatile_lines import VolatileRegion

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
    """What was sent of one conversation. ``heads`` are the digests of its tools and instructions, each with the number
    of messages in front of its first answer, 0 for the first head. ``count`` is the number of messages of the longest
    request. ``is_whole``: no request is missing here."""

    version: int = VERSION
    heads: dict[bytes, int] = field(default_factory=dict)
    count: int = 0
    is_whole: bool = True
    forms: list[SentForm] = field(default_factory=list)


_DECODER: Final = msgpack.Decoder(SentFronts)


class FrontTable:
    """The conversations that were sent, the least recently used out first. They are known by whose they are, and by
    their first turn: every model and every deployment is sent the same."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._known: Bounded[str, SentFronts] = Bounded(capacity_bytes, _weight)

    def bound(self, scope: str, transcript: Transcript, tools: bytes) -> tuple[int, SentForm | None]:
        """How many messages of a request with signed thinking are where they are for good, and the form in which the
        first of them went out, None where they went out as they came. ``tools`` is the digest of its tools as they
        came.

        Nothing is bound where all thinking was made under other instructions: the client has changed them since."""
        known = self._known.get(name_of(scope, transcript)) or SentFronts(is_whole=False)
        fitting = [
            f for f in known.forms if f.count in transcript.signed and f.key == key_of(transcript, tools, f.count)
        ]
        form = max(fitting, key=lambda one: one.count, default=None)
        if form is not None:
            known.forms = [*(one for one in known.forms if one is not form), form]
        elif _is_whole(known, transcript):
            since = known.heads.get(key_of(transcript, tools, transcript.preamble))
            if since is None or transcript.signed[-1] < since:
                return 0, None
        still, messages = transcript.signed[-1] + 1, transcript.messages
        while still < len(messages) and messages[still].role in ("assistant", "tool"):
            still += 1  # nothing is put in front of an answer
        return still, form

    def sent(self, scope: str, transcript: Transcript, tools: bytes, form: SentForm | None) -> None:
        """A request went out: as ``form`` says, or as it came (None)."""
        name, count, head = name_of(scope, transcript), len(transcript.messages), transcript.preamble
        known = self._known.get(name) or SentFronts(count=-1)
        known.is_whole, known.count = _is_whole(known, transcript), max(count, known.count)
        known.heads = _newest({key_of(transcript, tools, head): count if known.heads else 0, **known.heads})
        if form is not None or known.forms:
            own = key_of(transcript, tools, count)
            kept = [one for one in known.forms if one.key != own]
            known.forms = [*kept, *([form] if form is not None else ())][-_MOST_FORMS:]
        self._known.put(name, known)

    def packed(self, scope: str, transcript: Transcript) -> dict[str, bytes]:
        """What to leave for others; nothing of a conversation that went out as it came, under one head."""
        known = self._known.get(name := name_of(scope, transcript))
        return {name: msgpack.encode(known)} if known is not None and (known.forms or len(known.heads) > 1) else {}

    def adopt(self, name: str, blob: bytes) -> None:
        """Take over what others have sent. Raises Unreadable."""
        packed = unpacked(_DECODER, blob)
        known = self._known.get(name) or SentFronts()
        packed.heads = _newest({**known.heads, **packed.heads})
        packed.forms = [*packed.forms, *(form for form in known.forms if form not in packed.forms)][-_MOST_FORMS:]
        packed.count, packed.is_whole = max(packed.count, known.count), packed.is_whole and known.is_whole
        self._known.put(name, packed)


def name_of(scope: str, transcript: Transcript) -> str:
    """Under what name a conversation is known."""
    return "f" + digest(b"front", scope.encode(), transcript.pairs[0][1] if transcript.pairs else b"").hex()


def key_of(transcript: Transcript, tools: bytes, count: int) -> bytes:
    """The digest of the tools and of so many messages as they came."""
    return digest(tools, *[message.digest for message in transcript.messages[:count]])


def _newest(heads: dict[bytes, int]) -> dict[bytes, int]:
    """Those under which the most messages were sent."""
    return dict(sorted(heads.items(), key=lambda one: one[1])[-_MOST_HEADS:])


def _is_whole(known: SentFronts, transcript: Transcript) -> bool:
    """Whether the newest signed thinking is the answer to a request that is known, or stood in one."""
    return known.is_whole and (not transcript.signed or transcript.signed[-1] <= known.count)


def _weight(known: SentFronts) -> int:
    return 600 + 60 * len(known.heads) + sum(200 + 60 * len(f.elements) + 1_000 * len(f.regions) for f in known.forms)
