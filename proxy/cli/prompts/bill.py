"""An estimate of what a change of prompts would have done to the bill of the requests in the ledger.

Each request pays for the growth of the composed texts. In the system text, the price is that of a cache read if the
request found something in the cache, and that of a fresh prompt if it did not. Around the newest user message, it is
the price of a fresh prompt. A fresh prompt is written to the cache if the traffic has cache writes; else it costs the
input price.

Each session that is open at the change has its prefix written again once, from the changed token on. The cost is that
of the tokens that a request usually finds in the cache, without the tokens in front of the changed one, at the price of
a fresh prompt instead of a read.

The ledger knows no sessions. A session is estimated to begin with a user's first request, with a request that comes
more than an hour after the one before, or with a request that finds nothing in the cache.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.admin.spend import ledger_entries
from proxy.cli.admin_client import Ask, run_with
from proxy.cli.prompts.variants import Difference
from proxy.core.money.prices import Price
from proxy.prompting.rules import Whose

DAYS = 30
"""How many days of the ledger are read."""
_PAUSE_S = 3600.0
_CACHE_LIFE_S = 300.0
_OK = 200
_PAGE = "10000"
_PERIOD_S = DAYS * 86400.0
_SUMMED = ("read_tokens", "write_5m_tokens", "write_1h_tokens", "cost_usd")
_TOTALS = ("requests_usd", "once_usd", "once_usd_at_most")


@dataclass(slots=True)
class Traffic:
    """The requests of the ledger, summed up by model, team and key. Besides the ledger's own sums it has the number of
    ``requests``, the number of ``warm`` ones (they found something in the cache), the number of ``sessions``, and how
    long the sessions were open (``open_s``, in seconds)."""

    by_whose: dict[Whose, Counter[str]] = field(default_factory=dict)
    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry. Entries come in their order. An entry without an answer of a model, such as a refusal or an
        embedding, does not count."""
        if entry["status"] != _OK or not entry["output_tokens"]:
            return
        whose = Whose(entry["model"], entry["team"], entry["key_id"])
        at, last = entry["at"], self._last.get((*whose, entry["user"]))
        self._last[(*whose, entry["user"])] = at
        is_first = last is None or at - last > _PAUSE_S or not entry["read_tokens"]
        open_s = _CACHE_LIFE_S if is_first or last is None else at - last
        of_one = self.by_whose.setdefault(whose, Counter())
        of_one.update({name: entry[name] for name in _SUMMED})
        of_one.update({"requests": 1, "warm": entry["read_tokens"] > 0, "sessions": is_first, "open_s": open_s})


def read_traffic(where: Namespace) -> Traffic:
    """The requests in the ledger of a store, or of a running proxy. Raises ConfigError."""
    traffic = Traffic()

    async def read(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": f"{DAYS}d", "limit": _PAGE}):
            traffic.add(entry)

    run_with(where, read)
    return traffic


def estimated(
    traffic: Traffic, change: Callable[[Whose], Difference], price_of: Callable[[str], Price | None]
) -> dict[str, Any]:
    """The bill of the change for this traffic, as JSON values: a line for each model, team and key, the most expensive
    first, and the sums of all. ``change`` gives the difference for the requests of a model, team and key. ``price_of``
    gives the price of a model's tokens."""
    ordered = sorted(traffic.by_whose.items(), key=lambda pair: (-pair[1]["cost_usd"], pair[0]))
    lines = [_line(whose, one, change(whose), price_of(whose.model)) for whose, one in ordered]
    return {
        **{name: sum(line[name] or 0.0 for line in lines) for name in _TOTALS},
        "requests_without_price": sum(line["requests"] for line in lines if line["requests_usd"] is None),
        "lines": lines,
    }


def _line(whose: Whose, of_one: Mapping[str, Any], change: Difference, price: Price | None) -> dict[str, Any]:
    """The change for one model, team and key, in USD: the cost of the changed size of all requests, and the cost for
    one session that meets the change (both None if the price is not known). It also has the one-time cost for the
    sessions that are open at a usual time, and the most that it costs, if every session meets the change."""
    system_tokens = change.new.sizes.system - change.old.sizes.system
    user_tokens = change.new.sizes.user - change.old.sizes.user
    requests_usd = session_usd = None
    if price is not None:
        fresh, warm, requests = _fresh(of_one, price), of_one["warm"], of_one["requests"]
        of_system = warm * price.read + (requests - warm) * fresh
        requests_usd = system_tokens * of_system + user_tokens * requests * fresh
        found = of_one["read_tokens"] / warm if warm else 0.0
        lost = 0.0 if change.kept_tokens is None else max(0.0, found - change.kept_tokens)
        session_usd = lost * max(0.0, fresh - price.read)
    open_sessions = of_one["open_s"] / _PERIOD_S
    return {
        "model": whose.model, "team": whose.team, "key": whose.key_id,
        "requests": of_one["requests"], "sessions": of_one["sessions"], "open_sessions": open_sessions,
        "spent_usd": of_one["cost_usd"], "system_tokens": system_tokens, "user_tokens": user_tokens,
        "requests_usd": requests_usd, "session_usd": session_usd,
        "once_usd": (session_usd or 0.0) * open_sessions,
        "once_usd_at_most": (session_usd or 0.0) * of_one["sessions"],
    }  # fmt: skip


def _fresh(of_one: Mapping[str, Any], price: Price) -> float:
    """The price of a token that is not in the cache, in USD."""
    if of_one["write_1h_tokens"] > of_one["write_5m_tokens"]:
        return price.write_1h
    return price.write_5m if of_one["write_5m_tokens"] else price.input
