"""Exchanges whose cost is known after they have ended: background responses, batches, and runs of assistants.

The provider answers such a request before it has done the work, and tells the usage whenever it is asked for the object
afterwards, as often as that may be. The exchange that made the object is the one that is billed, once: its reservation
stands, a bill waits with the object, and the first answer that shows the work done takes the bill and settles it, on
whichever worker. To read, change or delete an object costs nothing by itself.
"""

import msgspec

from proxy.core.account.objects import BATCHES, RESPONSES, Act, Operation
from proxy.core.modes import Mode
from proxy.core.request.demand import Demand
from proxy.engine.exchange import (
    AnswerRecord,
    Arrival,
    Exchange,
    ExchangeOutcome,
    ObjectUse,
    Planned,
    Requested,
)
from proxy.ports import Models, Principal

_WORKING = frozenset({"queued", "in_progress", "requires_action", "validating", "finalizing", "cancelling"})
_RUNS = "/runs"


class Bill(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is needed to settle an exchange on another worker: no text, and no key."""

    id: str
    at: float
    path: str
    deployment: str
    model: str
    team: str
    key_id: str = ""
    user: str = ""
    mode: int = 0
    reason: str = ""
    status: int = 200
    is_chat: bool = False
    demand: Demand = Demand()


_BILL = msgspec.json.Decoder(Bill)


def is_deferred(exchange: Exchange) -> bool:
    """Whether the exchange made an object on which the provider still works."""
    said, operation = exchange.answer.outcome.said, exchange.objects.operation
    has_made = exchange.arrival.method == "POST" and exchange.answer.is_accepted and operation.act is not Act.TOUCH
    if said is None or not said.id or said.status not in _WORKING or not has_made:
        return False
    if operation.family == RESPONSES:
        return said.is_background or said.status == "queued"
    return operation.family == BATCHES or (
        operation.act is Act.UNKNOWN and exchange.arrival.path.rstrip("/").endswith(_RUNS)
    )


def shows_end(exchange: Exchange) -> bool:
    """Whether the answer shows an object on which the provider has ended its work."""
    said = exchange.answer.outcome.said
    is_look = exchange.objects.operation.act in (Act.TOUCH, Act.UNKNOWN) and exchange.answer.is_accepted
    if said is None or not is_look or not said.id or not said.status:
        return False
    return said.status not in _WORKING


def bill_of(exchange: Exchange) -> str:
    """The bill that waits with the object."""
    principal, deployment = exchange.admitted, exchange.deployment
    arrival, requested, planned = exchange.arrival, exchange.requested, exchange.planned
    assert deployment is not None
    bill = Bill(
        arrival.id, arrival.now, arrival.path, deployment.id, requested.model, principal.team, principal.key_id,
        principal.user, int(planned.mode), planned.reason, exchange.answer.status, arrival.is_chat, requested.demand,
    )  # fmt: skip
    return msgspec.json.encode(bill).decode()


def owing(text: str, shown: Exchange, models: Models) -> Exchange | None:
    """The exchange that a bill is for, ended as the answer shows; None where its deployment is gone."""
    bill = _BILL.decode(text)
    deployment = models.known(bill.deployment)
    if deployment is None or shown.answer.outcome.said is None:
        return None
    return Exchange(
        Arrival("POST", bill.path, bill.at, bill.id, is_chat=bill.is_chat),
        Principal(scope="", team=bill.team, key_id=bill.key_id, user=bill.user, virtual=True),
        Requested(bill.model, demand=bill.demand),
        ObjectUse(Operation(Act.CREATE)),
        deployment,
        Planned(Mode(bill.mode), bill.reason),
        attempts=1,
        answer=AnswerRecord(bill.status, outcome=shown.answer.outcome),
        ending=ExchangeOutcome.COMPLETED,
    )
