"""What the ledger says about requests: how many there were, and how much of them came out of caches.

The ledger knows no sessions. A session is estimated to begin with a request of a user that is the first one, that comes
more than an hour after the one before, or that finds nothing in the cache.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.cli.admin_client import Ask, ledger_entries, run_with
from proxy.prompting.rules import Whose

DAYS = 30
"""So much of the ledger is read."""
_PAUSE_S = 3600.0
_CACHE_LIFE_S = 300.0
_OK = 200
_PAGE = "10000"


@dataclass(slots=True)
class Traffic:
    """The requests of one model, team and key. ``warm`` ones found something in the cache, ``read_tokens`` altogether;
    ``open_s`` is how long the sessions were open, all together."""

    requests: int = 0
    warm: int = 0
    sessions: int = 0
    open_s: float = 0.0
    read_tokens: int = 0
    write_5m_tokens: int = 0
    write_1h_tokens: int = 0
    spent_usd: float = 0.0

    @property
    def read_per_warm_request(self) -> float:
        """How many tokens a request finds in the cache, if it finds any."""
        return self.read_tokens / self.warm if self.warm else 0.0


@dataclass(slots=True)
class LedgerTraffic:
    """Takes the entries of the ledger in their order."""

    by_whose: dict[Whose, Traffic] = field(default_factory=dict)
    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry. One without an answer of a model, such as a refusal or an embedding, does not count."""
        if entry["status"] != _OK or not entry["output_tokens"]:
            return
        whose = Whose(entry["model"], entry["team"], entry["key_id"])
        traffic = self.by_whose.setdefault(whose, Traffic())
        at, last = entry["at"], self._last.get((*whose, entry["user"]))
        if last is None or at - last > _PAUSE_S or not entry["read_tokens"]:
            traffic.sessions += 1
            traffic.open_s += _CACHE_LIFE_S
        else:
            traffic.open_s += at - last
        self._last[(*whose, entry["user"])] = at
        traffic.requests += 1
        traffic.warm += entry["read_tokens"] > 0
        traffic.read_tokens += entry["read_tokens"]
        traffic.write_5m_tokens += entry["write_5m_tokens"]
        traffic.write_1h_tokens += entry["write_1h_tokens"]
        traffic.spent_usd += entry["cost_usd"]

    def __iter__(self) -> Iterator[tuple[Whose, Traffic]]:
        """The traffic by model, team and key, the dearest first."""
        return iter(sorted(self.by_whose.items(), key=lambda pair: (-pair[1].spent_usd, pair[0])))


def read_traffic(where: Namespace) -> LedgerTraffic:
    """The requests in the ledger of a store, or of a running proxy. Raises ConfigError."""
    traffic = LedgerTraffic()

    async def read(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": f"{DAYS}d", "limit": _PAGE}):
            traffic.add(entry)

    run_with(where, read)
    return traffic
