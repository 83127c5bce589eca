"""Describes calls that no place takes, for the log: how many, what they cost, and which. It shows no client's text and
no key."""

from collections.abc import Iterator, Sequence

from proxy.core.money.budget import NANOS_PER_USD
from proxy.storage.port import PutOff, Settle

_MOST_NAMED = 1000
_A_LINE = 20


def lines_of_lost(calls: Sequence[PutOff]) -> Iterator[str]:
    """Lines for a log; none where nothing is lost."""
    if not calls:
        return
    nanos = sum(call.entry.cost for call in calls if isinstance(call, Settle))
    worth = f"${nanos / NANOS_PER_USD:.6f}"
    yield f"{len(calls)} calls to the store, worth {worth}, cannot be written anywhere: they are lost"
    for start in range(0, min(len(calls), _MOST_NAMED), _A_LINE):
        yield "lost: " + ", ".join(said(call) for call in calls[start : min(start + _A_LINE, _MOST_NAMED)])
    if len(calls) > _MOST_NAMED:
        yield f"lost: {len(calls) - _MOST_NAMED} more"


def said(call: PutOff) -> str:
    """Exchange, team and cost."""
    cost = f" ${call.entry.cost / NANOS_PER_USD:.6f}" if isinstance(call, Settle) else ""
    return f"{call.exchange_id} of {call.team}{cost}"
