"""How requests went out whose layout was not the client's own: signed thinking binds what stands in front of it.

Newer models sign what they thought, and refuse it later unless the tools, the system text and all messages in front of
it are those that they saw. So the layout of each request is remembered that did not go out as it came, in digests: its
answer may come back with signed thinking. A request of which nothing is remembered went out as it came, behind what its
own signed thinking bound.

Each is remembered by all that it says. So nothing that others send, and no other process, takes the place of it.
"""

from collections.abc import Iterable
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
"""What the names in a store begin with."""


class SentForm(Struct, frozen=True, array_like=True):
    """How a request of ``count`` messages went out. ``key`` is the digest of its tools and messages as they came,
    ``elements`` are the digests of its elements in their order, and ``regions`` are what was known to be volatile in
    its system messages. ``tools`` are the digests of its tools in their order, where that was another one."""

    count: int
    key: bytes
    elements: tuple[bytes, ...]
    regions: tuple[VolatileRegion, ...] = ()
    tools: tuple[bytes, ...] = ()


class SentForms(Struct, frozen=True, array_like=True):
    """The forms of one request without signed thinking, or those of a conversation with it, the newest last."""

    version: int = VERSION
    forms: tuple[SentForm, ...] = ()


class SentHeads(Struct, frozen=True, array_like=True):
    """Under which tools and instructions a conversation was sent up to some request, as digests. ``is_whole``: none is
    missing."""

    version: int = VERSION
    heads: frozenset[bytes] = frozenset()
    is_whole: bool = True


_FORMS_DECODER: Final = msgpack.Decoder(SentForms)
_HEADS_DECODER: Final = msgpack.Decoder(SentHeads)


class FrontTable:
    """The conversations that were sent, the least recently used out first. Every model and every deployment is sent the
    same."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._forms: Bounded[str, SentForms] = Bounded(capacity_bytes // 2, _weight)
        self._heads: Bounded[str, SentHeads] = Bounded(capacity_bytes // 2, lambda known: 300 + 60 * len(known.heads))

    def bound(self, scope: str, transcript: Transcript, tools: bytes) -> tuple[int, SentForm | None]:
        """How many messages of a request with signed thinking are where they are for good, and the form in which the
        first of them went out, None where they went out as they came. ``tools`` is the digest of its tools as they
        came.

        Nothing is bound where all thinking was made under other instructions: the client has changed them since."""
        names = _forms_names(scope, transcript, tools)
        known = list(chain.from_iterable(self._forms.get(name, SentForms()).forms for name in names))
        fitting = [f for f in known if f.count in transcript.signed and f.key == key_of(transcript, tools, f.count)]
        form = max(fitting, key=lambda one: one.count, default=None)
        if form is not None:
            # The conversation goes on with it, and leaves it for others with each request.
            self._put_forms(names[-1], [*(one for one in known if one != form), form])
        if form is None and self._is_under_others(scope, transcript, tools):
            return 0, None
        still, messages = transcript.signed[-1] + 1, transcript.messages
        while still < len(messages) and messages[still].role in ("assistant", "tool"):
            still += 1  # nothing is put in front of an answer
        return still, form

    def _is_under_others(self, scope: str, transcript: Transcript, tools: bytes) -> bool:
        """Whether all signed thinking was made under other instructions. In front of the first answer this cannot be
        told: many conversations begin alike."""
        newest = transcript.signed[-1]
        if not any(message.role == "assistant" for message in transcript.messages[:newest]):
            return False
        known = self._heads.get(_heads_name(scope, transcript, newest))
        return known is not None and known.is_whole and _head(transcript, tools) not in known.heads

    def sent(self, scope: str, transcript: Transcript, tools: bytes, form: SentForm | None) -> None:
        """A request went out: as ``form`` says, or as it came (None)."""
        count = len(transcript.messages)
        name, heads_name = _forms_names(scope, transcript, tools)[-1], _heads_name(scope, transcript, count)
        if form is not None or name in self._forms:
            own = key_of(transcript, tools, count)
            kept = [one for one in self._forms.get(name, SentForms()).forms if one.key != own]
            self._put_forms(name, [*kept, *([form] if form is not None else ())])
        before = SentHeads()
        if transcript.signed:
            before = self._heads.get(_heads_name(scope, transcript, transcript.signed[-1])) or SentHeads(is_whole=False)
        known = self._heads.get(heads_name) or SentHeads()
        heads = before.heads | known.heads | {_head(transcript, tools)}
        self._put_heads(heads_name, heads, is_whole=before.is_whole and known.is_whole)

    def packed(self, scope: str, transcript: Transcript, tools: bytes) -> dict[str, bytes]:
        """What to leave for others; nothing of a conversation that went out as it came, under one head."""
        name, count = _forms_names(scope, transcript, tools)[-1], len(transcript.messages)
        heads_name = _heads_name(scope, transcript, count)
        forms, heads = self._forms.get(name), self._heads.get(heads_name)
        found = {name: msgpack.encode(forms)} if forms is not None else {}
        if heads is not None and len(heads.heads) > 1:
            found[heads_name] = msgpack.encode(heads)
        return found

    def adopt(self, name: str, blob: bytes) -> None:
        """Take over what others have sent. Raises Unreadable."""
        if name.startswith(_HEADS):
            heads, other = unpacked(_HEADS_DECODER, blob), self._heads.get(name) or SentHeads()
            self._put_heads(name, heads.heads | other.heads, is_whole=heads.is_whole and other.is_whole)
        else:
            self._put_forms(name, (*unpacked(_FORMS_DECODER, blob).forms, *self._forms.get(name, SentForms()).forms))

    def _put_heads(self, name: str, heads: frozenset[bytes], *, is_whole: bool) -> None:
        is_whole = is_whole and len(heads) <= _MOST_HEADS
        self._heads.put(name, SentHeads(heads=heads if is_whole else frozenset(), is_whole=is_whole))

    def _put_forms(self, name: str, forms: Iterable[SentForm]) -> None:
        newest = tuple(dict.fromkeys(forms))[-_MOST_FORMS:]
        self._forms.put(name, SentForms(forms=newest))


def names_of(scope: str, transcript: Transcript, tools: bytes) -> list[str]:
    """Under what names others may have left something about a request."""
    if not transcript.signed:
        return []
    return [*_forms_names(scope, transcript, tools), _heads_name(scope, transcript, transcript.signed[-1])]


def key_of(transcript: Transcript, tools: bytes, count: int) -> bytes:
    """The digest of the tools and of so many messages as they came."""
    return digest(tools, b"".join([message.digest for message in transcript.messages[:count]]))


def _forms_names(scope: str, transcript: Transcript, tools: bytes) -> list[str]:
    """The names of the request that made the first signed thinking, and of the conversation since then; that of the
    request itself where it has none."""
    first = transcript.signed[0] if transcript.signed else len(transcript.messages)
    counts = (first, first + 1) if transcript.signed else (first,)
    keys = [key_of(transcript, tools, count) for count in counts]
    return [_FORMS + digest(b"front", scope.encode(), key).hex() for key in keys]


def _heads_name(scope: str, transcript: Transcript, count: int) -> str:
    """That of so many messages without the instructions, whether or not the client has kept older thinking."""
    said = [part.digest for message in transcript.messages[transcript.preamble : count] for part in message.parts]
    return _HEADS + digest(b"heads", scope.encode(), b"%d" % count, b"".join(said)).hex()


def _head(transcript: Transcript, tools: bytes) -> bytes:
    """The digest of the tools and the instructions as they came."""
    return key_of(transcript, tools, transcript.preamble)


def _weight(known: SentForms) -> int:
    return 300 + sum(200 + 60 * (len(f.elements) + len(f.tools)) + 1_000 * len(f.regions) for f in known.forms)
