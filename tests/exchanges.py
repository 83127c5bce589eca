"""Exchanges for tests, written only with the names of their figures."""

from dataclasses import fields
from typing import Any

from proxy.engine.exchange import AnswerRecord, Arrival, Exchange, ObjectUse, Planned, Requested, Settlement
from proxy.protocol.response.outcome import Outcome


def make_exchange(method: str = "POST", path: str = "/chat/completions", now: float = 0.0, **given: Any) -> Exchange:
    """An exchange with the given figures, each under its own name."""
    given |= {"method": method, "path": path, "now": now}

    def value(kind: Any) -> Any:
        return kind(**{f.name: given.pop(f.name) for f in fields(kind) if f.name in given})

    outcome = value(Outcome)
    if outcome != Outcome():
        given["outcome"] = outcome
    values = {
        "arrival": value(Arrival), "requested": value(Requested), "objects": value(ObjectUse),
        "planned": value(Planned), "answer": value(AnswerRecord),
    }  # fmt: skip
    return Exchange(**values, **given)


def settled(exchange: Exchange) -> Settlement:
    """The usage and the cost of an exchange that has ended."""
    assert exchange.settlement is not None
    return exchange.settlement
