"""Reports the state of budgets to clients, webhooks and metrics: a soft limit is exceeded, or a hard limit refuses a
request."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from re import ASCII, compile

from proxy.core.lru import LastUsed
from proxy.core.money.budget import NANOS_PER_USD, Rule, amount_text
from proxy.spend.bookings import NOTHING, Booking, BudgetReservation, account_of, booked
from proxy.spend.store_client import StoreClient
from proxy.spend.webhooks import Notice, WebhookSender
from proxy.storage.port import Balance, Charge
from proxy.telemetry.metrics import Metrics

_UNSAFE = compile(r"[^\w.@+/-]", ASCII)
_CLAIMED_S = 400 * 86400.0
_MOST_CLAIMED = 10_000


class BudgetAlerts:
    """The state of budgets as this worker has seen it, and the notices about it. A notice goes out once in a window:
    the worker that claims the notice's name in the store sends it."""

    def __init__(self, store_client: StoreClient, metrics: Metrics, webhooks: WebhookSender) -> None:
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

    async def look(self, team: str, rules: Sequence[Rule], now: float) -> None:
        """Read what is left of budgets before the first request. It does not wait for a store that is away."""
        for rule in rules:
            booking = booked(rule, NOTHING, now)
            if (balance := await self._store_client.balance(team, booking.charge)) is not None:
                self._see(team, booking, balance)

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
        name = f"{event}:{booking.charge.account}"
        if booking.window.within:  # a rolling window has no end: one notice in the length of the window
            name = f"{event}:{account_of(rule, rule.window)}"
        if self._claimed.find((team, name)):
            return
        self._claimed.put((team, name), True)
        if await self._store_client.claim(team, name, booking.window.keep_s or _CLAIMED_S):
            self._webhooks.send(_notice(event, team, booking, balance))

    def note_overrun(self, reservation: BudgetReservation, final: Sequence[Charge]) -> None:
        """Count an exchange that cost more than was reserved for it."""
        for booking, charge in zip(reservation.bookings, final, strict=True):
            over = charge.amount - reservation.held(booking)
            if over > 0 and booking.rule.unit == "usd" and booking.rule.hard is not None:
                self.metrics.overran(reservation.team, by=over / NANOS_PER_USD)
                return

    def _see(self, team: str, booking: Booking, balance: Balance) -> None:
        rule, window = booking.rule, booking.window
        if rule.unit == "usd" and rule.hard is not None and not rule.whom:
            # A rolling window has no end.
            until = inf if window.resets_at is None or window.within else window.resets_at
            self._remaining[team, rule.id] = ((rule.hard - balance.spent) / NANOS_PER_USD, until)


def header_text(text: str) -> str:
    """A text in a form that is allowed in a header."""
    return _UNSAFE.sub("?", text)


def time_text(at: float | None) -> str | None:
    """A time as notices and headers write it; None for never."""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _notice(event: str, team: str, booking: Booking, balance: Balance) -> Notice:
    rule = booking.rule
    unit = NANOS_PER_USD if rule.unit == "usd" else 1
    return Notice(
        rule.webhook,
        event,
        {
            "team": team,
            "budget": rule.id,
            "whom": rule.whom,
            "unit": rule.unit,
            "window": rule.window,
            "spent": balance.spent / unit,
            "soft": None if rule.soft is None else rule.soft / unit,
            "hard": None if rule.hard is None else rule.hard / unit,
            "resets_at": time_text(booking.window.resets_at),
        },
    )
