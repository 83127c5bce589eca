"""Reports the state of budgets to clients, webhooks and metrics: a soft limit is exceeded, or a hard limit refuses a
request.

``BudgetAlerts`` knows the state and decides what is reported. ``WebhookSender`` delivers the notices to webhooks. They
are signed and retried, and no request waits for them.

A notice is a POST of JSON. The header ``x-stratiform-signature: t=SECONDS,v1=HEX`` is the HMAC-SHA256 of
``SECONDS.BODY`` with the configured secret (the form that Stripe's receivers know:
https://docs.stripe.com/webhooks#verify-manually). The header ``x-stratiform-notice`` is the same for every attempt, so
that a receiver recognises a repetition. An attempt that is not answered with a 2xx is repeated with growing pauses. The
queue is bounded: notices beyond the bound are counted and dropped.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from re import ASCII, compile

import aiohttp
import orjson

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import Clock
from proxy.kit.lru import LastUsed
from proxy.kit.tasks import Tasks, cancel, spawn
from proxy.models.charges import NANOS_PER_USD, Rule, amount_text
from proxy.storage import Balance, Charge
from proxy.teams.bookings import NOTHING, Booking, BudgetReservation, account_of, booked
from proxy.teams.store_client import StoreClient

LOOK_EVERY_S = 30.0
"""How often a worker reads what is left of budgets."""
_MOST_WAITING = 1000
_AT_ONCE = 4
_TIMEOUT_S = 10.0
_PAUSES_S = (1.0, 5.0, 30.0, 120.0, 600.0)

_UNSAFE = compile(r"[^\w.@+/-]", ASCII)
_CLAIMED_S = 400 * 86400.0
_MOST_CLAIMED = 10_000

_log = logging.getLogger("stratiform.notices")


class BudgetAlerts:
    """The state of budgets as this worker has seen it, and the notices about it. A notice goes out once in a window:
    the worker that claims the notice's name in the store sends it."""

    def __init__(self, store_client: StoreClient, metrics: Metrics, webhooks: "WebhookSender") -> None:
        self._store_client = store_client
        self.metrics = metrics
        self._webhooks = webhooks
        self.start, self.aclose = webhooks.start, webhooks.aclose
        self._claimed: LastUsed[tuple[str, str], bool] = LastUsed(_MOST_CLAIMED)
        self._remaining: dict[tuple[str, str], tuple[float, float]] = {}

    def remaining(self) -> dict[str, tuple[float, float]]:
        """For each team with a hard limit, the USD that are left, as far as this worker saw it: the least of the team's
        budgets. Also the unix seconds at which that budget begins again; infinite if it does not."""
        least: dict[str, tuple[float, float]] = {}
        for (team, _), left in self._remaining.items():
            least[team] = min(left, least.get(team, left))
        return least

    async def look(self, budgets: Sequence[tuple[str, Rule]], now: float) -> None:
        """Read what is left of these budgets, each with its team, and forget all others. Without this, a worker would
        know only what its own requests have shown. It does not wait for a store that is away."""
        budgets = [(team, rule) for team, rule in budgets if _is_shown(rule)]
        for team, rule in budgets:
            booking = booked(rule, NOTHING, now)
            if (balance := await self._store_client.balance(team, booking.charge)) is not None:
                self._see(team, booking, balance)
        self._remaining = {
            key: self._remaining[key] for team, rule in budgets if (key := (team, rule.id)) in self._remaining
        }

    async def tell(self, reservation: BudgetReservation, balances: Sequence[Balance], *, is_new: bool = False) -> None:
        """Report the balances of a reservation's counters. A soft limit that is reached sends a notice. A new
        reservation also gets a notice for its client if a soft limit is exceeded, or will probably be exceeded."""
        for booking, balance in zip(reservation.bookings, balances, strict=True):
            rule = booking.rule
            self._see(reservation.team, booking, balance)
            if rule.soft is None:
                continue
            if is_new and balance.spent + balance.expected > rule.soft:
                self.metrics.soft_limit_passed(reservation.team)
                spent, soft = amount_text(rule.unit, balance.spent), amount_text(rule.unit, rule.soft)
                reservation.notice = f"{header_text(rule.id)}; spent={spent}; soft={soft}"
            if balance.spent >= rule.soft:
                await self.notify("budget.soft_limit", reservation.team, booking, balance)

    async def notify(self, event: str, team: str, booking: Booking, balance: Balance) -> None:
        """Send a notice, once per window by all workers together."""
        rule = booking.rule
        if not rule.webhook:
            return
        # A rolling window has no end: there is one notice in the length of the window.
        name = f"{event}:{account_of(rule, rule.window) if booking.window.within else booking.charge.account}"
        if self._claimed.find((team, name)):
            return
        self._claimed.put((team, name), True)
        if await self._store_client.claim(team, name, booking.window.keep_s or _CLAIMED_S):
            unit = NANOS_PER_USD if rule.unit == "usd" else 1
            content: dict[str, object] = {
                "team": team,
                "budget": rule.id,
                "whom": rule.whom,
                "unit": rule.unit,
                "window": rule.window,
                "spent": balance.spent / unit,
                "soft": None if rule.soft is None else rule.soft / unit,
                "hard": None if rule.hard is None else rule.hard / unit,
                "resets_at": time_text(booking.window.resets_at),
            }
            self._webhooks.send(rule.webhook, event, content)

    def note_overrun(self, reservation: BudgetReservation, final: Sequence[Charge]) -> None:
        """Count an exchange that cost more than was reserved for it."""
        for booking, charge in zip(reservation.bookings, final, strict=True):
            over = charge.amount - reservation.held(booking)
            if over > 0 and booking.rule.unit == "usd" and booking.rule.hard is not None:
                self.metrics.overran(reservation.team, by=over / NANOS_PER_USD)
                return

    def _see(self, team: str, booking: Booking, balance: Balance) -> None:
        rule, window = booking.rule, booking.window
        if _is_shown(rule) and rule.hard is not None:
            # A rolling window has no end.
            until = inf if window.resets_at is None or window.within else window.resets_at
            self._remaining[team, rule.id] = ((rule.hard - balance.spent) / NANOS_PER_USD, until)


def _is_shown(rule: Rule) -> bool:
    """Whether a metric shows what is left of the budget. What is left for each user or model would be too many."""
    return rule.unit == "usd" and rule.hard is not None and not rule.whom


def header_text(text: str) -> str:
    """A text in a form that is allowed in a header."""
    return _UNSAFE.sub("?", text)


def time_text(at: float | None) -> str | None:
    """A time as notices and headers write it; None for never."""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class WebhookSender:
    """Delivers notices in the background, between ``start`` and ``aclose``."""

    def __init__(
        self, secret: bytes, clock: Clock, metrics: Metrics, *, pauses_s: tuple[float, ...] = _PAUSES_S
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._metrics = metrics
        self._pauses_s = pauses_s
        self._queue: asyncio.Queue[tuple[str, str, str, Mapping[str, object]]] = asyncio.Queue(_MOST_WAITING)
        self._session: aiohttp.ClientSession | None = None
        self._tasks: Tasks = set()

    def start(self) -> None:
        for _ in range(_AT_ONCE):
            spawn(self._deliver(), self._tasks)

    def send(self, url: str, event: str, content: Mapping[str, object]) -> None:
        """Queue a notice; never waits. ``event`` is "budget.soft_limit" or "budget.hard_limit"."""
        try:
            self._queue.put_nowait((url, "sn-" + secrets.token_hex(8), event, content))
        except asyncio.QueueFull:
            self._metrics.notified("dropped")
            _log.error("%d notices wait for their webhooks: one more is dropped", _MOST_WAITING)

    async def aclose(self) -> None:
        """Stop. Notices that wait get the time of one attempt first."""
        if self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TIMEOUT_S if not self._queue.empty() else 0):
                    await self._queue.join()
            await cancel(self._tasks)
        if self._session is not None:
            await self._session.close()

    async def _deliver(self) -> None:
        """Take one notice after the other, and repeat its attempts with growing pauses."""
        while True:
            url, notice_id, event, content = await self._queue.get()
            try:
                body = orjson.dumps({"id": notice_id, "event": event, "at": time_text(self._clock.now()), **content})
                for pause_s in (0.0, *self._pauses_s):
                    await asyncio.sleep(pause_s)
                    if not (problem := await self._post(url, body, notice_id)):
                        self._metrics.notified("delivered")
                        break
                    _log.warning("a webhook did not take notice %s (%s): %s", notice_id, event, problem)
                else:
                    self._metrics.notified("failed")
            finally:
                self._queue.task_done()

    async def _post(self, url: str, body: bytes, notice_id: str) -> str:
        """Make one attempt. Returns what went wrong, or an empty text."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        seconds = int(self._clock.now())
        digest = hmac.new(self._secret, b"%d." % seconds + body, hashlib.sha256).hexdigest()
        headers = {
            "content-type": "application/json",
            "user-agent": "stratiform",
            "x-stratiform-notice": notice_id,
            "x-stratiform-signature": f"t={seconds},v1={digest}",
        }
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                return "" if 200 <= answer.status < 300 else f"status {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__
