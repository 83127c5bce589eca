"""The ledger's entry for an exchange: its sender, model, time and mode, how it ended, and what it cost."""

from collections.abc import Mapping
from typing import Any

from proxy.core.money.budget import Estimate, nanos
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage
from proxy.core.secrets.redaction import without_keys, without_shapes
from proxy.engine.exchange import Exchange, ExchangeOutcome, Settlement
from proxy.ports import Deployment
from proxy.storage.port import LedgerEntry
from proxy.telemetry.metrics import mode_label

LOST = "lost"
"""The ending of an exchange whose worker died."""
DEFERRED = "deferred"
"""The ending of an exchange that the provider continued in the background, and about which nobody asked again."""

_MOST_CHARS = 256
_NO_USAGE = Usage(0, 0)


def settled_entry(exchange: Exchange) -> LedgerEntry:
    """The entry of an exchange that has ended."""
    usage, settled = exchange.billed_usage or _NO_USAGE, exchange.settlement or Settlement()
    broke = exchange.planned.result.broke
    return _entry(
        exchange,
        exchange.deployment,
        status=exchange.answer.status,
        ending=(exchange.ending or ExchangeOutcome.HUNG_UP).value,
        read_tokens=usage.read,
        write_5m_tokens=usage.write_5m,
        write_1h_tokens=usage.write_1h,
        plain_tokens=usage.plain,
        output_tokens=usage.output,
        cost=nanos(settled.cost_usd),
        saved=nanos(settled.saved_usd),
        break_kind=broke.kind if broke is not None else "",
        break_cost=nanos(broke.usd) if broke is not None else 0,
        provider_cause=cause if (cause := exchange.answer.outcome.cache_cause) != UNTOLD else "",
        latency_ms=round(exchange.elapsed_s() * 1000),
        estimated=usage.estimated,
    )


def lost_entry(exchange: Exchange, deployment: Deployment, amounts: Mapping[str, Estimate]) -> LedgerEntry:
    """The entry of an exchange whose worker dies before it settles: the reservation is the bill."""
    return _entry(
        exchange,
        deployment,
        ending=LOST,
        plain_tokens=amounts["tokens"].expected,
        cost=amounts["usd"].most,
        estimated=True,
    )


def _entry(exchange: Exchange, deployment: Deployment | None, **of_its_end: Any) -> LedgerEntry:
    principal = exchange.admitted
    return LedgerEntry(
        exchange_id=exchange.arrival.id,
        at=exchange.arrival.now,
        team=principal.team,
        key_id=principal.key_id,
        user=_kept(principal.user),
        model=_kept(without_keys(deployment.name)) if deployment is not None else "",
        mode=mode_label(exchange.planned.mode),
        reason=exchange.planned.reason,
        **of_its_end,
    )


def _kept(text: str) -> str:
    """A text that a client may have chosen, in a form that the ledger can keep. Half of a surrogate pair is replaced,
    and everything that looks like a key is removed."""
    return without_shapes(text[:_MOST_CHARS]).encode("utf-8", "replace").decode()
