"""Renews the reservations of running exchanges. Has the store bill the reservations of dead workers as they stand."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from proxy.ports import Clock, StoreError
from proxy.storage.port import Charge, Reserve, Store
from proxy.telemetry.metrics import Metrics

_FORGET_EVERY_S = 3600.0

_log = logging.getLogger("stratiform.store")


class Leases:
    """The reservations of this worker's exchanges, and the regular work on reservations and old entries."""

    def __init__(
        self, store: Store, clock: Clock, metrics: Metrics, lease_s: float, keep_entries_s: float | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._lease_s = lease_s
        self._keep_entries_s = keep_entries_s
        # For each exchange: its team, and the charges that the store has reserved for it.
        self._running: dict[str, tuple[str, Sequence[Charge]]] = {}
        self._forgotten_at = -_FORGET_EVERY_S

    def until(self, for_s: float | None = None) -> float:
        """The time at which a reservation that is made or renewed now expires."""
        return self._clock.now() + (self._lease_s if for_s is None else for_s)

    def begins(self, ask: Reserve, held: Sequence[Charge] = ()) -> None:
        """Note that an exchange runs. ``held`` are the charges that the store has reserved for it: none if its
        reservation is put off."""
        self._running[ask.exchange_id] = (ask.team, held)

    def extended(self, ask: Reserve) -> Reserve:
        """The reservation, if it is made late. If its exchange still runs, it lasts as long as any new reservation.
        Otherwise it keeps its own expiry time, and is billed."""
        return replace(ask, expires_at=self.until()) if ask.exchange_id in self._running else ask

    def made(self, ask: Reserve) -> None:
        """Note that a reservation was made late."""
        if ask.exchange_id in self._running:
            self.begins(ask, ask.charges)

    def ended(self, exchange_id: str) -> Sequence[Charge]:
        """Note that an exchange has ended, so its reservation is not renewed any more. Returns the charges that the
        store has reserved for it."""
        _, held = self._running.pop(exchange_id, ("", ()))
        return held

    async def look_after(self) -> None:
        """Renew reservations of running exchanges, bill expired ones, and delete entries whose retention is over. A
        failure for one team does not stop the others. Raises StoreError."""
        failure: StoreError | None = None
        teams: dict[str, list[str]] = {}
        for exchange_id, (team, _) in self._running.items():
            teams.setdefault(team, []).append(exchange_id)
        for team, exchange_ids in teams.items():
            try:
                await self._store.renew(team, exchange_ids, self.until())
            except StoreError as error:
                if failure is not None:  # a second failure is the store's, not the team's
                    raise
                failure = error
        if expired := await self._store.expire(self._clock.now()):
            self._metrics.reservations_expired(by=expired)
            _log.warning("%d reservations of workers that died were billed as they stood", expired)
        await self._forget()
        if failure is not None:
            raise failure

    async def _forget(self) -> None:
        now = self._clock.now()
        if self._keep_entries_s is None or now < self._forgotten_at + _FORGET_EVERY_S:
            return
        await self._store.forget_entries(now - self._keep_entries_s)
        self._forgotten_at = now
