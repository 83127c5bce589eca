"""Keeps the usage and the contents of sessions, and reports what a request used.

The first part makes the values that are kept of one request, from its exchange when that has ended.

``SessionBook`` keeps them for the administration, for all workers that share a store. It follows the exchanges of
clients, and writes after they have ended: every two seconds into a store that only this process uses, and several times
a second into a store that others also read. A round reads the records of its sessions, merges them with its own, and
writes them. If two workers wrote at the same time, the next round finds that its own part is missing, and writes it
again. Records that cannot be written wait, within a bound. A list of sessions comes from the store. While the store is
unavailable, the list has what this process knows, and says from what time the store's figures are.

``TokenUsage`` reports what a request used: in the answer for a client that asks for it, and in a terminal for the
operator. A report holds figures and the names of tiers and kinds, and no text.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import isnan
from typing import Any, Final

from msgspec import msgpack, structs

from proxy.context.blocks import hit_rate
from proxy.engine.conclusion import shown, shown_piece
from proxy.engine.exchange import Exchange, Settlement
from proxy.engine.ports import Follower
from proxy.kit.errors import StoreError
from proxy.kit.lru import Bounded
from proxy.kit.modes import Mode, Reason
from proxy.kit.tasks import OBJECT_BYTES, REST_S, Aside, Tasks, drain, end_within, pause, spawn, suppress_and_log
from proxy.planner.plan import CONTROL, Plan, breakpoints, inventory_of
from proxy.planner.record import TURN
from proxy.planner.session_record import (
    DETAILS,
    RECORD,
    Inventory,
    SessionContents,
    SessionDetails,
    SessionFacts,
    SessionPage,
    SessionRecord,
    SessionRequest,
    SessionSums,
    added,
    short_key,
)
from proxy.planner.sharing import P, unpacked
from proxy.planner.tiers import ENTRY_N, Tier
from proxy.protocol.caches import Bill
from proxy.protocol.prices import saved_as_reported, saved_on_shadow
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import Unreadable, printable
from proxy.services import ModelFacts
from proxy.services.layout_state import TTL_S
from proxy.storage import Store


def sums_of(exchange: Exchange, one: SessionRequest | None = None) -> SessionSums:
    """The sums that an exchange adds to its session. ``one`` is its row: with it, they say what the request read and
    cost, or would have read and cost, in three layouts: the client's own, the one with added markers, and the planned
    one. One of these was sent. If nothing could be marked, the second layout has the client's own markers."""
    settled, assembled, at = exchange.settlement or Settlement(), exchange.planned.assembled, exchange.arrival.now
    usage = settled.usage or Usage(0, 0)
    sums = SessionSums(
        at,
        0 if one is not None and one.is_refresh else 1,
        usage.read,
        usage.write_5m,
        usage.write_1h,
        usage.plain,
        usage.output,
        settled.cost_usd,
        settled.saved_usd,
        assembled.assembly.empty_tiers if assembled is not None else 0,
    )
    if one is None:
        return sums
    plan, marked = exchange.planned.plan, exchange.planned.result.marked
    client, planned = (one.read, one.cost_usd), (one.other_read, one.cost_usd - one.saved_usd)
    if not one.is_observed:
        client, planned = (0 if one.is_refresh else one.other_read, one.cost_usd + one.saved_usd), client
    in_order = client
    if plan is not None and plan.mode is Mode.MARK:
        in_order = planned
    elif plan is not None and plan.price is not None and marked is not None and usage.prompt:
        in_order = marked.scaled(usage.prompt).read, one.cost_usd + saved_as_reported(marked, usage, plan.price)
    return structs.replace(
        sums,
        client_read_tokens=client[0],
        client_usd=client[1],
        marked_read_tokens=in_order[0],
        marked_usd=in_order[1],
        planned_read_tokens=planned[0],
        planned_usd=planned[1],
    )


def request_of(exchange: Exchange, plan: Plan, number: int) -> SessionRequest:
    """The figures of one request, and those of the layout that was not sent."""
    settled, broke = exchange.settlement or Settlement(), exchange.planned.result.broke
    is_refresh = plan.reason == Reason.KEEP_ALIVE
    usage = settled.usage or Usage(0, 0)
    is_observed, saved_usd = plan.mode is Mode.OBSERVE and plan.arm != CONTROL, settled.saved_usd
    other: Usage | Bill = usage
    if plan.own is not None and plan.predicted is not None and not is_refresh:
        if is_observed:
            other = plan.predicted.scaled(usage.prompt)
            saved_usd = saved_on_shadow(plan.own, plan.predicted, plan.price) if plan.price is not None else 0.0
        elif plan.arm != CONTROL and (plan.rewritten or plan.predicted != plan.own):
            other = plan.own.scaled(usage.prompt)
    found = SessionRequest(
        at=exchange.arrival.now,
        number=number,
        prompt=usage.prompt,
        read=usage.read,
        written=usage.write,
        other_read=other.read,
        other_written=other.write,
        cost_usd=settled.cost_usd,
        saved_usd=saved_usd,
        is_refresh=is_refresh,
        is_observed=is_observed,
    )
    if broke is None:
        return found
    ratio = usage.prompt / max(1, broke.before + broke.tokens + broke.behind)
    name = f"{TURN}:{broke.culprit}" if broke.culprit_kind == TURN else broke.culprit
    return structs.replace(
        found,
        kind=broke.kind,
        culprit=shown_piece(name, exchange.arrival.keys),
        line=broke.line,
        before=round(broke.before * ratio),
        tokens=round(broke.tokens * ratio),
        lost=broke.lost,
        lost_usd=broke.usd,
        is_waste=broke.is_waste,
    )


SCOPE: Final = "sessions"
DETAILS_SCOPE: Final = "session-details"
"""The scopes in the store. A client's scope is a digest, so that no client can have one of these."""

_EVERY_S = 2.0
_SHARED_EVERY_S = 0.25
_AWAY_S = 1.0
_MOST_AT_ONCE = 500
_MOST_KNOWN = 20_000
_MOST_SEARCHED = 20_000
_MOST_OF_SEARCH = 1_000
_LOOKED_AT = 50
_MOST_MOVES = 50
_MOST_CULPRITS = 3
_CLOSE_S = 5.0
_MOST_TEXT_BYTES = 32 << 20
_ROW_BYTES = 200
packed: Final = msgpack.Encoder().encode


class SessionBook(Follower):
    """Follows the engine's exchanges, and implements ``Sessions`` of the administration. ``worker`` names this process
    among those that share the store. ``now`` gives unix seconds. ``failed`` is called with what could not be done.
    ``keeps_texts``: the last request of each session is kept as it came, in the memory of this process alone."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        failed: Callable[[str], None],
        aside: Aside,
        facts: ModelFacts,
        *,
        worker: str,
        memory_bytes: int = 512 << 20,
    ) -> None:
        """``memory_bytes`` is the room for layout state. An amount of a sixteenth of it is the room for records, and
        half of that amount is the room for details."""
        self._store = store
        self._now = now
        self._failed = failed
        self._aside = aside
        self._facts = facts
        self._worker = worker
        self._known: Bounded[str, tuple[SessionRecord, str]] = Bounded(
            memory_bytes // 16, lambda known: 1_000 + 200 * len(known[0].parts), _MOST_KNOWN
        )
        self._parts = count()
        self._numbers = count()
        self._details: Bounded[str, SessionDetails] = Bounded(
            memory_bytes // 32,
            lambda known: 300 + len(known.packed) + _ROW_BYTES * len(known.rows),
            _MOST_KNOWN,
        )
        self.keeps_texts = False
        self._texts: Bounded[str, bytes] = Bounded(_MOST_TEXT_BYTES, len)
        self._seen: dict[str, Exchange] = {}
        """The last request of each session, until its contents are measured."""
        self._waiting: dict[str, None] = {}
        self._as_of = now()
        self._is_away = False
        self._tasks: Tasks = set()
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled. It counts if the upstream accepted it, or bills it. A refresh that the proxy sent is
        no request of the client, but its cost counts, and the prefix lives on."""
        plan, deployment, settled = exchange.planned.plan, exchange.deployment, exchange.settlement or Settlement()
        counts = exchange.answer.is_accepted or settled.usage is not None
        if plan is None or deployment is None or not plan.session or not counts:
            return
        name, at = plan.session, exchange.arrival.now
        record, part = self._known.get(name) or (SessionRecord(name, at), self._new_part())
        part = part if record.goes_on(part, at) else self._new_part()
        one = request_of(exchange, plan, next(self._numbers))
        details = self._details.get(name, SessionDetails()).added(one)
        self._details.put(name, details)
        facts = structs.replace(record.facts, read_at=at) if one.is_refresh else _facts(exchange, plan)
        culprits = details.dearest(_MOST_CULPRITS) if one.culprit else record.facts.culprits
        facts = structs.replace(facts, culprits=culprits)
        self._known.put(name, (record.counted(part, sums_of(exchange, one), facts), part))
        if not one.is_refresh:
            self._seen[name] = exchange
            if self.keeps_texts and len(plan.original) <= _MOST_TEXT_BYTES:
                self._texts.put(name, plan.original)
        self._waiting[name] = None
        if self._writing is None or self._writing.done():
            self._writing = spawn(self._write_on(), self._tasks)

    def so_far(self, session: str) -> SessionSums:
        """The usage of a session, as far as this process knows it."""
        known = self._known.get(session)
        return known[0].total() if known is not None else SessionSums()

    async def page(self, behind: str, limit: int, team: str = "", words: str = "") -> SessionPage:

        def is_asked(record: SessionRecord) -> bool:
            return team in ("", record.facts.team) and record.is_found_by(words)

        until, _, name = (behind or "inf/").partition("/")
        place, found, looked_at = (float(until), name), list[SessionRecord](), 0
        if isnan(place[0]):
            raise ValueError("no place of a page")
        at_once = limit + 1 if not team and not words else _MOST_OF_SEARCH
        try:
            while rows := await self._store.page(SCOPE, place, at_once, self._now()):
                for number, (name, until_s, blob) in enumerate(rows, 1):
                    place, record = (until_s, name), _record(name, blob)
                    if record is not None and is_asked(record):
                        found.append(self._adopted(record))
                    if len(found) == limit and (number < len(rows) or len(rows) == at_once):
                        return SessionPage(found, self._answered(), f"{until_s!r}/{name}")
                    if number % _LOOKED_AT == 0:
                        await asyncio.sleep(REST_S)  # requests have their turn
                looked_at += len(rows)
                if len(rows) < at_once or looked_at >= _MOST_SEARCHED:
                    break
        except StoreError:
            self._is_away = True
            records = sorted((record for record, _ in self._known.values()), key=lambda record: -record.last_at)
            return SessionPage(list(filter(is_asked, records))[:limit], self._as_of, is_away=True)
        more = f"{place[0]!r}/{place[1]}" if looked_at >= _MOST_SEARCHED else ""
        return SessionPage(found, self._answered(), more)

    async def one(self, session: str) -> tuple[SessionPage, SessionDetails]:
        (record, _), details = self._known.get(session, (None, "")), self._details.get(session, SessionDetails())
        try:
            (blob,) = await self._store.load(SCOPE, [session], self._now())
            (more,) = await self._store.load(DETAILS_SCOPE, [session], self._now())
            self._answered()
            found, stored = _record(session, blob), _read(DETAILS, more)
            record = self._adopted(found) if found is not None else None
            details = details.merged(stored) if stored is not None else details
        except StoreError:
            self._is_away = True
        return SessionPage([record] if record is not None else [], self._as_of, is_away=self._is_away), details

    def text(self, session: str) -> bytes | None:
        return self._texts.get(session)

    async def aclose(self) -> None:
        self._closing.set()
        await end_within(self._tasks, _CLOSE_S)

    def _adopted(self, found: SessionRecord) -> SessionRecord:
        """A record of the store, merged with what this process knows. It is kept for times when the store is
        unavailable, if it pushes out no other record."""
        record, part = self._known.get(found.id, (None, ""))
        if record is not None:
            found = record.merged(found, part)
        if record is not None or self._known.is_half_empty:
            self._known.put(found.id, (found, part or self._new_part()))
        return found

    def _new_part(self) -> str:
        """The name of a new part of a record. This process never goes on with a part that it has forgotten."""
        return f"{self._worker}{next(self._parts)}"

    def _answered(self) -> float:
        self._as_of, self._is_away = self._now(), False
        return self._as_of

    async def _write_on(self) -> None:
        """Run rounds until nothing waits. If others also write the store, what was written is checked once more."""
        written: Sequence[str] = ()
        pause_s = _SHARED_EVERY_S if self._store.is_shared else _EVERY_S
        while self._waiting or written:
            await pause(_AWAY_S if self._is_away else pause_s, self._closing)
            names = dict.fromkeys(list(self._waiting)[:_MOST_AT_ONCE])
            for name in names:
                del self._waiting[name]
            for name in list(self._seen):
                with suppress_and_log("sessions.contents"):
                    await self._look_at(name, self._seen.pop(name))
            try:
                again = written if self._store.is_shared else ()
                written = await self._round(names, again)
            except StoreError:
                self._failed("sessions")
                self._is_away, written = True, ()
                # A record that is not known any more cannot be written, and does not wait.
                self._waiting = {name: None for name in (*self._waiting, *names) if name in self._known}
                if self._closing.is_set():
                    return

    async def _look_at(self, name: str, exchange: Exchange) -> None:
        """Compute the figures of a request's contents. After that, nothing of the request is held."""
        plan, deployment, at = exchange.planned.plan, exchange.deployment, exchange.arrival.now
        assert plan is not None
        assert deployment is not None
        measure, size = measure_of(plan)
        inventory = await self._aside.run_large(size, measure)
        await asyncio.sleep(0)
        moves = tuple(
            (short_key(move.key), move.source.label, "" if move.target is None else move.target.label)
            for move in exchange.planned.result.moves[:_MOST_MOVES]
        )
        usage, last = exchange.answer.outcome.usage, None
        if usage is not None:
            last = usage.prompt, usage.output, usage.read, usage.write_5m, usage.write_1h
        edits, limits = {edit.value: count for edit, count in plan.edits.items()}, self._facts.limits(deployment)
        whole = packed(SessionContents(inventory.bounded(), moves=moves, last=last, limits=limits, edits=edits))
        self._details.put(name, structs.replace(self._details.get(name, SessionDetails()), at=at, packed=whole))
        record, part = self._known.get(name, (None, ""))
        if record is not None:
            tiers = {tier.label: tokens for tier, tokens in inventory.tier_tokens().items()}
            self._known.put(name, (structs.replace(record, facts=structs.replace(record.facts, tiers=tiers)), part))

    async def _round(self, names: Collection[str], again: Iterable[str]) -> Sequence[str]:
        """Merge these records with the store's, and write them. Of ``again``, only those are written that another
        worker has overwritten. Returns the names of the written records."""
        asked, now = list(dict.fromkeys((*names, *again))), self._now()
        if not asked:
            return ()
        stored = await self._store.load(SCOPE, asked, now), await self._store.load(DETAILS_SCOPE, asked, now)
        blobs, more = dict[str, bytes](), dict[str, bytes]()
        for number, (name, blob, detail) in enumerate(zip(asked, *stored, strict=True), 1):
            if number % _LOOKED_AT == 0:
                await asyncio.sleep(REST_S)  # requests have their turn
            found = _record(name, blob)
            if found is not None:
                self._adopted(found)
            record, part = self._known.get(name, (None, ""))
            is_written = found is not None and record is not None and found.parts.get(part) == record.parts.get(part)
            if record is None or (is_written and name not in names):
                continue
            details, known = self._details.get(name, SessionDetails()), _read(DETAILS, detail)
            details = details.merged(known) if known is not None else details
            self._details.put(name, details)
            blobs[name], more[name] = packed(record), packed(details)
        if blobs:
            await self._store.save(DETAILS_SCOPE, more, TTL_S, now)
            await self._store.save(SCOPE, blobs, TTL_S, now)
        self._answered()
        return tuple(blobs)


def _record(name: str, blob: bytes | None) -> SessionRecord | None:
    """The store's record of a session. None if there is none, if it cannot be read, or if it is another session's."""
    record = _read(RECORD, blob)
    return record if record is not None and record.id == name else None


def _read(decoder: msgpack.Decoder[P], blob: bytes | None) -> P | None:
    """The value that the store has. None if there is none, or if it cannot be read."""
    with suppress(Unreadable):
        return unpacked(decoder, blob) if blob is not None else None
    return None


def measure_of(plan: Plan) -> tuple[Callable[[], Inventory], int]:
    """The function that makes the inventory of a plan, and how much work it has, in bytes."""
    if plan.contents is not None:
        return plan.contents, len(plan.body)
    if plan.in_flight is None:
        return Inventory, 0
    # This changes nothing: from the planner's own state it only reads how stable each piece is.
    analysis = plan.in_flight.analysis
    pieces = len(analysis.recognised.transcript.messages) + len(analysis.elements.sizes)
    return partial(inventory_of, plan.in_flight), OBJECT_BYTES * pieces


def _facts(exchange: Exchange, plan: Plan) -> SessionFacts:
    """The facts about the request. All texts that a client chose are cut to a length, and show no key."""
    principal, keys = exchange.principal, exchange.arrival.keys
    is_planned = plan.mode > Mode.OBSERVE and not exchange.planned.was_retried
    points = breakpoints(plan.in_flight, is_planned=is_planned) if plan.in_flight is not None and plan.own else []
    return SessionFacts(
        team=principal.team,
        key_id=principal.key_id,
        user=shown(principal.user, keys),
        model=shown(exchange.deployment.name if exchange.deployment is not None else "", keys),
        client=plan.client,
        mode=exchange.planned.mode.name.lower(),
        reason=exchange.planned.reason,
        read_at=exchange.arrival.now,
        breakpoints=tuple(points),
    )


_MOST_COUNTED_AT_ONCE = 20
_MODEL_CHARS = 200


class TokenUsage:
    """Implements ``UsageReports`` of the engine. ``so_far`` says what a session has used before; None: sessions are not
    counted."""

    def __init__(self, facts: ModelFacts, aside: Aside, so_far: Callable[[str], SessionSums] | None) -> None:
        self._facts = facts
        self._aside = aside
        self._so_far = so_far

    def of(self, exchange: Exchange) -> Awaitable[dict[str, Any]]:
        """The report of an exchange that has just been booked. Its session's sums are read at once, while this exchange
        is not in them yet."""
        plan, session = exchange.planned.plan, None
        if self._so_far is not None and plan is not None and plan.session:
            before = self._so_far(plan.session)
            sums = added(before, sums_of(exchange)) if before.requests else sums_of(exchange)
            session = _used(sums.usage, sums.cost_usd, sums.saved_usd)
            session |= {"requests": sums.requests, "empty_tiers": sums.empty_tiers}
        return self._report(exchange, session)

    async def _report(self, exchange: Exchange, session: dict[str, Any] | None) -> dict[str, Any]:
        planned, settled, deployment = exchange.planned, exchange.settlement or Settlement(), exchange.deployment
        inventory, limits = Inventory(), self._facts.limits(deployment) if deployment is not None else (None, None)
        if planned.plan is not None:
            measure, size = measure_of(planned.plan)
            inventory = await self._aside.run_large(size, measure)
        usage = settled.usage or Usage(0, 0)
        return {
            "model": printable(exchange.requested.model[:_MODEL_CHARS]),
            "mode": planned.mode.name.lower(),
            "reason": planned.reason,
            "max_input_tokens": limits[0],
            "max_output_tokens": limits[1],
            "request": _used(usage, settled.cost_usd, settled.saved_usd) | {"estimated": usage.estimated},
            "session": session,
            "tiers": _tiers(inventory),
            "empty_tiers": inventory.empty_tiers,
        }


class UsageFollower(Follower):
    """``show`` is called with the report of each chat exchange of a client. If
    exchanges come faster than they can be measured, some are left out."""

    def __init__(self, reports: TokenUsage, show: Callable[[Mapping[str, Any]], None]) -> None:
        self._reports = reports
        self._show = show
        self._tasks: Tasks = set()

    def ended(self, exchange: Exchange) -> None:
        is_clients = exchange.arrival.is_chat and exchange.planned.reason != Reason.KEEP_ALIVE
        if exchange.answer.is_accepted and is_clients and len(self._tasks) < _MOST_COUNTED_AT_ONCE:
            spawn(self._tell(self._reports.of(exchange)), self._tasks)

    async def aclose(self) -> None:
        await drain(self._tasks)

    async def _tell(self, report: Awaitable[Mapping[str, Any]]) -> None:
        with suppress_and_log("hud"):
            self._show(await report)


def _used(usage: Usage, cost_usd: float, saved_usd: float) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "cache_read_tokens": usage.read,
        "cache_write_tokens": usage.write,
        "uncached_tokens": usage.plain,
        "cache_hit_rate": hit_rate(usage, None),
        "cost_usd": round(cost_usd, 9),
        "saved_usd": round(saved_usd, 9),
    }


def _tiers(inventory: Inventory) -> list[dict[str, Any]]:
    """The tiers that are not empty, the most stable one first. The form is that of the breakdown, without single items.
    The tokens are the proxy's own count."""
    found: dict[Tier, dict[str, dict[str, Any]]] = {tier: {} for tier in inventory.tier_tokens()}
    for section in inventory.sections:
        kind = found[section.tier].setdefault(section.kind, {"type": section.kind, "tokens": 0, "count": 0})
        kind["tokens"] += section.tokens
        kind["count"] += len(section.items)
    return [
        {
            "tier": tier.label,
            "threshold": ENTRY_N[tier],
            "tokens": tokens,
            "cached": tier is not Tier.ACTIVE,
            "breakpoint": tier in inventory.marked,
            "contents": list(found[tier].values()),
        }
        for tier, tokens in inventory.tier_tokens().items()
        if found[tier]
    ]
