"""What teams spend, and their hard budgets.

Money is reserved before a request is sent (the most that it can cost), and settled afterwards to what it did cost. The
totals are kept in memory and written through to a ledger (``SpendStore``), so that a restart does not forget them.

A ledger that fails never fails a request on its own account: what could not be written is kept and written later, and
``on_store_error`` decides whether teams with a budget may go on meanwhile (``allow``) or not (``deny``).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from proxy.core.budget import Limit, decide, upper_bound
from proxy.core.prices import Price
from proxy.errors import BudgetExceeded, BudgetUnavailable, Forbidden
from proxy.ports import Deployment, Reservation, SpendStore, StoreError, Subject

_log = logging.getLogger("stratiform.budget")

# A locked file can take seconds to fail: while the ledger is out, it is tried again this often.
_RETRY_S = 5.0
_MAX_UNWRITTEN = 100_000

PriceOf = Callable[[Deployment], Price | None]


@dataclass(slots=True)
class _Account:
    """One team's money. ``spent_usd`` is what the ledger said last and what it has not got yet."""

    limit: Limit | None
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class _Spend:
    exchange_id: str
    team: str
    usd: float
    at: float


class Budgets:
    """The accounts of all teams. Teams that are not named here are neither limited nor recorded."""

    def __init__(
        self,
        teams: Mapping[str, Limit | None],
        store: SpendStore,
        price_of: PriceOf,
        on_store_error: Literal["allow", "deny"] = "allow",
    ) -> None:
        self._accounts = {team: _Account(limit) for team, limit in teams.items()}
        self._store = store
        self._price_of = price_of
        self._denies = on_store_error == "deny"
        self._unwritten: deque[_Spend] = deque()
        self._turn = asyncio.Lock()
        self._retry_at: float | None = None
        self.store_errors = 0

    async def load(self) -> None:
        """Read every budgeted team's total ahead of the first request. A failure is logged, and tried again then."""
        for team, account in self._accounts.items():
            if account.limit is not None and self._may_try():
                async with self._turn:
                    await self._read(account, team)

    async def reserve(
        self,
        exchange_id: str,
        subject: Subject,
        deployment: Deployment,
        prompt_tokens: int,
        max_output_tokens: int | None,
    ) -> Reservation:
        """Set aside the most that a request can cost. Raises BudgetExceeded, BudgetUnavailable, Forbidden."""
        account = self._accounts.get(subject.team)
        if account is None or account.limit is None:
            return Reservation(exchange_id, subject.team)
        await self._make_ready(account, subject.team)
        usd = self._estimate(account.limit, deployment, prompt_tokens, max_output_tokens)
        # No await from here on: two requests cannot both take the last of the money.
        refusal = decide(account.limit, account.spent_usd, account.reserved_usd, usd)
        if refusal:
            raise BudgetExceeded(f"The budget of team '{subject.team}' does not allow this request: {refusal}.")
        account.reserved_usd += usd
        return Reservation(exchange_id, subject.team, usd)

    async def settle(self, reservation: Reservation, cost_usd: float, now: float) -> None:
        """Replace a reservation by what the exchange cost, and record that. Never raises but for cancellation."""
        account = self._accounts.get(reservation.team)
        if account is None:
            return
        account.reserved_usd = max(0.0, account.reserved_usd - reservation.usd)
        if cost_usd <= 0:
            return
        account.spent_usd += cost_usd
        if len(self._unwritten) >= _MAX_UNWRITTEN:
            _log.error("the spend store has been out for %d exchanges: the oldest is forgotten", _MAX_UNWRITTEN)
            self._unwritten.popleft()
        self._unwritten.append(_Spend(reservation.exchange_id, reservation.team, cost_usd, now))
        await self._write()

    def remaining(self) -> dict[str, float]:
        """USD left to each team with a budget, as far as its total is known; negative where it was overdrawn."""
        return {
            team: account.limit.usd - account.spent_usd
            for team, account in self._accounts.items()
            if account.limit is not None and account.is_read
        }

    async def aclose(self) -> None:
        """Write what is left, and release the ledger."""
        self._retry_at = None
        await self._write()
        try:
            await self._store.aclose()
        except StoreError as error:
            self._failed("closed", error)

    def _estimate(self, limit: Limit, deployment: Deployment, prompt_tokens: int, max_output: int | None) -> float:
        if prompt_tokens <= 0:
            # A path without a prompt (files, the list of models, ...), or an upload that is not read here.
            return 0.0
        price = self._price_of(deployment)
        if price is None:
            raise Forbidden(
                f"The price of model '{deployment.name}' is not known, so a budget cannot hold for it. "
                "Add it to `stratiform.prices` in the proxy's configuration.",
                code="model_price_unknown",
            )
        output = limit.assumed_output_tokens if max_output is None else max_output
        return upper_bound(price, prompt_tokens, output)

    async def _make_ready(self, account: _Account, team: str) -> None:
        """Have the team's total. While the ledger is out, it is tried now and then."""
        if account.is_read and self._retry_at is None:
            return
        if self._denies or not account.is_read or not self._turn.locked():
            async with self._turn:
                if self._may_try() and not (account.is_read and self._retry_at is None):
                    await self._read(account, team)
        if self._denies and (self._retry_at is not None or not account.is_read):
            raise BudgetUnavailable(f"The budget of team '{team}' cannot be checked: the spend store does not answer.")

    async def _read(self, account: _Account, team: str) -> None:
        try:
            total = await self._store.spent(team)
        except StoreError as error:
            self._failed("read", error)
            return
        account.spent_usd = total + sum(spend.usd for spend in self._unwritten if spend.team == team)
        account.is_read = True
        self._retry_at = None
        await self._flush()

    async def _write(self) -> None:
        async with self._turn:
            await self._flush()

    async def _flush(self) -> None:
        """Hand over what is not written yet, oldest first. Writing one twice is harmless: the ledger knows its id."""
        while self._unwritten and self._may_try():
            spend = self._unwritten[0]
            try:
                total = await self._store.add_spend(spend.exchange_id, spend.team, spend.usd, spend.at)
            except StoreError as error:
                self._failed("written", error)
                return
            self._unwritten.popleft()
            self._retry_at = None
            self._correct(spend.team, total)

    def _correct(self, team: str, total: float) -> None:
        """Follow the ledger, which another process may write, too."""
        account = self._accounts[team]
        account.spent_usd = total + sum(spend.usd for spend in self._unwritten if spend.team == team)
        account.is_read = True

    def _may_try(self) -> bool:
        return self._retry_at is None or asyncio.get_running_loop().time() >= self._retry_at

    def _failed(self, what: str, error: StoreError) -> None:
        self.store_errors += 1
        self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
        meanwhile = "teams with a budget are refused" if self._denies else "budgets count in memory only"
        _log.error("the spend store cannot be %s (%s); until it answers, %s", what, error, meanwhile)
