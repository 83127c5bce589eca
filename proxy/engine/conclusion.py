"""The one ending of an exchange, for requests of clients and for refreshes of prefixes alike.

An exchange is priced and written into the ledger before the client has the last bytes of its answer, so that a crash
cannot make an answer free. When everything is over, the exchange is counted and logged. Each step happens exactly once,
and no step can keep another from happening.
"""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace

from proxy.core.account.objects import Act
from proxy.engine.access_log import exchange_line
from proxy.engine.exchange import Exchange, Settlement
from proxy.engine.objects.custody import Custody, has_news
from proxy.engine.objects.deferred import bill_of, is_deferred, owing, shows_end
from proxy.engine.ports import Ports
from proxy.engine.suppress import suppress_and_log
from proxy.ports import Deployment
from proxy.tasks import Tasks, drain, spawn

_log = logging.getLogger("stratiform")


class Conclusion:
    """Ends exchanges: ``book`` as soon as all is known that the ledger needs, ``end`` when nothing more will happen."""

    def __init__(self, ports: Ports, custody: Custody | None = None) -> None:
        self._ports = ports
        self._custody = custody
        self._settling: Tasks = set()

    async def lose(self, exchange: Exchange) -> None:
        """The upstream got a call, and no answer to it has reached the client: the provider bills it nevertheless."""
        await self._weigh(exchange)
        exchange.lost = self._ports.meter.lose(exchange)

    async def may_repeat(self, exchange: Exchange) -> bool:
        """Whether the limits that hold for an exchange leave room for another attempt beside what was lost."""
        is_new = exchange.lost == Settlement()
        return is_new or await self._ports.admission.extend(exchange, exchange.lost)

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """Count a call that goes out to the deployment. Raises RateLimited where its own limits leave no room."""
        await self._ports.admission.take_turn(exchange, deployment)

    async def book(self, exchange: Exchange) -> None:
        """Price the exchange and write it into the ledger. The second call does nothing. The writing goes on if the
        client leaves meanwhile."""
        if exchange.settlement is None and exchange.is_billed:
            await self._weigh(exchange)
        if exchange.settlement is not None:
            return
        # Before the client can send its next request, which another worker may get.
        self._learn(exchange)
        exchange.settlement = self._settlement(exchange)
        if exchange.reservation is None:
            return
        if self._ports.admission.is_immediate:
            # What never waits cannot be cut short either: a task would cost more than the work.
            await self._write(exchange)
        else:
            await asyncio.shield(spawn(self._write(exchange), self._settling))

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
                    _log.info(exchange_line(exchange))

    async def aclose(self) -> None:
        """Finish what is being written."""
        await drain(self._settling)

    async def _weigh(self, exchange: Exchange) -> None:
        """See to it that the prompt's tokens are known, where the provider has not said them."""
        if exchange.answer.outcome.usage is None:
            await _contained("admission.weigh", self._ports.admission.weigh(exchange))

    def _learn(self, exchange: Exchange) -> None:
        """Let the planner count an exchange that the upstream took."""
        plan = exchange.planned.plan
        if plan is not None and exchange.answer.is_accepted:
            with suppress_and_log("planner.on_completed"):
                usage = exchange.answer.outcome.usage
                result = self._ports.planner.on_completed(plan, usage, exchange.time())
                exchange.planned = replace(exchange.planned, result=result)
        inquiries, inquiry = self._ports.inquiries, exchange.inquiry
        if inquiries is not None and inquiry is not None and exchange.answer.is_accepted:
            with suppress_and_log("inquiries.learn"):
                inquiries.learn(exchange, inquiry)
        fitted, windows, deployment = exchange.fitted, self._ports.windows, exchange.deployment
        if fitted is not None and windows is not None and deployment is not None and exchange.answer.is_accepted:
            with suppress_and_log("windows.settled"):
                windows.settled(deployment, fitted, exchange.answer.outcome.usage, scope=exchange.admitted.scope)

    def _settlement(self, exchange: Exchange) -> Settlement:
        """What the exchange used and cost. One that is deferred costs nothing yet."""
        if self._custody is None or not is_deferred(exchange):
            with suppress_and_log("meter.price"):
                return self._ports.meter.price(exchange)
        return replace(exchange.lost, usage=exchange.answer.outcome.usage)

    async def _write(self, exchange: Exchange) -> None:
        """Write the settlement, and what the exchange has made, all at once: a store writes together what comes
        together."""
        custody, outcome = self._custody, exchange.answer.outcome
        if custody is not None and is_deferred(exchange):
            await asyncio.gather(
                _contained("admission.defer", self._ports.admission.defer(exchange)),
                _contained("custody.remember", custody.remember(exchange, bill_of(exchange))),
            )
            return
        if custody is None or outcome.said is None or exchange.objects.operation.act is Act.LIST:
            await self._settle(exchange)
            return
        if shows_end(exchange):
            await self._settle_owed(custody, exchange)
        if has_news(exchange):
            await asyncio.gather(self._settle(exchange), _contained("custody.remember", custody.remember(exchange)))
        else:
            await self._settle(exchange)

    async def _settle_owed(self, custody: Custody, shown: Exchange) -> None:
        """The answer shows that the provider has ended its work: whoever made the object is billed now."""
        with suppress_and_log("admission.settle_later"):
            said = shown.answer.outcome.said
            assert said is not None
            bill = await custody.take_bill(shown.admitted.team, said.id)
            exchange = owing(bill, shown, self._ports.models) if bill else None
            if exchange is None:
                return
            exchange.settlement = Settlement()
            if exchange.answer.outcome.usage is not None:
                exchange.settlement = self._ports.meter.price(exchange)
            await self._ports.admission.settle_later(exchange)

    async def _settle(self, exchange: Exchange) -> None:
        await _contained("admission.settle", self._ports.admission.settle(exchange))


async def _contained(step: str, work: Awaitable[None]) -> None:
    """Do the work; a failure of it is logged, and goes no further."""
    with suppress_and_log(step):
        await work
