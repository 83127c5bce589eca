"""The life of a request: admit, plan, forward, stream back, settle.

The engine knows only ports, and neither Starlette nor any transport. It drives the client's side (``Client``) and the
upstream's (``Upstream``) in one coroutine. So it reads from the upstream only as fast as the client reads. When the
client leaves, the coroutine is cancelled, which closes the call. Every exchange is settled exactly once, however it
ends.

``intake`` checks every request: its sender, the deployments that may serve it, and its budget. ``chat`` serves chat
requests, and ``raw_requests`` serves all others. Both send their calls with ``attempts``, pass the answers on with
``relay``, and end in ``conclusion``. ``bodies`` reads the needed parts of a body, and ``custody`` knows which team
owns which objects of the account.
"""

import asyncio
from collections.abc import Awaitable, Callable

from proxy.engine.attempts import Breakers
from proxy.engine.bodies import is_compressed
from proxy.engine.chat import ChatRequests
from proxy.engine.conclusion import Conclusion, Followers, own_headers
from proxy.engine.custody import Bounds, Custody
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, ObjectUse, Planned, Principal
from proxy.engine.headers import get, keys_of, named_by
from proxy.engine.intake import Intake, RequestRules
from proxy.engine.ports import BodyLimits, Client, ClientDisconnected, Follower, Ports
from proxy.engine.raw_requests import RawRequests
from proxy.kit.errors import (
    InternalError,
    ProxyError,
    UpstreamError,
    UpstreamRejected,
)
from proxy.kit.modes import Reason
from proxy.kit.tasks import suppress_and_log
from proxy.protocol.account import Path, operation_of, read_path

__all__ = [
    "BodyLimits", "Bounds", "Breakers", "CHAT", "Client", "ClientDisconnected", "Conclusion", "Custody", "Engine",
    "Ports", "RequestRules", "suppress_and_log",
]  # fmt: skip

CHAT = "/chat/completions"
_CHAT_PATH = read_path(CHAT)
_CHAT_OPERATION = operation_of("POST", _CHAT_PATH.segments)
Serve = Callable[[Exchange, Client], Awaitable[None]]

# The ending of an exchange that fails with an error: the first class that the error belongs to decides.
_ENDINGS: tuple[tuple[type[ProxyError], ExchangeOutcome], ...] = (
    (UpstreamRejected, ExchangeOutcome.REJECTED),
    (UpstreamError, ExchangeOutcome.BROKEN),
    (InternalError, ExchangeOutcome.FAILED),
    (ProxyError, ExchangeOutcome.REFUSED),
)


class Engine:
    """Runs each exchange from its arrival to its one ending."""

    def __init__(
        self,
        ports: Ports,
        rules: RequestRules | None = None,
        *,
        breakers: Breakers | None = None,
        conclusion: Conclusion | None = None,
        follower: Follower | None = None,
        custody: Custody | None = None,
        on_return: Callable[[str], None] | None = None,
    ) -> None:
        """``on_return`` is told each session (``Plan.session``) that has another request."""
        self._ports = ports
        self._follower = Followers(()) if follower is None else follower
        self._conclusion = conclusion or Conclusion(ports, custody)
        self._rules = rules or RequestRules()
        self.limits = self._rules.limits
        """The limits of request bodies."""
        intake = Intake(ports, self._rules, breakers or Breakers(), custody)
        self._chats = ChatRequests(ports, intake, self._conclusion, on_return)
        self._others = RawRequests(ports, intake, self._conclusion, custody)

    async def chat(self, client: Client, model: str = "") -> None:
        """Serve a chat request: plan it, forward it, and stream the answer back. ``model`` is the model that the
        address names."""
        if is_compressed(client):
            # A compressed body is not unpacked. The request is not planned, and is read like a request on any other
            # path.
            exchange = self._opened(client, model)
            exchange.planned = Planned(reason=Reason.UNREADABLE)
            await self._run(exchange, client, self._others.serve)
        else:
            await self._run(self._opened(client, model, is_chat=True, read_as=_CHAT_PATH), client, self._chats.serve)

    async def breakdown(self, client: Client) -> None:
        """Answer with the parts of which a chat request with structured context would consist, without sending it. The
        same rights apply as for that request."""
        await self._run(self._opened(client, read_as=_CHAT_PATH), client, self._chats.breakdown)

    async def relay(self, client: Client, model: str = "", path: Path | None = None) -> None:
        """Serve any other path: the request and the answer are passed through. ``path`` is the parsed path, if it is
        known."""
        await self._run(self._opened(client, model, read_as=path), client, self._others.serve)

    def principal(self, client: Client) -> Principal:
        """The client's principal, for answers that the proxy gives itself. Raises Unauthorized."""
        return self._ports.admission.admit(client.headers, self._ports.clock.now())

    def first_refusal(self, client: Client, error: ProxyError) -> ProxyError:
        """The error for a request that will be refused anyway. A client without a valid key learns only that its key is
        refused."""
        try:
            self.principal(client)
        except ProxyError as first:
            return first
        return error

    async def aclose(self) -> None:
        """Finish the settlements in progress and close the upstreams."""
        await self._follower.aclose()
        await self._conclusion.aclose()
        for upstream in self._ports.upstreams.values():
            await upstream.aclose()
        self._ports.aside.close()

    async def _run(self, exchange: Exchange, client: Client, serve: Serve) -> None:
        self._ports.meter.began()
        try:
            await serve(exchange, client)
        except ProxyError as error:
            exchange.answer.status = error.status
            exchange.answer.note(error)
            exchange.ending = next(ending for kind, ending in _ENDINGS if isinstance(error, kind))
            await self._conclusion.book(exchange)
            await client.refuse(error, own_headers(exchange, tuple(error.headers.items())))
        except ClientDisconnected:
            exchange.ending = ExchangeOutcome.HUNG_UP
        except asyncio.CancelledError:
            exchange.ending = exchange.ending or ExchangeOutcome.HUNG_UP
            raise
        finally:
            if exchange.ending is None:
                exchange.ending = ExchangeOutcome.FAILED
                exchange.answer.status = exchange.answer.status if client.is_started else InternalError.status
            try:
                await self._conclusion.end(exchange)
            finally:
                self._follower.ended(exchange)

    def _opened(
        self, client: Client, model: str = "", *, is_chat: bool = False, read_as: Path | None = None
    ) -> Exchange:
        keys = keys_of(client.headers, client.query)
        arrival = Arrival(
            client.method,
            client.path,
            self._ports.clock.now(),
            is_chat=is_chat,
            keys=keys,
            addressed=model,
            named=named_by(client.headers, keys),
            trace=get(client.headers, "traceparent") or "",
            tells_id=self._rules.tells_id,
        )
        objects = ObjectUse(_CHAT_OPERATION) if is_chat else ObjectUse()
        return Exchange(arrival, read_as=read_as, objects=objects)
