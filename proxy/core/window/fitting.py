"""Fits the messages of one request to a budget.

The conversation begins after the leading system messages. Its newest turn, which is everything from the last user
message on, is kept. Only a tool loop in it that is too long for the window loses its oldest groups. The parts that a
request names are placed in front of the text of the newest user message, and a summary in front of the conversation.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from proxy.core.reasons import Edit
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS
from proxy.core.request.transcript import Transcript
from proxy.core.value import dataclass, field, replace
from proxy.core.window.form import WindowParts
from proxy.core.window.newest import (
    Payload,
    message_json,
    own_text,
    shortened_messages,
    with_text,
)
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.core.window.shortening import (
    Count,
    PartName,
    WindowTexts,
    behind_conversation,
    beside_conversation,
    head,
    tail,
)
from proxy.core.window.trimming import Room, Steps, coarse, cut_of, kept, steps_of


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that fits. If nothing was changed, ``body`` is the same object as the body that came. ``edits`` says
    how many messages were left out and how many parts were shortened.

    ``sizes`` are tokens by component, for logs: ``system``, ``tools``, ``conversation``, ``newest``, ``parts``,
    ``extra``, ``prompt`` (their sum), ``output``, ``margin`` and ``window``. Components that are 0 and an unknown
    window are left out. ``counted_tokens`` is the prompt as the proxy counts it, before the model's factor. It is 0 if
    nothing shall be learnt from it.
    """

    body: bytes = field(repr=False)
    edits: Mapping[Edit, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    counted_tokens: int = 0


_IN_MESSAGE = (PartName.PREFIX, PartName.SELECTION, PartName.SUFFIX, PartName.INSTRUCTION)
"""The parts in the newest user message, in their order."""
_MOST_CORRECTIONS = 8
_CHATS = (Capability.CHAT, Capability.CHAT_OPS)


Recount = Callable[[bytes, bool], int]
"""Counts the tokens of a message as it is sent. True: it is the newest user message."""


@dataclass(frozen=True, slots=True)
class FittedMessages:
    """The messages as they are sent; None: as they came. ``excess_tokens`` is how much too long the request is; if it
    is more than 0, the request cannot be sent. ``sizes`` are tokens by component. ``sent_tokens`` are those of the
    whole prompt as it is sent; messages that the proxy rewrote were counted again for it. ``texts`` are other members
    of the request that change."""

    messages: Sequence[bytes] | None = field(repr=False)
    sizes: Mapping[str, int]
    edits: Mapping[Edit, int]
    excess_tokens: int = 0
    sent_tokens: int = 0
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def changes(self) -> Mapping[str, bytes]:
        return self.texts if self.messages is None else {"messages": b"[" + b",".join(self.messages) + b"]"}


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of fitting. ``prompt_tokens`` is the budget. ``besides`` are the tokens of the prompt besides its
    messages, by component, where ``extra`` are those of the operator's texts around the newest user message. All are
    counted by the proxy.

    ``message_tokens`` are those of the transcript's messages; None: as the reader has counted them. ``recount`` counts
    a message as it is sent. The newest user message (True) is counted with the operator's texts around it. None:
    nothing is counted again.
    """

    profile: CapabilityProfile
    prompt_tokens: int
    besides: Mapping[str, int]
    texts: WindowTexts
    count: Count
    message_tokens: Sequence[int] | None = None
    recount: Recount | None = None


def fitted_messages(transcript: Transcript, parts: WindowParts, terms: Terms) -> FittedMessages:
    """The messages of a request with its parts, changed so that they fit. Raises Unreadable if nothing can be written
    into the newest user message. The time is linear in the messages and in the texts of the parts.

    Texts that are joined in one message may have more tokens than the single texts together. If that makes the whole
    too long, it is fitted again to a budget that is smaller by the excess.
    """
    found = _Fitting(transcript, parts, terms).result()
    budget = terms.prompt_tokens
    for _ in range(_MOST_CORRECTIONS):
        excess = found.sent_tokens - terms.prompt_tokens
        if found.excess_tokens or excess <= 0:
            return found
        budget -= excess
        found = _Fitting(transcript, parts, replace(terms, prompt_tokens=budget)).result()
    excess = max(found.excess_tokens, found.sent_tokens - terms.prompt_tokens)
    return replace(found, messages=None, edits={}, excess_tokens=excess) if excess > 0 else found


_Sent = tuple[bytes, int]
"""A message as it is sent, and its tokens. They are 0 if the proxy rewrote the message and it is not counted again."""


@dataclass(frozen=True, slots=True)
class _Reduced:
    """The steps of the conversation that are left out, the tokens that each part keeps, and the tokens that are still
    too many."""

    cut: int
    kept: Mapping[PartName, int]
    excess_tokens: int


class _Fitting:
    def __init__(self, transcript: Transcript, parts: WindowParts, terms: Terms) -> None:
        self._terms = terms
        first = transcript.preamble
        self._system, self._talk = transcript.messages[:first], transcript.messages[first:]
        tokens = terms.message_tokens
        if tokens is None:
            tokens = [message.tokens for message in transcript.messages]
        self._system_tokens, self._talk_tokens = tokens[:first], tokens[first:]
        asked = [index for index, message in enumerate(self._talk) if message.is_asked]
        self._newest = asked[-1] if asked else -1
        named = {name: getattr(parts, name) for name in (*_IN_MESSAGE, PartName.SUMMARY)}
        self._parts: dict[PartName, str] = {name: text for name, text in named.items() if text and text.strip()}
        self._payload: Payload | None = None
        if parts.virtual_files:
            message = own_text(self._talk[self._newest].raw) if self._newest >= 0 else ""
            self._payload = Payload.of(parts.virtual_files, message, terms.count)
        self._sizes = self._part_sizes()
        self._extra = terms.besides.get("extra", 0)

    def result(self) -> FittedMessages:
        places: Sequence[int] = range(len(self._talk))
        found = _Reduced(0, self._sizes, 0)
        if not self._fits():
            talk = zip(self._talk, self._talk_tokens, strict=True)
            steps = steps_of([structs.replace(message, tokens=tokens) for message, tokens in talk])
            found = self._reduced(steps)
            places = kept(found.cut, steps, len(self._talk))
        payload, room = self._payload, found.kept.get(PartName.FILES, 0)
        shown = 0 if payload is None else payload.fitting(payload.least_tokens + room)
        conversation = sum(self._talk_tokens[place] for place in places)
        sizes = self._counted(found, conversation)
        if found.excess_tokens:
            return FittedMessages(None, sizes, {}, found.excess_tokens)
        trimmed = len(self._talk) - len(places)
        shortened = sum(found.kept[name] < size for name, size in self._sizes.items() if name is not PartName.FILES)
        shortened += 0 if payload is None else len(payload.files) - shown
        edits = {Edit.WINDOW_TRIMMED: trimmed, Edit.WINDOW_SHORTENED: shortened}
        sent = self._written(found, places, shown)
        is_same = not (trimmed or shortened or self._parts or payload)
        counted = sum(tokens for _, tokens in sent) + sum(self._terms.besides.values()) - self._extra
        return FittedMessages(
            None if is_same else [raw for raw, _ in sent],
            sizes,
            {edit: number for edit, number in edits.items() if number},
            sent_tokens=sizes.get("prompt", 0) if self._terms.recount is None else counted,
        )

    def _part_sizes(self) -> dict[PartName, int]:
        count = self._terms.count
        sizes = {name: count(text) + self._words_tokens(name) for name, text in self._parts.items()}
        sizes[PartName.SYSTEM] = sum(self._system_tokens)
        if self._payload is not None:
            sizes[PartName.FILES] = self._payload.tokens - self._payload.least_tokens
        return sizes

    def _words_tokens(self, name: PartName) -> int:
        """The tokens of the words around a part, which are left out together with it."""
        count, texts = self._terms.count, self._terms.texts
        if name is PartName.SUMMARY:
            return count(texts.above[name]) + count(texts.summary_ok) + 1 + 2 * MESSAGE_OVERHEAD_TOKENS
        return count(texts.above[name]) + 1

    def _framing_tokens(self) -> int:
        """The tokens that are always sent besides the parts: the active file, and a message for the parts if there is
        none."""
        tokens = 0 if self._payload is None else self._payload.least_tokens
        has_parts = self._payload is not None or any(name in self._parts for name in _IN_MESSAGE)
        return tokens + (MESSAGE_OVERHEAD_TOKENS if self._newest < 0 and has_parts else 0)

    def _base_tokens(self) -> int:
        return sum(self._terms.besides.values()) + self._framing_tokens() + sum(self._sizes.values())

    def _fits(self) -> bool:
        """Whether nothing need be left out. This is true for most requests, and the check is quick."""
        tokens = self._base_tokens() + sum(self._talk_tokens)
        most = self._terms.profile.tail_messages
        return tokens < self._terms.prompt_tokens and (most is None or self._newest <= most)

    def _reduced(self, steps: Steps) -> _Reduced:
        """Shorten first the suffix and the prefix, then the conversation, then the rest. If the conversation is trimmed
        by more than is needed, the suffix and the prefix get the room."""
        terms, caps, sizes = self._terms, self._terms.profile.caps, self._sizes
        budget = terms.prompt_tokens
        beside = sum(sizes.get(name, 0) for name in (PartName.SUFFIX, PartName.PREFIX))
        base = self._base_tokens() - beside
        cut = self._cut(steps, Room(budget - base, terms.profile.tail_messages))
        tokens = steps.moments[-1].tokens - steps.tokens_before[cut] if steps.moments else 0
        overflow = base + beside + tokens - budget
        if cut == len(steps.tokens_before) - 1 and terms.profile.capability in _CHATS:
            # A newest message that fills the budget to the last token leaves no room for a conversation.
            overflow += 1
        kept_sizes, left = beside_conversation(sizes, caps, overflow)
        may_shorten_system = terms.profile.may_shorten_system
        kept_sizes, left = behind_conversation(kept_sizes, caps, left, may_shorten_system=may_shorten_system)
        return _Reduced(cut, kept_sizes, left)

    def _cut(self, steps: Steps, room: Room) -> int:
        """The number of steps that are left out. A conversation that fits stays whole. For any other conversation, the
        requests so far decide."""
        if not steps.moments:
            return 0
        newest = steps.moments[-1]
        is_short = room.messages is None or newest.older_messages <= room.messages
        if is_short and newest.tokens <= room.tokens:
            return 0
        return cut_of(steps, replace(room, tokens=coarse(room.tokens, self._terms.prompt_tokens)))

    def _counted(self, found: _Reduced, conversation: int) -> dict[str, int]:
        newest = sum(self._talk_tokens[max(0, self._newest) :])
        asked = self._talk_tokens[self._newest] if self._newest >= 0 else newest
        inner = [found.kept.get(name, 0) for name in PartName if name is not PartName.SYSTEM]
        older = max(0, conversation - newest)
        sizes = {
            "system": found.kept[PartName.SYSTEM],
            **self._terms.besides,
            "conversation": older,
            "newest": min(asked, conversation - older),
            "results": max(0, conversation - older - asked),
            "parts": sum(inner) + self._framing_tokens(),
        }
        sizes["prompt"] = sum(sizes.values())
        return {name: tokens for name, tokens in sizes.items() if tokens}

    def _written(self, found: _Reduced, places: Sequence[int], shown: int) -> list[_Sent]:
        """The messages as they are sent, with the tokens of each."""
        texts = self._terms.texts
        sent = [(message.raw, tokens) for message, tokens in zip(self._system, self._system_tokens, strict=True)]
        if found.kept[PartName.SYSTEM] < self._sizes[PartName.SYSTEM]:
            short = shortened_messages(sent, found.kept[PartName.SYSTEM], self._terms.count)
            sent = [self._counted_again(raw) for raw in short]
        summary = self._text(PartName.SUMMARY, found)
        if summary:
            sent.append(self._counted_again(message_json("user", f"{texts.above[PartName.SUMMARY]}\n{summary}")))
            sent.append(self._counted_again(message_json("assistant", texts.summary_ok)))
        blocks = [f"{texts.above[name]}\n{text}" for name in _IN_MESSAGE if (text := self._text(name, found)).strip()]
        text = "\n\n".join(blocks)
        for place in places:
            raw = self._talk[place].raw
            if place == self._newest and (text or self._payload is not None or self._extra):
                sent.append(self._counted_again(self._with_parts(raw, text, shown), is_newest=True))
            else:
                sent.append((raw, self._talk_tokens[place]))
        if self._newest < 0 and (text or self._payload is not None):
            raw = self._with_parts(message_json("user", ""), text, shown)
            sent.append(self._counted_again(raw, is_newest=True))
        return sent

    def _counted_again(self, raw: bytes, *, is_newest: bool = False) -> _Sent:
        recount = self._terms.recount
        return raw, 0 if recount is None else recount(raw, is_newest)

    def _with_parts(self, raw: bytes, text: str, shown: int) -> bytes:
        if self._payload is not None:
            raw = with_text(raw, self._payload.text(own_text(raw), shown), keeps_own=False)
        return with_text(raw, text) if text else raw

    def _text(self, name: PartName, found: _Reduced) -> str:
        text = self._parts.get(name, "")
        if not text or found.kept[name] >= self._sizes[name]:
            return text
        allowed = found.kept[name] - self._words_tokens(name)
        return (tail if name is PartName.PREFIX else head)(text, allowed, self._terms.count)
