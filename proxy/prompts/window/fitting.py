"""Fits one request to a budget.

``cut_of`` chooses the oldest messages that are left out. A window that moves by one turn with every request changes the
front of the prompt each time, and a cached prefix is never read again. Here the cut stands at one of a few fixed
distances from the beginning of the conversation, which are about a quarter of the room apart. So it stays where it is
for many requests, and some tokens more or less around the conversation do not move it.

The cut need not be remembered: it follows from the conversation and the room. All workers find the same cut, and a
restart changes nothing. ``head`` and ``tail`` shorten a text.

``fitted_messages`` fits the messages of a chat. The conversation begins after the leading system messages. Its newest
turn, which is everything from the last user message on, is kept. Only a tool loop in it that is too long for the window
loses its oldest groups. The parts that a request names are placed in front of the text of the newest user message, and
a summary in front of the conversation.

``fitted_completion`` fits a completion: its prompt is the text before a cursor, and its suffix is the text after it.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate

from msgspec import Raw, structs

from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Edit
from proxy.kit.value import dataclass, field, replace
from proxy.prompts.window import (
    Capability,
    CapabilityProfile,
    Count,
    PartName,
    Payload,
    WindowParts,
    WindowTexts,
    behind_conversation,
    beside_conversation,
    own_text,
    with_text,
)
from proxy.protocol.request.message import Message, message_json
from proxy.protocol.request.tokens import MESSAGE_OVERHEAD_TOKENS
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import Unreadable, join_members, members_of, text_json, text_value

_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Steps:
    """``gone_from`` says for each message how many steps must be left out until it is gone. ``tokens_before`` and
    ``messages_before`` give for each number of steps what these first steps hold. ``legal`` gives for each number of
    steps the largest number up to it that separates no result from its call. ``tokens`` are those of all messages, and
    ``older_messages`` are those in front of the newest turn."""

    gone_from: Sequence[int]
    tokens_before: Sequence[int]
    messages_before: Sequence[int]
    legal: Sequence[int]
    tokens: int
    older_messages: int


@dataclass(slots=True)
class _Turn:
    """A turn, as the indices of its messages: those before the first answer, and the groups. ``is_asked``: a user has
    begun the turn."""

    is_asked: bool
    head: list[int]
    groups: list[list[int]]


def steps_of(messages: Sequence[Message]) -> Steps:
    """The steps of a conversation without its leading system messages. The time is linear."""
    turns = _turns(messages)
    groups = [group for turn in turns for group in _steps_in(turn, is_newest=turn is turns[-1])]
    gone_from = [_NEVER] * len(messages)
    tokens, sizes = [0], [0]
    for number, group in enumerate(groups, start=1):
        for index in group:
            gone_from[index] = number
        tokens.append(sum(messages[index].tokens for index in group))
        sizes.append(len(group))
    older = sum(len(turn.head) + sum(map(len, turn.groups)) for turn in turns[:-1])
    legal = _legal(messages, gone_from, len(groups))
    whole = sum(message.tokens for message in messages)
    return Steps(gone_from, list(accumulate(tokens)), list(accumulate(sizes)), legal, whole, older)


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        if message.is_asked or not turns:
            turns.append(_Turn(message.is_asked, [], []))
        turn = turns[-1]
        if message.role == "assistant":
            turn.groups.append([index])
        elif turn.groups:
            turn.groups[-1].append(index)
        else:
            turn.head.append(index)
    return turns


def _steps_in(turn: _Turn, *, is_newest: bool) -> list[list[int]]:
    """The messages that are left out with each step of a turn. A turn that no user has begun is left out as a whole,
    unless it is the only one."""
    if is_newest:
        return turn.groups[:-1]
    if not turn.is_asked or not turn.groups:
        return [turn.head + [index for group in turn.groups for index in group]]
    return [*turn.groups[:-1], turn.head + turn.groups[-1]]


def _legal(messages: Sequence[Message], gone_from: Sequence[int], count: int) -> list[int]:
    """For each cut, the largest cut up to it that leaves no result without its call. A cut can separate the two only if
    other messages are between them."""
    called: dict[str, int] = {}
    opened = [0] * (count + 2)
    for index, message in enumerate(messages):
        called.update(dict.fromkeys(message.call_ids, index))
        for call in {called[own] for own in message.answers if own in called}:
            if gone_from[call] < gone_from[index]:
                opened[gone_from[call]] += 1
                opened[min(gone_from[index], count + 1)] -= 1
    legal = [0] * (count + 1)
    for cut, spans in enumerate(accumulate(opened[: count + 1])):
        legal[cut] = cut if not spans else legal[cut - 1]
    return legal


PIECE_CHARS = 256
"""Texts that are shortened are counted in pieces of at most this many characters."""
_LEAST_STEADY_TOKENS = 128


def head(text: str, allowed_tokens: int, count: Count) -> str:
    """The beginning of a text, with at most ``allowed_tokens``."""
    return text[: _filled(len(text), _steady(allowed_tokens), lambda at, behind: count(text[at:behind]))]


def tail(text: str, allowed_tokens: int, count: Count) -> str:
    """The end of a text, with at most ``allowed_tokens``. It begins at one of a few fixed distances from the text's own
    beginning (``anchor``). So a text that grows at its end, such as the text before a cursor, is sent with the same
    beginning for many requests. A room that is too small for any cache is filled instead."""
    room, end = allowed_tokens, len(text)
    if room < _LEAST_STEADY_TOKENS:
        return text[end - _filled(end, room, lambda at, behind: count(text[max(0, end - behind) : end - at])) :]
    size = min(PIECE_CHARS, 1 << room.bit_length() - 3)
    before = [0, *accumulate(count(text[at : at + size]) for at in range(0, end, size))]
    return text[anchor(before, before[-1] - room, apart(room)) * size :]


def apart(room: int) -> int:
    """The distance between two anchors in a room of so many tokens: about a quarter of it. It has two binary digits, so
    that a few tokens more or less in the room hardly ever change it."""
    return _steady(max(1, room * 5 // 16), 2)


def anchor(before: Sequence[int], excess: int, distance: int) -> int:
    """The least number of pieces that are left out so that the ``excess`` is gone, and then as much as is missing to a
    multiple of the ``distance``. ``before`` gives for each number of pieces what these first pieces hold. If all pieces
    hold less than that, the distance is halved. At most all pieces are left out."""
    if excess <= 0:
        return 0
    while distance > 1 and -(-excess // distance) * distance > before[-1]:
        distance //= 2
    return min(len(before) - 1, bisect_left(before, -(-excess // distance) * distance))


def _steady(tokens: int, digits: int = 5) -> int:
    """The tokens, rounded down to so many binary digits, so that a few tokens more or less beside a text do not move
    its end."""
    left_out = max(0, tokens.bit_length() - digits)
    return tokens >> left_out << left_out


def _filled(chars: int, allowed_tokens: int, count: Callable[[int, int], int]) -> int:
    """The number of a text's characters that fit. It has whole pieces, and of the next piece repeated halves. A smaller
    number of tokens gives a part of what a larger number gives."""
    end, size = 0, PIECE_CHARS
    while size and end < chars:
        tokens = count(end, end + size)
        if tokens > allowed_tokens:
            size //= 2
        else:
            allowed_tokens, end = allowed_tokens - tokens, end + size
    return min(end, chars)


@dataclass(frozen=True, slots=True)
class Room:
    """The room of the conversation: tokens, and messages in front of the newest turn (None: any number)."""

    tokens: int
    messages: int | None = None


def cut_of(steps: Steps, room: Room) -> int:
    """The number of steps that are left out: none if everything fits, or as many as can be left out if even the rest
    does not fit. The time is linear."""
    last = steps.legal[-1]
    cut = anchor(steps.tokens_before[: last + 1], steps.tokens - room.tokens, apart(room.tokens))
    if room.messages is not None:
        # A limit of messages is reached after few tokens, so that half of them are left out at once.
        excess = steps.older_messages - room.messages
        cut = max(cut, anchor(steps.messages_before[: last + 1], excess, max(1, room.messages // 2)))
    return next(legal for legal in range(cut, last + 1) if steps.legal[legal] == legal)


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


# The parts in the newest user message, in their order.
_IN_MESSAGE = (PartName.PREFIX, PartName.SELECTION, PartName.SUFFIX, PartName.INSTRUCTION)
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


def shortened_messages(messages: Sequence[tuple[bytes, int]], allowed_tokens: int, count: Count) -> list[bytes]:
    """As much from the beginning of the messages as fits into ``allowed_tokens``. Each message comes with its tokens.
    Raises Unreadable."""
    found: list[bytes] = []
    left = allowed_tokens
    for raw, tokens in messages:
        if tokens > left:
            short = head(own_text(raw), left - MESSAGE_OVERHEAD_TOKENS, count)
            return [*found, join_members(members_of(raw), {"content": text_json(short)})] if short else found
        found.append(raw)
        left -= tokens
    return found


# A message as it is sent, and its tokens. They are 0 if the proxy rewrote the message and it is not counted again.
_Sent = tuple[bytes, int]


class _Fitting:
    def __init__(self, transcript: Transcript, parts: WindowParts, terms: Terms) -> None:
        self._terms = terms
        first = transcript.preamble
        self._system, self._talk = transcript.messages[:first], transcript.messages[first:]
        read = [message.tokens for message in transcript.messages]
        tokens = read if terms.message_tokens is None else terms.message_tokens
        self._system_tokens, self._talk_tokens = tokens[:first], tokens[first:]
        asked = [index for index, message in enumerate(self._talk) if message.is_asked]
        self._newest = asked[-1] if asked else -1
        self._parts = {PartName(name): text for name, text in parts.texts.items() if text.strip()}
        self._payload: Payload | None = None
        if parts.virtual_files:
            message = own_text(self._talk[self._newest].raw) if self._newest >= 0 else ""
            self._payload = Payload.of(parts.virtual_files, message, terms.count)
        self._sizes = {name: terms.count(text) + self._words_tokens(name) for name, text in self._parts.items()}
        self._sizes[PartName.SYSTEM] = sum(self._system_tokens)
        if self._payload is not None:
            self._sizes[PartName.FILES] = self._payload.tokens - self._payload.least_tokens
        self._extra = terms.besides.get("extra", 0)
        # What is always sent besides the parts: the active file, and a message for the parts if there is none.
        has_parts = self._payload is not None or any(name in self._parts for name in _IN_MESSAGE)
        self._framing_tokens = self._payload.least_tokens if self._payload is not None else 0
        self._framing_tokens += MESSAGE_OVERHEAD_TOKENS if self._newest < 0 and has_parts else 0
        self._base_tokens = sum(terms.besides.values()) + self._framing_tokens + sum(self._sizes.values())

    def result(self) -> FittedMessages:
        places: Sequence[int] = range(len(self._talk))
        cut, kept, excess_tokens = 0, self._sizes, 0
        # Nothing need be left out of most requests, and this check is quick.
        tokens, most = self._base_tokens + sum(self._talk_tokens), self._terms.profile.tail_messages
        if tokens >= self._terms.prompt_tokens or (most is not None and self._newest > most):
            talk = zip(self._talk, self._talk_tokens, strict=True)
            steps = steps_of([structs.replace(message, tokens=tokens) for message, tokens in talk])
            cut, kept, excess_tokens = self._reduced(steps)
            places = [index for index, gone_from in enumerate(steps.gone_from) if gone_from > cut]
        payload, room = self._payload, kept.get(PartName.FILES, 0)
        shown = 0 if payload is None else payload.fitting(payload.least_tokens + room)
        conversation = sum(self._talk_tokens[place] for place in places)
        sizes = self._counted(kept, conversation)
        sent = () if excess_tokens else self._written(kept, places, shown)
        if not sent:  # no provider takes a request without messages
            return FittedMessages(None, sizes, {}, excess_tokens or 1)
        trimmed = len(self._talk) - len(places)
        shortened = sum(kept[name] < size for name, size in self._sizes.items() if name is not PartName.FILES)
        shortened += 0 if payload is None else len(payload.files) - shown
        edits = {Edit.WINDOW_TRIMMED: trimmed, Edit.WINDOW_SHORTENED: shortened}
        is_same = not (trimmed or shortened or self._parts or payload)
        counted = sum(tokens for _, tokens in sent) + sum(self._terms.besides.values()) - self._extra
        return FittedMessages(
            None if is_same else [raw for raw, _ in sent],
            sizes,
            {edit: number for edit, number in edits.items() if number},
            sent_tokens=sizes.get("prompt", 0) if self._terms.recount is None else counted,
        )

    def _words_tokens(self, name: PartName) -> int:
        """The tokens of the words around a part, which are left out together with it."""
        count, texts = self._terms.count, self._terms.texts
        around = count(texts.summary_ok) + 2 * MESSAGE_OVERHEAD_TOKENS if name is PartName.SUMMARY else 0
        return count(texts.above[name]) + 1 + around

    def _reduced(self, steps: Steps) -> tuple[int, dict[PartName, int], int]:
        """Shorten first the suffix and the prefix, then the conversation, then the rest. If the conversation is trimmed
        by more than is needed, the suffix and the prefix get the room. Returns the steps of the conversation that are
        left out, the tokens that each part keeps, and the tokens that are still too many."""
        terms, caps, sizes = self._terms, self._terms.profile.caps, self._sizes
        budget = terms.prompt_tokens
        beside = sum(sizes.get(name, 0) for name in (PartName.SUFFIX, PartName.PREFIX))
        base = self._base_tokens - beside
        cut = cut_of(steps, Room(budget - base, terms.profile.tail_messages))
        tokens = steps.tokens - steps.tokens_before[cut]
        overflow = base + beside + tokens - budget
        if cut == len(steps.tokens_before) - 1 and terms.profile.capability in _CHATS:
            # A newest message that fills the budget to the last token leaves no room for a conversation.
            overflow += 1
        kept_sizes, left = beside_conversation(sizes, caps, overflow)
        may_shorten_system = terms.profile.may_shorten_system
        return cut, *behind_conversation(kept_sizes, caps, left, may_shorten_system=may_shorten_system)

    def _counted(self, kept: Mapping[PartName, int], conversation: int) -> dict[str, int]:
        newest = sum(self._talk_tokens[max(0, self._newest) :])
        asked = self._talk_tokens[self._newest] if self._newest >= 0 else newest
        inner = [kept.get(name, 0) for name in PartName if name is not PartName.SYSTEM]
        older = max(0, conversation - newest)
        sizes = {
            "system": kept[PartName.SYSTEM],
            **self._terms.besides,
            "conversation": older,
            "newest": min(asked, conversation - older),
            "results": max(0, conversation - older - asked),
            "parts": sum(inner) + self._framing_tokens,
        }
        sizes["prompt"] = sum(sizes.values())
        return {name: tokens for name, tokens in sizes.items() if tokens}

    def _written(self, kept: Mapping[PartName, int], places: Sequence[int], shown: int) -> list[_Sent]:
        """The messages as they are sent, with the tokens of each."""
        texts = self._terms.texts
        sent = [(message.raw, tokens) for message, tokens in zip(self._system, self._system_tokens, strict=True)]
        if kept[PartName.SYSTEM] < self._sizes[PartName.SYSTEM]:
            short = shortened_messages(sent, kept[PartName.SYSTEM], self._terms.count)
            sent = [self._counted_again(raw) for raw in short]
        summary = self._text(PartName.SUMMARY, kept)
        if summary:
            sent.append(self._counted_again(message_json("user", f"{texts.above[PartName.SUMMARY]}\n{summary}")))
            sent.append(self._counted_again(message_json("assistant", texts.summary_ok)))
        blocks = [f"{texts.above[name]}\n{text}" for name in _IN_MESSAGE if (text := self._text(name, kept)).strip()]
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

    def _text(self, name: PartName, kept: Mapping[PartName, int]) -> str:
        text = self._parts.get(name, "")
        if not text or kept[name] >= self._sizes[name]:
            return text
        allowed = kept[name] - self._words_tokens(name)
        return (tail if name is PartName.PREFIX else head)(text, allowed, self._terms.count)


_TEXTS = {"prompt": PartName.PREFIX, "suffix": PartName.SUFFIX}
# Members that the model never reads as a prompt.
_NO_PROMPT = frozenset(
    {
        "best_of", "echo", "frequency_penalty", "ignore_eos", "logit_bias", "logprobs", "max_tokens", "metadata",
        "min_p", "min_tokens", "model", "n", "presence_penalty", "random_seed", "repetition_penalty", "seed", "stop",
        "stop_token_ids", "store", "stream", "stream_options", "temperature", "top_k", "top_p", "user",
    }
)  # fmt: skip


def fitted_completion(
    members: Mapping[str, Raw], profile: CapabilityProfile, prompt_tokens: int, count: Count
) -> FittedMessages:
    """The prompt and the suffix, shortened so that they fit. An unknown member counts one token for each byte. Raises
    InvalidRequest if the prompt is no text, because then it cannot be shortened."""
    texts = {name: _text(members.get(name)) for name in _TEXTS}
    besides = sum(len(raw) for name, raw in members.items() if name not in _NO_PROMPT | _TEXTS.keys())
    sizes, room = {_TEXTS[name]: count(text) for name, text in texts.items()}, prompt_tokens - besides
    sent, tokens, budget = texts, sum(sizes.values()), room
    while tokens > room >= 0 and any(sent.values()):
        kept, _ = beside_conversation(sizes, profile.caps, sum(sizes.values()) - budget)
        cuts = (("prompt", tail), ("suffix", head))
        # Single pieces may have no tokens. If there is no budget, nothing is kept, however few tokens they have.
        sent = {name: cut(texts[name], kept[_TEXTS[name]], count) if budget >= 0 else "" for name, cut in cuts}
        tokens = sum(map(count, sent.values()))
        # A whole text may have other tokens than its pieces, which were counted.
        budget -= room // 32 + 1
    changed = {name: text_json(text) for name, text in sent.items() if text != texts[name]}
    edits = {Edit.WINDOW_SHORTENED: len(changed)} if changed else {}
    told = {"extra": besides, "parts": tokens, "prompt": tokens + besides}
    return FittedMessages(None, told, edits, max(0, tokens - room), tokens + besides, changed)


def _text(raw: Raw | None) -> str:
    with suppress(Unreadable):
        found = text_value(raw) if raw is not None else None
        text = found[0] if isinstance(found, list) and len(found) == 1 else found or ""
        if isinstance(text, str):
            return text
    raise InvalidRequest(
        "the request has a budget for its context window, and only a 'prompt' that is one text can be kept within it",
        param="prompt",
        code="window_unavailable",
    )
