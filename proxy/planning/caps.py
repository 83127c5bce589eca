"""What each team spends on calls that the proxy makes itself, and may not exceed in a day."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.money.budget import nanos

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class DailyTerms:
    """What the operator allows. ``teams`` have a cap of their own, in USD a day (UTC); 0: never. ``own_keys``: also for
    clients that bring the provider's key along, who pay for it themselves."""

    usd_per_day: float = 1.0
    teams: Mapping[str, float] = field(default_factory=dict)
    own_keys: bool = False


class Caps:
    """What each team spent today, and may not exceed. In this process: each has its own share."""

    def __init__(self, terms: DailyTerms) -> None:
        self._terms = terms
        self._day = -1
        self._spent: dict[str, int] = {}

    def limit(self, team: str) -> int:
        """Nano-dollars a day."""
        return nanos(self._terms.teams.get(team, self._terms.usd_per_day))

    def take(self, team: str, most: int, now: float) -> bool:
        """Set the most that a call can cost aside, where it fits."""
        day = int(now // _DAY_S)
        if day != self._day:
            self._day, self._spent = day, {}
        spent = self._spent.get(team, 0)
        if spent + most > self.limit(team):
            return False
        self._spent[team] = spent + most
        return True

    def settle(self, team: str, most: int, cost: int) -> None:
        """Replace it by what the call did cost."""
        self._spent[team] = max(0, self._spent.get(team, 0) - most) + cost
