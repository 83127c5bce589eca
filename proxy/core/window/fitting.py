"""Fits the messages of one request to a budget.

The conversation is what stands behind the leading system messages. Its newest turn, which is everything from the last
user message on, stays: only a tool loop in it that is too long for the window loses its oldest groups. The parts that a
request names stand in front of the text of the newest user message, and a summary in front of the conversation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.core.reasons import Edit
from proxy.core.request.message import Message
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS
from proxy.core.request.transcript import Transcript
from proxy.core.window.newest import (
    message_json,
    own_text,
    shortened_messages,
    with_text_in_front,
    with_text_replaced,
)
from proxy.core.window.parts import WindowParts
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.core.window.shortening import Count, PartName, behind_conversation, beside_conversation, head, tail
from proxy.core.window.texts import WindowTexts
from proxy.core.window.trimming import Room, coarse, cut_of, kept
from proxy.core.window.turns import Spoken, Steps, steps_of
from proxy.core.window.virtual_files import Payload

_IN_MESSAGE = (PartName.PREFIX, PartName.SELECTION, PartName.SUFFIX, PartName.INSTRUCTION)
"""The parts in the newest user message, in their order."""


@dataclass(frozen=True, slots=True)
class FittedMessages:
    """The messages as they are sent; None: as they came. ``excess_tokens`` is how much too long the request is; it
    cannot be sent then. ``sizes`` are tokens by component."""

    messages: Sequence[bytes] | None = field(repr=False)
    sizes: Mapping[str, int]
    edits: Mapping[Edit, int]
    excess_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """What fitting goes by. ``prompt_tokens`` is the budget, and ``besides`` are the tokens of what the prompt has
    besides its messages, by component, all as the proxy counts them."""

    profile: CapabilityProfile
    prompt_tokens: int
    besides: Mapping[str, int]
    texts: WindowTexts
    count: Count


def fitted_messages(transcript: Transcript, parts: WindowParts, terms: Terms) -> FittedMessages:
    """The messages of a request with its parts, such that they fit. Raises Unreadable for a newest user message into
    which nothing can be written. The time is linear in the messages and in the texts of the parts."""
    return _Fitting(transcript, parts, terms).result()


@dataclass(frozen=True, slots=True)
class _Reduced:
    """How many steps of the conversation go, what each part keeps, and how many tokens are too many still."""

    cut: int
    kept: Mapping[PartName, int]
    excess_tokens: int


class _Fitting:
    """One request while it is fitted."""

    def __init__(self, transcript: Transcript, parts: WindowParts, terms: Terms) -> None:
        self._terms = terms
        self._system = transcript.messages[: transcript.preamble]
        self._talk = transcript.messages[transcript.preamble :]
        asked = [index for index, message in enumerate(self._talk) if message.role == "user"]
        self._newest = asked[-1] if asked else -1
        self._parts = _named(parts)
        self._payload = self._payload_of(parts)
        self._sizes = self._part_sizes()

    def result(self) -> FittedMessages:
        places: Sequence[int] = range(len(self._talk))
        found = _Reduced(0, self._sizes, 0)
        if not self._fits():
            steps = steps_of([_spoken(message) for message in self._talk])
            found = self._reduced(steps)
            places = kept(found.cut, steps, len(self._talk))
        shown = self._shown_files(found)
        conversation = sum(self._talk[place].tokens for place in places)
        sizes = self._counted(found, conversation)
        if found.excess_tokens:
            return FittedMessages(None, sizes, {}, found.excess_tokens)
        trimmed = len(self._talk) - len(places)
        shortened = sum(found.kept[name] < size for name, size in self._sizes.items() if name is not PartName.FILES)
        if self._payload is not None:
            shortened += len(self._payload.files) - shown
        edits = {Edit.WINDOW_TRIMMED: trimmed, Edit.WINDOW_SHORTENED: shortened}
        is_same = not (trimmed or shortened or self._parts or self._payload)
        messages = None if is_same else self._written(found, places, shown)
        return FittedMessages(messages, sizes, {edit: number for edit, number in edits.items() if number})

    def _payload_of(self, parts: WindowParts) -> Payload | None:
        if not parts.virtual_files:
            return None
        return Payload.of(parts.virtual_files, self._own_text(), self._terms.count)

    def _own_text(self) -> str:
        return own_text(self._talk[self._newest].raw) if self._newest >= 0 else ""

    def _part_sizes(self) -> dict[PartName, int]:
        count = self._terms.count
        sizes = {name: count(text) + self._words_tokens(name) for name, text in self._parts.items()}
        sizes[PartName.SYSTEM] = sum(message.tokens for message in self._system)
        if self._payload is not None:
            sizes[PartName.FILES] = self._payload.tokens - self._payload.least_tokens
        return sizes

    def _words_tokens(self, name: PartName) -> int:
        """Those of the words around a part, which go with it."""
        count, texts = self._terms.count, self._terms.texts
        if name is PartName.SUMMARY:
            return count(texts.summary) + count(texts.summary_ok) + 1 + 2 * MESSAGE_OVERHEAD_TOKENS
        return count(_words(texts, name)) + 1

    def _framing_tokens(self) -> int:
        """What is always said besides the parts: the active file, and a message for parts where there is none."""
        tokens = 0 if self._payload is None else self._payload.least_tokens
        has_parts = self._payload is not None or any(name in self._parts for name in _IN_MESSAGE)
        return tokens + (MESSAGE_OVERHEAD_TOKENS if self._newest < 0 and has_parts else 0)

    def _base_tokens(self) -> int:
        """Everything but the conversation."""
        return sum(self._terms.besides.values()) + self._framing_tokens() + sum(self._sizes.values())

    def _fits(self) -> bool:
        """Whether nothing need be left out, which is so for most requests, and quickly said."""
        tokens = self._base_tokens() + sum(message.tokens for message in self._talk)
        most = self._terms.profile.tail_messages
        return tokens < self._terms.prompt_tokens and (most is None or self._newest <= most)

    def _reduced(self, steps: Steps) -> _Reduced:
        """First the suffix and the prefix, then the conversation, then the rest. Where the conversation is trimmed by
        more than is needed, the suffix and the prefix have the room."""
        terms, caps, sizes = self._terms, self._terms.profile.caps, self._sizes
        budget = terms.prompt_tokens
        beside = sum(sizes.get(name, 0) for name in (PartName.SUFFIX, PartName.PREFIX))
        base = self._base_tokens() - beside
        cut = self._cut(steps, Room(budget - base, terms.profile.tail_messages))
        tokens = steps.moments[-1].tokens - steps.tokens_before[cut] if steps.moments else 0
        overflow = base + beside + tokens - budget
        if cut == len(steps.tokens_before) - 1 and self._is_chat:
            # A newest message that fills the budget to the last token leaves no room for a conversation.
            overflow += 1
        kept_sizes, left = beside_conversation(sizes, caps, overflow)
        may_shorten_system = terms.profile.may_shorten_system
        kept_sizes, left = behind_conversation(kept_sizes, caps, left, may_shorten_system=may_shorten_system)
        return _Reduced(cut, kept_sizes, left)

    @property
    def _is_chat(self) -> bool:
        return self._terms.profile.capability in (Capability.CHAT, Capability.CHAT_OPS)

    def _cut(self, steps: Steps, room: Room) -> int:
        """A conversation that fits stays whole; of any other the requests so far decide."""
        if not steps.moments:
            return 0
        newest = steps.moments[-1]
        is_short = room.messages is None or newest.older_messages <= room.messages
        if is_short and newest.tokens <= room.tokens:
            return 0
        return cut_of(steps, replace(room, tokens=coarse(room.tokens, self._terms.prompt_tokens)))

    def _shown_files(self, found: _Reduced) -> int:
        if self._payload is None:
            return 0
        return self._payload.fitting(self._payload.least_tokens + found.kept[PartName.FILES])

    def _counted(self, found: _Reduced, conversation: int) -> dict[str, int]:
        """Tokens by component; what is 0 is left out."""
        newest = sum(message.tokens for message in self._talk[max(0, self._newest) :])
        inner = [found.kept.get(name, 0) for name in PartName if name is not PartName.SYSTEM]
        older = max(0, conversation - newest)
        sizes = {
            "system": found.kept[PartName.SYSTEM],
            **self._terms.besides,
            "conversation": older,
            "newest": conversation - older,
            "parts": sum(inner) + self._framing_tokens(),
        }
        sizes["prompt"] = sum(sizes.values())
        return {name: tokens for name, tokens in sizes.items() if tokens}

    def _written(self, found: _Reduced, places: Sequence[int], shown: int) -> list[bytes]:
        count, texts = self._terms.count, self._terms.texts
        messages = [message.raw for message in self._system]
        if found.kept[PartName.SYSTEM] < self._sizes[PartName.SYSTEM]:
            sized = [(message.raw, message.tokens) for message in self._system]
            messages = shortened_messages(sized, found.kept[PartName.SYSTEM], count)
        summary = self._text(PartName.SUMMARY, found)
        if summary:
            messages.append(message_json("user", f"{texts.summary}\n{summary}"))
            messages.append(message_json("assistant", texts.summary_ok))
        blocks = [f"{_words(texts, name)}\n{text}" for name in _IN_MESSAGE if (text := self._text(name, found)).strip()]
        text = "\n\n".join(blocks)
        messages += [self._message(place, text, shown) for place in places]
        if self._newest < 0 and (text or self._payload is not None):
            messages.append(self._with_parts(message_json("user", ""), text, shown))
        return messages

    def _message(self, place: int, text: str, shown: int) -> bytes:
        raw = self._talk[place].raw
        return self._with_parts(raw, text, shown) if place == self._newest else raw

    def _with_parts(self, raw: bytes, text: str, shown: int) -> bytes:
        if self._payload is not None:
            raw = with_text_replaced(raw, self._payload.text(own_text(raw), shown))
        return with_text_in_front(raw, text) if text else raw

    def _text(self, name: PartName, found: _Reduced) -> str:
        """What a part keeps: of the prefix its end, of all others their beginning."""
        text = self._parts.get(name, "")
        if not text or found.kept[name] >= self._sizes[name]:
            return text
        allowed = found.kept[name] - self._words_tokens(name)
        return (tail if name is PartName.PREFIX else head)(text, allowed, self._terms.count)


def _named(parts: WindowParts) -> dict[PartName, str]:
    """The texts of the parts that are there and not blank."""
    found = {
        PartName.PREFIX: parts.prefix,
        PartName.SELECTION: parts.selection,
        PartName.SUFFIX: parts.suffix,
        PartName.INSTRUCTION: parts.instruction,
        PartName.SUMMARY: parts.summary,
    }
    return {name: text for name, text in found.items() if text is not None and text.strip()}


def _words(texts: WindowTexts, name: PartName) -> str:
    match name:
        case PartName.PREFIX:
            return texts.prefix
        case PartName.SELECTION:
            return texts.selection
        case PartName.SUFFIX:
            return texts.suffix
        case _:
            return texts.instruction


def _spoken(message: Message) -> Spoken:
    return Spoken(message.role, message.tokens, message.call_ids, message.answers)
