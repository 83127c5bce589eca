"""The end of an exchange as others must know it before its client does: its bill, and whose the objects are it made."""

import asyncio

from proxy.core.account.objects import Act
from proxy.engine.custody import Custody, has_news
from proxy.engine.deferred import bill_of, is_deferred, owing, shows_end
from proxy.engine.exchange import Admission, Exchange, Meter
from proxy.engine.suppress import suppress_and_log
from proxy.ports import Models


class Conclusion:
    """Prices an exchange, settles or defers it, and remembers what it made. Once for each."""

    def __init__(self, admission: Admission, meter: Meter, models: Models, custody: Custody | None) -> None:
        self._admission = admission
        self._meter = meter
        self._models = models
        self._custody = custody

    def price(self, exchange: Exchange) -> None:
        """What the exchange cost. One that is deferred costs nothing yet."""
        if self._custody is not None and is_deferred(exchange):
            exchange.is_priced = True
            return
        with suppress_and_log("meter.price"):
            self._meter.price(exchange)

    async def conclude(self, exchange: Exchange) -> None:
        """Have the end written, all of it at once: a store writes together what comes together."""
        custody = self._custody
        if custody is None:
            await self._settle(exchange)
            return
        if is_deferred(exchange):
            await asyncio.gather(self._defer(exchange), self._remember(custody, exchange, bill_of(exchange)))
            return
        if exchange.said is None or exchange.operation.act is Act.LIST:
            await self._settle(exchange)
            return
        if shows_end(exchange):
            await self._settle_owed(custody, exchange)
        if not has_news(exchange):
            await self._settle(exchange)
            return
        await asyncio.gather(self._settle(exchange), self._remember(custody, exchange))

    async def _settle_owed(self, custody: Custody, shown: Exchange) -> None:
        """The answer shows that the provider has ended its work: whoever made the object is billed now."""
        with suppress_and_log("admission.settle_later"):
            assert shown.principal is not None
            assert shown.said is not None
            bill = await custody.take_bill(shown.principal.team, shown.said.id)
            exchange = owing(bill, shown, self._models) if bill else None
            if exchange is None:
                return
            if exchange.usage is not None:
                self._meter.price(exchange)
            await self._admission.settle_later(exchange)

    async def _settle(self, exchange: Exchange) -> None:
        with suppress_and_log("admission.settle"):
            await self._admission.settle(exchange)

    async def _defer(self, exchange: Exchange) -> None:
        with suppress_and_log("admission.defer"):
            await self._admission.defer(exchange)

    async def _remember(self, custody: Custody, exchange: Exchange, bill: str = "") -> None:
        with suppress_and_log("custody.remember"):
            await custody.remember(exchange, bill)
