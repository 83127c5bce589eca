"""Compactions: the oldest part of a conversation is left out, and perhaps a summary stands in its place.

A compaction belongs to the messages from which it was made. As long as a conversation begins with exactly these
messages, the same messages are left out and the same words take their place. So the prefix stays the same from request
to request. If the client has rewritten any of these messages, nothing is left out, and the words are not sent.

A compaction is made in the order of this file. When a conversation is long enough, and its oldest part can be left out
and that pays, a proposal is made. It holds a question for a model, whose answer becomes a finding, from which the
compaction follows. The model has read the conversation, including anything that somebody has put into it. So its answer
is checked like any other input from outside. An answer that does not have exactly the requested form counts as no
answer.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, islice, takewhile
from typing import Annotated

import orjson
from msgspec import Meta, Struct, ValidationError, convert

from proxy.context import Turn, pair
from proxy.context.history import MADE, RuledHistory, call_members, cuts
from proxy.context.panels import CacheTerms
from proxy.kit.modes import Edit
from proxy.kit.value import dataclass, digest, replace
from proxy.protocol.request import parts_of
from proxy.protocol.request.message import RESULT_ROLES
from proxy.protocol.wire.json_body import (
    Members,
    Unreadable,
    join_members,
    members_of,
    printable,
    refuse_constant,
    string_of,
)


@dataclass(frozen=True, slots=True)
class CompactionTexts:
    """``prompt`` asks a model for the boundary of the newest topic and for a summary; its placeholder
    ``{summary_tokens}`` stands for the largest length of the summary. ``header`` stands above a summary in the
    conversation, and ``ok`` is the assistant's answer to it."""

    prompt: str
    header: str
    ok: str

    def pair(self, summary: str) -> tuple[Turn, ...]:
        """The messages in the place of those that a compaction has left out. There are none without a summary."""
        return tuple(map(Turn.of, pair(f"{self.header}\n{summary}", self.ok))) if summary else ()


@dataclass(frozen=True, slots=True)
class CompactionTerms:
    """The operator's terms; the defaults are those of the original of these rules.

    A conversation with fewer than ``min_history_tokens`` is never compacted. If a summary takes the place of its oldest
    part, the newest ``verbatim_tokens`` stay as they are, and the summary should have at most ``summary_tokens``. The
    last ``keep_exchanges`` user messages stay in any case, with everything that follows each of them.
    """

    min_history_tokens: int = 24_000
    verbatim_tokens: int = 4_000
    summary_tokens: int = 500
    keep_exchanges: int = 2


MOST_FAILURES = 3
"""After this many failures in a row the conversation is no longer compacted."""
_GROWTH_PERCENT = 10


@dataclass(frozen=True, slots=True)
class CompactionAttempts:
    """The results of earlier attempts to compact a conversation. After a decision against a compaction, and after a
    call, the conversation must grow by a tenth before the next attempt. ``declined_tokens`` and ``tried_tokens`` are
    the lengths of the conversation at that decision and at that call; ``failures`` counts the failures since the last
    success."""

    declined_tokens: int = 0
    tried_tokens: int = 0
    failures: int = 0

    def allow(self, history_tokens: int, *, is_full: bool = False) -> bool:
        """Whether a compaction of a conversation of this length may be tried. ``is_full``: the model's window is nearly
        full, so that an earlier decision about the price does not count."""
        before = self.tried_tokens if is_full else max(self.tried_tokens, self.declined_tokens)
        return self.failures < MOST_FAILURES and 100 * history_tokens >= (100 + _GROWTH_PERCENT) * before

    def failed(self, history_tokens: int) -> "CompactionAttempts":
        """The attempts after a failure: the call failed, or its answer could not be used."""
        return replace(self, tried_tokens=history_tokens, failures=self.failures + 1)


WINDOW_SHARE = 0.85
"""A prompt that fills this share of the model's window is compacted whatever that costs."""


@dataclass(frozen=True, slots=True)
class CompactionPrices:
    """The prices by which the decision is made. ``cache`` are the terms of the cache that has served the last request,
    with the costs of a read (r) and of a write (w) of one token; both are 1 if nothing is cached. ``output`` is the
    cost of one output token, in input prices. ``requests`` is the number of requests that the conversation has had: it
    is expected to have as many again."""

    cache: CacheTerms
    output: float
    requests: int

    def pays(self, *, dropped_tokens: int, summary_tokens: int, behind_tokens: int, call_tokens: float) -> bool:
        """Whether a compaction saves more than it costs. All amounts are in tokens at the plain input price.

        ``dropped_tokens`` (D) are left out, ``summary_tokens`` (s) take their place, and ``behind_tokens`` (R) stand
        behind them. ``call_tokens`` is the cost of the call that writes the summary. The messages behind the gap are
        written again, and the summary is written: this costs (w - r) R + w s, and the call. After that, each later
        request reads D - s tokens less, which saves r (D - s). A cached history is nearly free to keep, and an uncached
        one is not, so the prices decide.
        """
        once = self.cache.anew * behind_tokens + self.cache.write * summary_tokens + call_tokens
        return self.requests * self.cache.read * (dropped_tokens - summary_tokens) > once


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first ``covered`` messages of the client's conversation are left out, not counting the leading system
    messages. The model that wrote the ``summary`` had read the first ``known`` messages, which are at least as many.
    ``digest`` is that of the known messages, without markers, as the other rules leave them. If the summary is empty,
    nothing takes the place of the covered messages."""

    covered: int
    known: int
    digest: bytes
    summary: str = ""


def compacted(
    ruled: RuledHistory, compaction: Compaction | None, texts: CompactionTexts, keep_exchanges: int = 2
) -> RuledHistory:
    """The conversation with its oldest part left out. It is returned unchanged if it does not begin with the messages
    that the compaction knows, or if fewer user exchanges than ``keep_exchanges`` would stay.

    System messages stay, in front of the summary. Hashing the known messages takes most of the time.
    """
    if compaction is None or not 0 < compaction.covered <= compaction.known:
        return ruled
    at = place_of(ruled.origins, compaction.covered)
    if at == 0 or digest_of_known(ruled, compaction.known) != compaction.digest:
        return ruled
    places = [cut for cut in cuts(ruled.conversation.turns) if cut >= at]
    if len(places) < max(1, keep_exchanges) or places[0] != at:
        return ruled
    return ruled.without(at, Edit.HISTORY_COMPACTED, texts.pair(compaction.summary))


def place_of(origins: Sequence[int], count: int) -> int:
    """The place of the first message that is not one of the client's first ``count``. If there is none, it is behind
    the end."""
    return next((place for place, origin in enumerate(origins) if origin >= count), len(origins))


def digest_of_known(ruled: RuledHistory, known: int) -> bytes:
    """The digest of the client's first ``known`` messages, without markers, as the rules leave them."""
    return digest(*(turn.bare for turn in ruled.conversation.turns[: place_of(ruled.origins, known)]))


MOST_MESSAGES = 50
MOST_CHARS = 1_000
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_GAP = "\n[...]\n"
# The tokens of an answer besides the summary.
_FRAME_TOKENS = 200


@dataclass(frozen=True, slots=True)
class CompactionQuestion:
    """``messages`` is the JSON array that is sent. ``starts`` has, for each numbered message of the question, the index
    of the first message that it shows; ``end`` is the index behind the last shown message. An answer of the requested
    length has fewer than ``output_tokens``."""

    messages: bytes
    starts: tuple[int, ...]
    end: int
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens the question has: a fourth of its bytes."""
        return len(self.messages) // 4


def question_of(turns: Sequence[Turn], texts: CompactionTexts, summary_tokens: int) -> CompactionQuestion:
    """The question about these messages. Each message is shown by its beginning and its end. If there are more messages
    than may be shown, everything between two user messages is shown as one. If there are still too many, only the first
    ones are shown, and nothing behind them will be left out of the conversation."""
    shown = list(_runs(turns))[:MOST_MESSAGES]
    lines = [
        orjson.dumps({"index": number, "role": _role(turns[run[0]]), "text": _shown([turns[index] for index in run])})
        for number, run in enumerate(shown)
    ]
    prompt = texts.prompt.replace("{summary_tokens}", str(summary_tokens))
    asked = b"\n".join(lines).decode()
    return CompactionQuestion(
        messages=orjson.dumps([{"role": "system", "content": prompt}, {"role": "user", "content": asked}]),
        starts=tuple(run[0] for run in shown),
        end=shown[-1][-1] + 1 if shown else 0,
        output_tokens=2 * summary_tokens + _FRAME_TOKENS,
    )


def _runs(turns: Sequence[Turn]) -> Iterator[range]:
    """The runs of messages that are each shown as one."""
    if len(turns) <= MOST_MESSAGES:
        yield from (range(index, index + 1) for index in range(len(turns)))
        return
    start = 0
    for index in range(1, len(turns) + 1):
        if index == len(turns) or turns[index].role == "user" or turns[start].role == "user":
            yield range(start, index)
            start = index


def _role(turn: Turn) -> str:
    return turn.role if turn.role in _ROLES else "other"


def _shown(turns: Sequence[Turn]) -> str:
    """The text of one or several messages, cut in the middle to the allowed length. If there are several, tool results
    are left out, because they would take the room of the other texts."""
    shown = turns if len(turns) == 1 else [turn for turn in turns if turn.role not in RESULT_ROLES]
    text = "\n".join(filter(None, (_said(turn) for turn in shown)))
    if len(text) > MOST_CHARS:
        room = MOST_CHARS - len(_GAP)
        text = text[: room - room // 2] + _GAP + text[-(room // 2) :]
    return text.encode("utf-8", "replace").decode()


def _said(turn: Turn) -> str:
    """A message's text and the names of the tools that it calls."""
    try:
        said = [
            text or "" if kind == "text" else f"[{kind}]" if 0 < len(kind) < MOST_CHARS else ""
            for kind, text in parts_of(turn.members)
        ]
        called = [members_of(call["function"]) for call in call_members(turn.members) if "function" in call]
        names = [name for call in called if (name := string_of(call.get("name", b""))) is not None]
        return "\n".join([*said, *(f"[calls {name}]" for name in names)])
    except Unreadable:
        return ""


MOST_SUMMARY_CHARS = 8_000
_MOST_ANSWER_CHARS = 64_000
_BRACE = re.compile("{")
# At most this many opening braces are tried. Each try reads the answer at most once.
_MOST_STARTS = 16


class CompactionFinding(Struct, frozen=True):
    """``boundary`` is the number of the message with which the newest topic begins, among the messages that the model
    was shown; 0 if all of them are of one topic. ``confidence`` in the boundary is from 0 to 1. ``summary`` is of
    everything that is older."""

    boundary: Annotated[int, Meta(ge=0)]
    confidence: Annotated[float, Meta(ge=0, le=1)]
    summary: Annotated[str, Meta(max_length=MOST_SUMMARY_CHARS)]


def read_finding(answer: str, count: int) -> CompactionFinding | None:
    """The finding in an answer about ``count`` messages: the first JSON object in the answer, wherever it stands. None
    if the answer has no object, or if any of the object's three members has a wrong type or is out of bounds."""
    try:
        found = convert(_first_object(answer) if len(answer) <= _MOST_ANSWER_CHARS else None, CompactionFinding)
    except ValidationError:
        return None
    is_known = found.boundary < count and printable(found.summary) == found.summary
    return CompactionFinding(found.boundary, found.confidence, found.summary.strip()) if is_known else None


def _first_object(text: str) -> object:
    """The first complete object; None if none of the first opening braces begins one."""
    for brace in islice(_BRACE.finditer(text), _MOST_STARTS):
        with suppress(ValueError, RecursionError):
            return _DECODER.raw_decode(text, brace.start())[0]
    return None


_DECODER = json.JSONDecoder(parse_constant=refuse_constant)


_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
# Members by which a client says who may read its prompt, where, and on whose behalf. They apply to this call, too.
_KEPT = ("provider", "inference_geo", "user", "safety_identifier", "guardrailConfig", "guardrails")


def call_body(sent: Members, model: str, question: CompactionQuestion, profile_name: str) -> bytes:
    """The body of the call, without tools, stream and markers. ``sent`` are the members of the client's last
    request."""
    # OpenAI's reasoning models refuse the old name; most other servers know only the old name.
    is_new = _NEW_LIMIT in sent or profile_name.startswith(("openai", "azure"))
    return join_members(
        {name: sent[name] for name in _KEPT if name in sent},
        {
            "model": orjson.dumps(model),
            "messages": question.messages,
            _NEW_LIMIT if is_new else _LIMIT: b"%d" % question.output_tokens,
        },
    )


LEAST_CONFIDENCE = 0.5
"""A boundary of less confidence does not count."""


@dataclass(frozen=True, slots=True)
class CutPlace:
    """A place where a conversation may be cut: its index in the conversation, how many of the client's messages stand
    in front of it, and how many tokens stand behind it."""

    place: int
    covered: int
    behind_tokens: int


@dataclass(frozen=True, slots=True)
class CompactionProposal:
    """A compaction that would pay, or that is needed. It holds no messages except those of the question.

    ``known`` and ``digest`` are those of the compaction. ``cuts`` are the places where the conversation may be cut, in
    their order. ``window`` is the index, in the conversation as it is sent now, where the newest tokens begin that stay
    beside a summary. ``dropped_bytes`` is the length of the messages that a summary would replace; the summary should
    have ``summary_tokens``."""

    question: CompactionQuestion
    known: int
    digest: bytes
    cuts: tuple[CutPlace, ...]
    window: int
    dropped_bytes: int
    summary_tokens: int

    def outcome(self, finding: CompactionFinding) -> Compaction | None:
        """The compaction that follows from a finding; None if none follows.

        If the newest topic begins within the newest tokens, everything in front of it is left out. Otherwise the
        summary takes the place of everything in front of the newest tokens.
        """
        boundary = self.question.starts[finding.boundary]
        if finding.boundary > 0 and boundary >= self.window and finding.confidence >= LEAST_CONFIDENCE:
            return self._cut(boundary, "")
        is_shorter = len(finding.summary.encode()) < self.dropped_bytes
        return self._cut(self.window, finding.summary) if finding.summary and is_shorter else None

    def _cut(self, limit: int, summary: str) -> Compaction | None:
        """The compaction at the last place that is not behind ``limit``."""
        possible = [cut for cut in self.cuts if cut.place <= limit]
        return Compaction(possible[-1].covered, self.known, self.digest, summary) if possible else None

    def left_tokens(self, compaction: Compaction) -> int:
        """About how many tokens the conversation has after this compaction."""
        behind = next(cut.behind_tokens for cut in self.cuts if cut.covered == compaction.covered)
        return behind + (self.summary_tokens if compaction.summary else 0)


def proposal_of(
    ruled: RuledHistory,
    former: Compaction | None,
    attempts: CompactionAttempts,
    tokens: Callable[[Turn], int],
    terms: CompactionTerms,
    texts: CompactionTexts,
    prices: CompactionPrices,
) -> tuple[int, CompactionProposal | None] | None:
    """How many tokens a conversation has, and the proposal for it; None in its place if nothing can be left out, or if
    that would not pay. The result is None if the conversation is too short, or has grown too little since it was last
    looked at. ``ruled`` is the conversation without any compaction; its ``former`` compaction is applied if it still
    fits. ``tokens`` counts the tokens of one message."""
    sent = compacted(ruled, former, texts, terms.keep_exchanges)
    turns = sent.conversation.turns
    sizes = [tokens(turn) for turn in turns]
    total = sum(sizes)
    if total < terms.min_history_tokens or not attempts.allow(total, is_full=prices.cache.is_full):
        return None
    question = question_of(sent.conversation.history, texts, terms.summary_tokens)
    newest = takewhile(lambda size: size <= terms.verbatim_tokens, accumulate(reversed(sizes)))
    window = len(sizes) - sum(1 for _ in newest)
    places = _places(sent, question.end, terms.keep_exchanges)
    at = max((place for place in places if place <= window), default=0)
    if at == 0:
        return total, None
    gone = [index for index in range(at) if not turns[index].is_system]
    dropped = sum(sizes[index] for index in gone)
    pays = prices.pays(
        dropped_tokens=dropped,
        summary_tokens=terms.summary_tokens,
        behind_tokens=sum(sizes[at:]),
        call_tokens=question.prompt_tokens + prices.output * terms.summary_tokens,
    )
    if not pays and not (prices.cache.is_full and dropped > terms.summary_tokens):
        return total, None
    # The model reads these messages, either directly or through the summary of what it read before.
    known = next(origin for origin in sent.origins[question.end :] if origin != MADE)
    if former is not None and sent is not ruled:
        known = max(known, former.known)
    proposal = CompactionProposal(
        question=question,
        known=known,
        digest=digest_of_known(ruled, known),
        cuts=tuple(CutPlace(place, sent.origins[place], sum(sizes[place:])) for place in places),
        window=window,
        dropped_bytes=sum(len(turns[index].raw) for index in gone),
        summary_tokens=terms.summary_tokens,
    )
    return total, proposal


def _places(sent: RuledHistory, end: int, keep_exchanges: int) -> tuple[int, ...]:
    """The indices at which the conversation may be cut: something is left out, all of what is left out was shown to the
    model, and the last user exchanges stay."""
    turns = sent.conversation.turns
    found, keep = cuts(turns), max(1, keep_exchanges)
    if len(found) < keep:
        return ()
    # A cut with only system messages and the proxy's own messages in front of it would leave out nothing new.
    own = next((i for i, turn in enumerate(turns) if not turn.is_system and sent.origins[i] != MADE), len(turns))
    return tuple(place for place in found if own < place <= min(found[-keep], end))
