"""The spend ledger in memory: forgotten at the end of the process."""

from collections import defaultdict

_REMEMBERED = 100_000


class MemoryStore:
    """A SpendStore that never fails."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._seen: dict[str, None] = {}

    async def add_spend(self, exchange_id: str, team: str, usd: float, at: float) -> float:
        """Record one exchange; the team's total after it."""
        if exchange_id not in self._seen:
            if len(self._seen) >= _REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._seen[exchange_id] = None
            self._totals[team] += usd
        return self._totals[team]

    async def spent(self, team: str) -> float:
        """The team's total in USD."""
        return self._totals.get(team, 0.0)

    async def aclose(self) -> None:
        """Nothing to release."""
