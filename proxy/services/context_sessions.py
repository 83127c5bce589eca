"""Conversations with structured context, in memory and in the store. All state is bounded, and separate by scope.

``TextStore`` keeps the texts that clients send in the store, for other workers and for the next start. It must be
switched on. Texts are compressed and written in the background: the request that brings them does not wait. A request
that names a digest whose text this process does not have waits a short time for the store. Texts that have not come by
then count as missing, and the client sends them again. If the store is unavailable, nothing waits for it. The blobs are
in a scope of their own, separate from the layout state of the same client. So texts and layouts do not push each other
out of a Redis. A text that is in use is written again several times a day, so that it expires a day after its last use
at the latest, and not while it is in use. No part of a text is ever logged.

``ContextSessions`` is the state that this process remembers of conversations, with what their panels have cost. It is
read and changed only on the event loop.

``SessionStore`` keeps the state of conversations with live panels in the store. The position of a panel depends on when
it last changed. Two workers without shared state would therefore send the same panels in two orders, and a worker that
has just started would move all of them. A request with panels loads its session before it is assembled. Its changes are
written afterwards: its panels once it is sent, and their cost once it is settled. It waits for the store by its
size, as for a layout (``layout_state``). If the store is unavailable, nothing waits for it, and this process uses its
own memory. If no other process writes the store, a session is asked for until it has begun. The summary of a compaction
is a text. It is kept in the store if texts may be kept there, and otherwise only in memory.

``Compactions`` decides which conversations are compacted, what a model is asked about them, and what happens with the
answers. Work that takes long with a large conversation is done in a thread beside the event loop, on values that nobody
changes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from sys import getsizeof
from typing import Final

from proxy.context import Turn
from proxy.context.form import StructuredForm
from proxy.context.history.compaction import (
    MOST_FAILURES,
    WINDOW_SHARE,
    Compaction,
    CompactionAttempts,
    CompactionPrices,
    CompactionProposal,
    CompactionTerms,
    CompactionTexts,
    call_body,
    proposal_of,
    read_finding,
)
from proxy.context.panels import UNKNOWN_LIFE_S, CacheTerms, Panel, iso_time, panel_text
from proxy.context.panels.board import Board, counted
from proxy.context.placement import ContextTracker
from proxy.context.session import (
    AssembledChat,
    AssemblyOptions,
    ContextSession,
    LiveState,
    StatePart,
    blob_name,
    is_kept,
    packed,
    packed_text,
    texts_of,
    unpacked,
    unpacked_text,
)
from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.tasks import Aside, Tasks, cancel, drain, spawn, suppress_and_log
from proxy.kit.value import dataclass, digest, replace
from proxy.models import Deployment
from proxy.planner.tiers import Change
from proxy.protocol.prices import Price
from proxy.protocol.providers import CacheProfile
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import printable, utf8
from proxy.services import ModelFacts
from proxy.services.layout_state import TTL_S, Key, SharedBlobs, wait_for_s
from proxy.storage import Store

WAIT_S: Final = 0.5
"""How long a request waits for texts. A client takes about as long to send them again."""
RENEWED_S: Final = TTL_S / 4
"""A text that is used this long after it was written is written again, and so is the compaction of a session in use,
so that it expires together with the session's other parts."""

# To compress one piece takes about 10 ms. After each piece, other work of the thread gets its turn.
_PIECE_BYTES = 1 << 20
# This many names are asked for in one call. Their texts take 100 MiB at most.
_NAMES_AT_ONCE = 50
# Texts of one request beyond this size count as missing.
_MOST_RECALLED_BYTES = 64 << 20
_RECALLS_AT_ONCE = 4
_CLOSE_S = 5.0
# The most texts whose time of writing is remembered. One entry takes about 400 bytes, so that all entries take at most
# a twentieth of the room for layout state.
_MOST_SAVED = 100_000
_SAVED_SHARE = 8_000

_TEXTS, _PANELS = ":texts", ":panels"
"""The ends of the scopes in the store: a client's texts and sessions have scopes of their own."""


class TextStore:
    """Reads and writes the texts of one store. ``failed`` is called with the operation that could not be done or came
    too late. ``now`` gives unix seconds."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        failed: Callable[[str], None],
        aside: Aside,
        *,
        is_shared: bool,
        memory_bytes: int = 512 << 20,
    ) -> None:
        """``memory_bytes`` is the room for layout state, which is separate from the texts. Texts of a sixteenth of this
        size may wait to be compressed, and of another sixteenth to be written."""
        self._now = now
        self._failed = failed
        self._aside = aside
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)
        self._waiting: Bounded[Key, str] = Bounded(memory_bytes // 16, getsizeof)
        self._saved: LastUsed[Key, float] = LastUsed(min(_MOST_SAVED, memory_bytes // _SAVED_SHARE))
        self._turns = asyncio.Semaphore(_RECALLS_AT_ONCE)
        self._packing: Tasks = set()

    def keep(self, scope: str, form: StructuredForm) -> None:
        """Write the texts that a request shows in the background, unless they were written a short time ago."""
        now = self._now()
        for name, text in texts_of(form):
            saved_at = self._saved.get((scope, name))
            is_fresh = saved_at is not None and 0 <= now - saved_at < RENEWED_S
            if not is_fresh and is_kept(text):
                self._waiting.put((scope, name), text)
        self._pack_behind()

    async def recall(self, scope: str, digests: Sequence[str]) -> Mapping[str, str]:
        """The texts of these digests that the store has and delivers in time."""
        found: dict[str, str] = {}
        left = deque(digests)
        if not self._blobs.is_away and not await self._blobs.recall(partial(self._learn, scope, left, found), WAIT_S):
            left.clear()
        return dict(found)

    async def aclose(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                self._pack_behind()
                await drain(self._packing)
        except TimeoutError:
            self._failed("save")
            await cancel(self._packing)
        await self._blobs.aclose()

    def _pack_behind(self) -> None:
        if self._waiting and all(task.done() for task in self._packing):
            spawn(self._pack_on(), self._packing)

    async def _pack_on(self) -> None:
        while self._waiting:
            # Take the texts that have waited longest.
            texts: dict[Key, str] = {}
            size = 0
            while self._waiting and size < _PIECE_BYTES:
                key = next(iter(self._waiting))
                texts[key] = self._waiting[key]
                size += getsizeof(texts[key])
                self._waiting.drop_oldest()
            now = self._now()
            blobs = await self._aside.run(_PIECE_BYTES, partial(_packed, texts, now))
            for (scope, name), blob in blobs.items():
                self._blobs.put(scope + _TEXTS, {blob_name(name): blob}, now)
                self._saved.put((scope, name), now)

    async def _learn(self, scope: str, left: deque[str], found: dict[str, str]) -> None:
        """Ask for these digests until none is left."""
        room = _MOST_RECALLED_BYTES
        async with self._turns:
            while left and room > 0:
                part = [left.popleft() for _ in range(min(_NAMES_AT_ONCE, len(left)))]
                blobs = await self._blobs.load(scope + _TEXTS, [blob_name(digest) for digest in part], self._now())
                if blobs is None:
                    return
                texts = await self._aside.run(_PIECE_BYTES, partial(_unpacked, part, blobs)) if blobs else {}
                for digest in part:
                    # A text that the store has lost is written again at its next use.
                    self._saved.pop((scope, digest), None)
                for digest, (text, saved_at) in texts.items():
                    self._saved.put((scope, digest), saved_at)
                    found[digest] = text
                    room -= getsizeof(text)


def _packed(texts: Mapping[Key, str], now: float) -> dict[Key, bytes]:
    return {key: packed_text(text, now) for key, text in texts.items()}


def _unpacked(digests: Sequence[str], blobs: Mapping[str, bytes]) -> dict[str, tuple[str, float]]:
    """The texts whose digest is the one by which they are named, each with the time at which it was written."""
    found = {digest: unpacked_text(blobs[name], digest) for digest in digests if (name := blob_name(digest)) in blobs}
    return {digest: kept for digest, kept in found.items() if kept is not None}


_MILLION = 1_000_000


def panel_tokens(panel: Panel, counter: TokenCounter) -> int:
    """How many tokens of a panel the model reads."""
    text = panel_text(panel)
    return counter.count(digest(utf8(text)), text)


@dataclass(frozen=True, slots=True)
class PanelBill:
    """``order`` are the panels in sending order, and ``tokens`` are their tokens by id. ``shown`` is the board by which
    they were placed. ``price`` is the model's price in USD per token; None: it is unknown, and nothing is charged."""

    order: tuple[Panel, ...]
    tokens: Mapping[str, int]
    shown: Board
    price: Price | None

    def charged(self, board: Board) -> Board:
        """The session's board after the request has counted. A panel that is not read from the cache counts as
        written."""
        sent = [self.shown.memory(panel) for panel in self.order]
        read, written = (0.0, 0.0) if self.price is None else (self.price.read, self.price.write_5m)
        return replace(board, costs=counted(board.costs, sent, self.tokens, read * _MILLION, written * _MILLION))

    def value(self) -> Sequence[dict[str, object]]:
        """The cost that the request would add for each panel, as a value for JSON. ``place`` is the index of the
        client's message that the panel stands in front of; system messages are not counted. None: the panel stands in
        front of all messages."""
        costs = self.charged(self.shown).costs.last
        unknown = {"cost_usd": None, "total_usd": None} if self.price is None else {}
        return [
            {
                "id": cost.id,
                "tokens": cost.tokens,
                "hit": cost.is_hit,
                "cost_usd": cost.cost_usd,
                "total_usd": cost.total_usd,
                **unknown,
                "kind": printable(panel.kind),
                "header": printable(panel.header),
                "changed_at": iso_time(memory.stamp_s) or None,
                "place": None if memory.place is None else memory.place.index,
                "requests": memory.seen,
                "changes": memory.changes,
            }
            for panel, cost, memory in zip(self.order, costs, map(self.shown.memory, self.order), strict=True)
        ]


class ContextSessions:
    """The state of conversations by scope and name. It is called only on the event loop."""

    def __init__(self, counter: TokenCounter, options: AssemblyOptions) -> None:
        """``counter`` counts the items of all conversations."""
        self.counter = counter
        self._policy = options.classic if options.is_classic else replace(options.classic, promotion="count")
        self._options = options
        self._held: Bounded[tuple[str, str], ContextSession] = Bounded(options.session_bytes, lambda held: held.bytes)

    def session(self, scope: str, name: str) -> ContextSession:
        """The state of a conversation. A new state is begun if there is none."""
        key = (scope, name)
        if key not in self._held:
            self._held[key] = ContextSession(ContextTracker(self.counter, self._policy))
        self._held.used(key)
        return self._held[key]

    def begun(self, scope: str, name: str) -> ContextSession:
        """The same for a new request. A conversation whose state takes more than half of the memory for all
        conversations begins anew."""
        if self._held.weight_of((scope, name)) > self._options.session_bytes // 2:
            self._held.drop((scope, name))
        return self.session(scope, name)

    def known(self, scope: str, name: str) -> ContextSession | None:
        """The state of a conversation. None if there is none any more."""
        return self._held.get((scope, name))

    def grown(self, scope: str, name: str) -> None:
        """Note that the state of an existing conversation has grown."""
        self._held.used((scope, name))

    def go_on(self, scope: str, name: str, session: ContextSession, board: Board) -> None:
        """Let the conversation go on with this board. It may have been forgotten while its request was read."""
        session = self._held.setdefault((scope, name), session)
        # An earlier request of the conversation may have been counted since this one was assembled.
        session.state = replace(session.state, board=replace(board, costs=session.state.board.costs))
        self.grown(scope, name)

    def counted(
        self,
        chat: AssembledChat,
        bill: PanelBill | None,
        profile: CacheProfile,
        most_input: int | None,
        usage: Usage | None,
    ) -> Sequence[Change]:
        """The exchange counts: what was sent is aged once. A retry of the same conversation does not count again.
        ``profile`` has the cache rules of the upstream. ``most_input`` is the most tokens that its model
        reads; None: unknown."""
        session = self.session(chat.scope, chat.session)
        session.spent(usage)
        life_s = profile.long_life_s if session.total.write_1h and profile.long_life_s else profile.life_s
        life_s = UNKNOWN_LIFE_S if self._options.keeps_alive else life_s
        is_full = usage is not None and 0 < WINDOW_SHARE * (most_input or 0) <= usage.prompt
        session.terms = CacheTerms(
            profile.read, profile.write, life_s, is_full, profile.answer_mark or profile.stores_prefixes
        )
        if session.counted == chat.reading.digest:
            return ()
        session.counted = chat.reading.digest
        session.freezing_cost += chat.dialogue.freezing_cost
        session.empty_tiers += chat.assembly.empty_tiers
        if bill is not None:
            session.state = replace(session.state, board=bill.charged(session.state.board))
        session.map = chat.map or session.map
        session.changes = session.tracker.settle(chat.context, chat.reading.history)
        self.grown(chat.scope, chat.session)
        return session.changes


class SessionStore:
    """Reads and writes the sessions of one store. ``failed`` is called with the operation that could not be done, or
    came too late for a request. ``now`` gives unix seconds."""

    def __init__(
        self,
        sessions: ContextSessions,
        store: Store,
        now: Callable[[], float],
        failed: Callable[[str], None],
        *,
        is_shared: bool,
        keeps_texts: bool = False,
        memory_bytes: int = 512 << 20,
    ) -> None:
        """``memory_bytes`` is the room for all layout state. A sixteenth of it may wait to be written."""
        self._sessions = sessions
        self._now = now
        self._keeps_texts = keeps_texts
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)
        self.aclose = self._blobs.aclose

    async def recall(self, scope: str, name: str, size_bytes: int) -> None:
        """Update the session with what the store knows. ``size_bytes`` is the size of the request, which decides how
        long the request waits."""
        session = self._sessions.session(scope, name)
        self.keep(scope, name, session, self._now())
        # This process's state may be old: another process may have served the conversation's last request.
        if not self._blobs.is_away and (self._blobs.is_shared or not session.state.board.is_begun):
            await self._blobs.recall(partial(self._learn, scope, name), wait_for_s(size_bytes))

    def keep(self, scope: str, name: str, session: ContextSession, now: float) -> None:
        """Write in the background what has changed since the session was last kept or recalled. ``now`` is when it
        changed."""
        before, state = session.kept, session.dated(now)
        session.state = session.kept = state
        has_text = state.compaction is not None and state.compaction.summary != ""
        unkept = StatePart.COMPACTION if has_text and not self._keeps_texts else None
        parts = [part for part in _changed(before, state) if part is not unkept]
        blobs = {_blob_name(part, name): blob for part in parts if (blob := packed(state, part))}
        if blobs:
            self._blobs.put(scope + _PANELS, blobs, now)

    def changed(self, scope: str, name: str) -> None:
        """Write what has just changed after an answer."""
        with suppress_and_log("context.keep"):
            self.keep(scope, name, self._sessions.session(scope, name), self._now())

    async def _learn(self, scope: str, name: str) -> None:
        parts = {_blob_name(part, name): part for part in StatePart}
        blobs = await self._blobs.load(scope + _PANELS, list(parts), self._now())
        if not blobs:
            return
        state = unpacked({parts[found]: blob for found, blob in blobs.items()})
        self._sessions.session(scope, name).adopt(state, self._now())
        self._sessions.grown(scope, name)


def _changed(before: LiveState, state: LiveState) -> Iterator[StatePart]:
    """The parts that differ from before. An equal part that is not the same object also counts, because another request
    made it."""
    old, new = before.board, state.board
    if new.panels is not old.panels or new.prompts is not old.prompts:
        yield StatePart.BOARD
    if new.costs is not old.costs:
        yield StatePart.COSTS
    if state.compaction is not before.compaction or new.last_s // RENEWED_S != old.last_s // RENEWED_S:
        yield StatePart.COMPACTION


def _blob_name(part: StatePart, name: str) -> str:
    """The name of a part's blob. It has a digest of the session's name, because that name comes from the client and
    may be long."""
    return f"{part.value}:{digest(utf8(name)).hex()}"


# With few exceptions, output costs five times as much as input at every provider with a listed price.
_OUTPUT_PRICE = 5.0


class CompactionOutcome(StrEnum):
    """Outcome of a compaction whose call was answered, or never made. All outcomes but the first two change nothing.
    The outcome of other calls is their ending (``proxy.services.own_exchanges.OwnEnding``).
    What each one means stands in ``grafana/METRICS.md``."""

    SUMMARIZED = "summarized"
    TRUNCATED = "truncated"
    UNREADABLE = "unreadable"
    OUTDATED = "outdated"
    DISALLOWED = "disallowed"


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """A call that shall be made. ``key`` names the session, and ``former`` is the session's compaction so far. The
    conversation as it is sent now has ``tokens``."""

    key: Key
    former: Compaction | None
    proposal: CompactionProposal
    tokens: int
    body: bytes


class Compactions:
    """Decides which conversations are compacted, and remembers what came of it."""

    def __init__(
        self,
        sessions: ContextSessions,
        terms: CompactionTerms,
        texts: CompactionTexts,
        facts: ModelFacts,
        aside: Aside | None = None,
        compacted: Callable[[str, str], None] | None = None,
    ) -> None:
        """``compacted`` is told the scope and the name of each session that was compacted."""
        self._sessions = sessions
        self._terms, self._texts = terms, texts
        self._facts = facts
        self._aside = aside or Aside()
        self._compacted = compacted

    async def plan(self, chat: AssembledChat, deployment: Deployment) -> CompactionWork | None:
        """The call that shall be made for a conversation after its last answer, which has been counted. None: no call
        shall be made."""
        key, history = (chat.scope, chat.session), chat.dialogue.uncompacted
        session = self._sessions.known(*key)
        if session is None or session.terms is None or history is None or session.attempts.failures >= MOST_FAILURES:
            return None
        size = sum(len(turn.raw) for turn in history.conversation.turns)
        # A token has at least one byte.
        if size < self._terms.min_history_tokens:
            return None
        price = self._facts.price(deployment)
        output = price.output / price.input if price is not None and price.input else _OUTPUT_PRICE
        former, prices = session.state.compaction, CompactionPrices(session.terms, output, session.requests)
        tokens = partial(Turn.tokens, counter=self._sessions.counter.fork())
        work = partial(proposal_of, history, former, session.attempts, tokens, self._terms, self._texts, prices)
        look = await self._aside.run_large(size, work)
        if look is None:
            return None
        length, proposal = look
        if proposal is None:
            session.attempts = replace(session.attempts, declined_tokens=length)
            return None
        body = call_body(chat.sent.members, deployment.model, proposal.question, deployment.profile.name)
        return CompactionWork(key, former, proposal, length, body)

    def answered(self, work: CompactionWork, answer: str) -> CompactionOutcome:
        """Take over a model's answer: the conversation is compacted from now on, or nothing changes."""
        proposal = work.proposal
        finding = read_finding(answer, len(proposal.question.starts))
        made = proposal.outcome(finding) if finding is not None else None
        session = self._sessions.known(*work.key)
        if session is None or session.state.compaction != work.former:
            return CompactionOutcome.OUTDATED
        if made is None:
            session.attempts = session.attempts.failed(work.tokens)
            return CompactionOutcome.UNREADABLE
        session.state = replace(session.state, compaction=made)
        session.attempts = CompactionAttempts(tried_tokens=proposal.left_tokens(made))
        session.rewritten()
        self._sessions.grown(*work.key)
        if self._compacted is not None:
            self._compacted(*work.key)
        return CompactionOutcome.SUMMARIZED if made.summary else CompactionOutcome.TRUNCATED

    def failed(self, key: Key, tokens: int = 0) -> None:
        """Note that a look at a conversation with this many tokens, or the call for it, has failed."""
        session = self._sessions.known(*key)
        if session is not None:
            session.attempts = session.attempts.failed(tokens)

    def put_off(self, work: CompactionWork) -> None:
        """Note that the call was not made because it was not allowed to cost anything."""
        session = self._sessions.known(*work.key)
        if session is not None:
            session.attempts = replace(session.attempts, tried_tokens=work.tokens)
