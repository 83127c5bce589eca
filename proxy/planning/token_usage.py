"""Reports what a request used: in the answer for a client that asks for it, and in a terminal for the operator.

A report holds figures and the names of tiers and kinds, and no text.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proxy.aside import Aside
from proxy.core.layout.inventory import Inventory
from proxy.core.layout.tiers import ENTRY_N, Tier
from proxy.core.reasons import Reason
from proxy.core.response.usage import Usage
from proxy.core.sessions.session_record import SessionSums, added
from proxy.core.structured.blocks.breakdown import hit_rate
from proxy.core.wire.surrogates import printable
from proxy.engine.exchange import Exchange, Settlement
from proxy.engine.suppress import suppress_and_log
from proxy.planning.model_facts import ModelFacts
from proxy.planning.session_book import measure_of
from proxy.planning.session_rows import sums_of
from proxy.tasks import Tasks, drain, spawn

_MOST_AT_ONCE = 20
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
            session = added(before, sums_of(exchange)) if before.requests else sums_of(exchange)
        return self._report(exchange, session)

    async def _report(self, exchange: Exchange, session: SessionSums | None) -> dict[str, Any]:
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
            "session": None if session is None else _session(session),
            "tiers": _tiers(inventory),
            "empty_tiers": inventory.empty_tiers,
        }


class UsageFollower:
    """Implements ``Follower`` of the engine. ``show`` is called with the report of each chat exchange of a client. If
    exchanges come faster than they can be measured, some are left out."""

    def __init__(self, reports: TokenUsage, show: Callable[[Mapping[str, Any]], None]) -> None:
        self._reports = reports
        self._show = show
        self._tasks: Tasks = set()

    def returned(self, session: str) -> None:
        """There is nothing to do before the exchange ends."""

    def ended(self, exchange: Exchange) -> None:
        is_clients = exchange.arrival.is_chat and exchange.planned.reason != Reason.KEEP_ALIVE
        if exchange.answer.is_accepted and is_clients and len(self._tasks) < _MOST_AT_ONCE:
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


def _session(sums: SessionSums) -> dict[str, Any]:
    counted = {"requests": sums.requests, "empty_tiers": sums.empty_tiers}
    return counted | _used(sums.usage, sums.cost_usd, sums.saved_usd)


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
