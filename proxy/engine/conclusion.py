"""The single ending of an exchange, both for requests of clients and for refreshes of prefixes.

The log line of an exchange has named values on one line, and some of them stand in headers of its answer, without
prompt text and without keys.

An exchange is priced and written into the ledger before the client has the last bytes of its answer, so that a crash
cannot make an answer free. When everything is over, the exchange is counted and logged. Each step happens exactly once,
and no step can keep another from happening.

The cost of background responses, batches and runs of assistants is known only after the exchange has ended. The
provider answers before it has done the work, and afterwards reports the usage each time it is asked for the object. The
exchange that made the object is billed, once: its reservation stays, and a bill waits with the object. The first answer
that shows the finished work takes the bill and settles it, on any worker. Reading, changing or deleting an object costs
nothing by itself.

After its end, all followers of exchanges are told.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial

import msgspec

from proxy.engine.custody import Custody
from proxy.engine.exchange import (
    AnswerRecord,
    Arrival,
    Exchange,
    ExchangeOutcome,
    ObjectUse,
    Planned,
    Principal,
    Requested,
    Reservation,
    Settlement,
)
from proxy.engine.headers import ID_HEADER, control_in, decoded, get
from proxy.engine.ports import Follower, Ports
from proxy.kit.modes import Mode
from proxy.kit.secrets import without_keys
from proxy.kit.tasks import Tasks, drain, spawn, suppress_and_log
from proxy.kit.value import dataclass
from proxy.models import Headers, RateLimit
from proxy.models.deployments import ModelTable
from proxy.protocol.account import BATCHES, RESPONSES, Act, Operation
from proxy.protocol.request.demand import Demand
from proxy.protocol.response.outcome import UNTOLD
from proxy.protocol.response.refusal import ContextRefusalOutcome

# The words of a text of the proxy.
_WORD = re.compile(r"[\w.]+")
_UNSAFE = re.compile(r"[^\w.:/@+*-]", re.ASCII)
# A retrieved document is identified by the attributes of its tag.
_ATTRIBUTE = re.compile(r"""\s?([\w.:-]{1,64})=["']([^"']*)["']""")
_MAX_CHARS = 120
# A key that begins in the shown part of a text and ends after it must still be recognised as a key.
_READ_CHARS = 1024


Value = str | int | Decimal


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log: its subject (``about``) and named values. As text, it is ``about name=value ...``. A JSON log
    has a member for each of these values."""

    about: str
    values: Mapping[str, Value]

    def __str__(self) -> str:
        return " ".join((self.about, *(f"{name}={value}" for name, value in self.values.items())))


def exchange_values(exchange: Exchange) -> dict[str, Value]:
    """The result of an exchange, by the names that logs and spans use. Empty values are left out. Texts that a client
    chose are cut and made safe."""
    arrival, answer, planned, settled = exchange.arrival, exchange.answer, exchange.planned, exchange.settlement
    safe = partial(shown, keys=arrival.keys)
    found: dict[str, Value | None] = {
        "id": arrival.id,
        "request_id": arrival.named,
        "method": safe(arrival.method),
        "path": safe(arrival.path),
        "model": safe(exchange.requested.model),
        "deployment": safe(exchange.deployment.name) if exchange.deployment else "",
        "team": safe(exchange.principal.team),
        "status": exchange.status,
        "ending": exchange.ending,
        "error": safe(answer.error_code),
        "why": safe("-".join(_WORD.findall(answer.why))),
        "mode": planned.mode.name.lower(),
        "reason": planned.reason,
        "edits": ",".join(planned.plan.edits) if planned.plan is not None else "",
        "stream": int(exchange.requested.stream),
        "attempts": exchange.attempts,
        "in_bytes": arrival.size,
        "out_bytes": answer.sent_bytes,
        "overhead_ms": _ms(exchange.overhead_s),
        "first_byte_ms": None if answer.first_byte_s is None else _ms(answer.first_byte_s),
        "total_ms": _ms(exchange.total_s),
    }
    if (usage := exchange.billed_usage) is not None:
        found |= {
            "prompt": usage.prompt,
            "read": usage.read,
            "write": usage.write,
            "output": usage.output,
            "estimated": int(usage.estimated),
        }
    if settled is not None and (usage is not None or settled.cost_usd):
        found["cost_usd"] = Decimal(f"{settled.cost_usd:.6f}")
    cause = answer.outcome.cache_cause
    found |= {"cache": planned.result.deviation, "cause": "" if cause == UNTOLD else cause}
    if (broke := planned.result.broke) is not None:
        found |= {
            "break": broke.kind,
            "culprit": shown_piece(f"{broke.culprit_kind}:{broke.culprit}", arrival.keys) if broke.culprit else "",
            "line": broke.line or "",
            "lost": broke.lost,
            "break_usd": Decimal(f"{broke.usd:.6f}"),
        }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def shown(text: str, keys: Sequence[str] = ()) -> str:
    """A text that a client chose, made safe: it cannot forge a log line, and it shows no key that was put into the
    wrong place, in any encoding."""
    read = text[:_READ_CHARS]
    plain = decoded(read)
    safe = without_keys(plain, keys)
    return _UNSAFE.sub("?", (read if safe == plain else safe)[:_MAX_CHARS])


def shown_piece(key: str, keys: Sequence[str] = ()) -> str:
    """The key of a piece, made safe in the same way, with its attributes as ``name:value/name:value``."""
    return shown(_ATTRIBUTE.sub(r"\1:\2/", key[:_READ_CHARS]).replace("/:", ":"), keys)


def _ms(seconds: float) -> Decimal:
    return Decimal(f"{seconds * 1000:.2f}")


# The client gets the answer that its capability profile has for requests that are too large.
_OVER_BUDGET = (ContextRefusalOutcome.EMPTY, ContextRefusalOutcome.ERROR)


def own_headers(exchange: Exchange, theirs: Headers = ()) -> Headers:
    """The headers in which the proxy describes an exchange, in addition to ``theirs``, the upstream's headers. An
    exchange that was never sent upstream has no mode and no reason. An upstream's own request id stays."""
    planned, held, is_sent = exchange.planned, exchange.reservation, exchange.attempts > 0
    # The deployment that serves a request without a model, and what selected it.
    name, by = exchange.deployment.name if exchange.deployment is not None else "", exchange.requested.decided_by
    told = [
        ("x-stratiform-id", exchange.arrival.id),
        (ID_HEADER, exchange.arrival.named or exchange.arrival.id if get(theirs, ID_HEADER) is None else ""),
        ("x-stratiform-mode", planned.mode.name.lower() if is_sent else ""),
        ("x-stratiform-reason", planned.reason if is_sent else ""),
        ("x-stratiform-deployment", f"{name}; by={by}" if is_sent and by and name and not control_in(name) else ""),
        ("x-stratiform-edits", ", ".join(planned.plan.edits if planned.plan is not None else ()) if is_sent else ""),
        ("x-stratiform-prompts", exchange.prompts),
        ("x-stratiform-break", _break(exchange) if is_sent and exchange.asks_break else ""),
        ("x-stratiform-outcome", "over_budget" if any(map(exchange.answer.context_refusals.get, _OVER_BUDGET)) else ""),
        ("x-stratiform-budget-warning", held.notice if held is not None else ""),
    ]
    return [*(header for header in told if header[1]), *(held.rates if held is not None else ())]


def _break(exchange: Exchange) -> str:
    """Why the request breaks the cache, as far as that is known before the answer: ``none`` if nothing is lost."""
    plan = exchange.planned.plan
    if plan is None or plan.in_flight is None:
        return ""
    broke = plan.in_flight.expected_break(plan.predicted)
    if broke is None:
        return "none"
    culprit = shown(f"{broke.culprit_kind}:{broke.culprit}", exchange.arrival.keys)
    line = f"; line={broke.line}" if broke.line else ""
    sizes = f"before={broke.before}; tokens={broke.tokens}; behind={broke.behind}; lost={broke.lost}"
    return f"{broke.kind}; culprit={culprit}{line}; {sizes}; waste={int(broke.is_waste)}"


_log = logging.getLogger("stratiform")
_WORKING = frozenset({"queued", "in_progress", "requires_action", "validating", "finalizing", "cancelling"})
_RUNS = "/runs"


class Conclusion:
    """Ends exchanges. ``book`` is called as soon as everything is known that the ledger needs, and ``end`` when nothing
    more will happen."""

    def __init__(self, ports: Ports, custody: Custody | None = None) -> None:
        self._ports = ports
        self._custody = custody
        self._settling: Tasks = set()

    async def lose(self, exchange: Exchange) -> None:
        """The upstream got a call, and no answer to it has reached the client. The provider bills the call
        nevertheless."""
        await self._weigh(exchange)
        # From here on, a client that leaves does not have this call billed again.
        exchange.lost, exchange.call = self._ports.meter.lose(exchange), None

    async def book(self, exchange: Exchange) -> None:
        """Price the exchange and write it into the ledger. The second call does nothing. The write continues if the
        client leaves in the meantime."""
        exchange.deployment = exchange.called or exchange.deployment
        if exchange.settlement is None and exchange.is_billed:
            await self._weigh(exchange)
        if exchange.settlement is not None:
            return
        # This happens before the client can send its next request, which another worker may get.
        self._learn(exchange)
        defers = self._custody is not None and not exchange.arrival.is_chat and is_deferred(exchange)
        # A deferred exchange costs nothing yet.
        settlement = replace(exchange.lost, usage=exchange.answer.outcome.usage)
        if not defers:
            with suppress_and_log("meter.price"):
                settlement = self._ports.meter.price(exchange)
        exchange.settlement = settlement
        if exchange.reservation is None:
            return
        await asyncio.shield(spawn(self._write(exchange, defers=defers), self._settling))

    async def end(self, exchange: Exchange) -> None:
        """Book the exchange if that is still to be done, count it, and log it. Called once."""
        exchange.total_s = exchange.elapsed_s()
        try:
            await self.book(exchange)
        finally:
            with suppress_and_log("meter.settle"):
                self._ports.meter.settle(exchange)
            if _log.isEnabledFor(logging.INFO):
                with suppress_and_log("log"):
                    _log.info(Line("exchange", exchange_values(exchange)))

    async def aclose(self) -> None:
        """Finish the writes in progress."""
        await drain(self._settling)

    async def _weigh(self, exchange: Exchange) -> None:
        """Count the prompt's tokens for the reservation if the provider has not reported them."""
        usage = exchange.answer.outcome.usage
        if usage is None or not usage.prompt:
            await _contained("admission.weigh", partial(self._ports.admission.weigh, exchange))

    def _learn(self, exchange: Exchange) -> None:
        """Let the planner count an exchange that the upstream accepted."""
        if not exchange.answer.is_accepted:
            return
        plan, usage = exchange.planned.plan, exchange.answer.outcome.usage
        if plan is not None:
            with suppress_and_log("planner.on_completed"):
                exchange.planned.result = self._ports.planner.on_completed(plan, usage, exchange.time())
        inquiries, inquiry = self._ports.inquiries, exchange.inquiry
        if inquiries is not None and inquiry is not None:
            with suppress_and_log("inquiries.learn"):
                inquiries.learn(exchange, inquiry)
        fitted, windows, deployment = exchange.fitted, self._ports.windows, exchange.deployment
        if fitted is not None and windows is not None and deployment is not None:
            with suppress_and_log("windows.settled"):
                windows.settled(deployment, fitted, usage, scope=exchange.principal.scope)

    async def _write(self, exchange: Exchange, *, defers: bool) -> None:
        """Write the settlement and the objects that the exchange made at the same time, because a store writes them in
        one batch."""
        custody, admission, act = self._custody, self._ports.admission, exchange.objects.operation.act
        if exchange.answer.outcome.said is None or act is Act.LIST:
            custody = None
        is_look = act in (Act.TOUCH, Act.UNKNOWN)
        if custody is not None and is_look and not defers:
            await self._settle_owed(custody, exchange)
        settling = _contained("admission.settle", partial(admission.defer if defers else admission.settle, exchange))
        if custody is None or not (defers or is_look or exchange.principal.is_confined):
            await settling
            return
        remember = partial(_remember, custody, exchange, defers=defers)
        await asyncio.gather(settling, _contained("custody.remember", remember))

    async def _settle_owed(self, custody: Custody, shown: Exchange) -> None:
        """If the answer shows that the provider has ended its work, bill the exchange that made the object."""
        with suppress_and_log("admission.settle_later"):
            said = shown.answer.outcome.said
            if said is None or not (said.id and said.status and shown.answer.is_accepted) or said.status in _WORKING:
                return
            bill = await custody.take_bill(shown.principal.team, said.id)
            exchange = owing(bill, shown, self._ports.models) if bill else None
            if exchange is None:
                return
            if exchange.asks_model:
                # Work that was cancelled or has failed reports no usage, and the provider may bill it nevertheless.
                silent_s = max(0.0, shown.time() - exchange.arrival.now)
                exchange.answer.outcome = self._ports.meter.booked(exchange, exchange.answer.outcome, 0, silent_s)
            exchange.settlement = Settlement()
            if exchange.answer.outcome.usage is not None:
                exchange.settlement = self._ports.meter.price(exchange)
            await self._ports.admission.settle_later(exchange)


async def _contained(step: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work. A failure is logged and goes no further. A coroutine that was made before could be left without
    being awaited, because this one may be cancelled before it begins."""
    with suppress_and_log(step):
        await work()


async def _remember(custody: Custody, exchange: Exchange, *, defers: bool) -> None:
    await custody.remember(exchange, bill_of(exchange) if defers else "")


class SettlementRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data needed to settle an exchange on another worker. It holds no text and no key."""

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
    prompt_tokens: int = 0
    """What is booked for the prompt if no usage is ever reported."""
    further: tuple[str, ...] = ()
    """The ids of the deployments of all other models that the request names."""
    rates: tuple[RateLimit, ...] = ()


_BILL = msgspec.json.Decoder(SettlementRecord)


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


def bill_of(exchange: Exchange) -> str:
    """The bill that waits with the object."""
    principal, deployment = exchange.principal, exchange.deployment
    arrival, requested, planned = exchange.arrival, exchange.requested, exchange.planned
    assert deployment is not None
    counted = exchange.reservation.prompt_tokens if exchange.reservation is not None else 0
    bill = SettlementRecord(
        arrival.id, arrival.now, arrival.path, deployment.id, shown(requested.model, arrival.keys), principal.team,
        principal.key_id, principal.user, int(planned.mode), planned.reason, exchange.answer.status, arrival.is_chat,
        requested.demand, counted or arrival.size // 4, tuple(one.id for one in requested.further),
        tuple(principal.rates),
    )  # fmt: skip
    return msgspec.json.encode(bill).decode()


def owing(text: str, shown: Exchange, models: ModelTable) -> Exchange | None:
    """The exchange of a bill, ended as the answer shows. None if its deployment no longer exists."""
    bill = _BILL.decode(text)
    deployment = models.known(bill.deployment)
    if deployment is None or shown.answer.outcome.said is None:
        return None
    return Exchange(
        Arrival("POST", bill.path, bill.at, bill.id, is_chat=bill.is_chat),
        Principal(scope="", team=bill.team, key_id=bill.key_id, user=bill.user, virtual=True, rates=bill.rates),
        Requested(
            bill.model,
            demand=bill.demand,
            further=[one for name in bill.further if (one := models.known(name)) is not None],
        ),
        ObjectUse(Operation(Act.CREATE)),
        deployment,
        Planned(Mode(bill.mode), bill.reason),
        Reservation(bill.id, bill.team, prompt_tokens=bill.prompt_tokens),
        attempts=1,
        answer=AnswerRecord(bill.status, outcome=shown.answer.outcome),
        ending=ExchangeOutcome.COMPLETED,
    )


class Followers:
    """Implements ``proxy.engine.ports.Follower``. If one follower fails, the others still do their work."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self._followers = tuple(followers)

    def lead(self, follower: Follower) -> None:
        """Add a follower that is told of each exchange before the others."""
        self._followers = (follower, *self._followers)

    def ended(self, exchange: Exchange) -> None:
        for follower in self._followers:
            with suppress_and_log("follower.ended"):
                follower.ended(exchange)

    async def aclose(self) -> None:
        for follower in self._followers:
            with suppress_and_log("follower.aclose"):
                await follower.aclose()
