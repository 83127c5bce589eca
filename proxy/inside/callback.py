"""LiteLLM's hooks, contained: no error is raised into LiteLLM, and no request waits for our failure twice.

The first request builds the parts that plan and settle, on the serving event loop, from the ``stratiform`` section of
LiteLLM's configuration. If the section is broken, or the store cannot be used, this is logged once, and every request
is sent as it came: LiteLLM goes on serving.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from proxy.app.foundation import lay
from proxy.app.shadowed import shadowing
from proxy.engine import Conclusion, Ports
from proxy.engine.exchange import Exchange, Settlement
from proxy.errors import Unauthorized
from proxy.inside.incoming import Deployments, Host, StandDownReason, StoodDown, export
from proxy.inside.work import ShareOfTime, Work, timed
from proxy.ports import Deployment, Headers, Principal, Reservation
from proxy.settings import ConfigError, load_section
from proxy.spend.bookings import settled_entry
from proxy.spend.store_client import StoreClient
from proxy.storage.port import Settle
from proxy.tasks import place_of
from proxy.telemetry.meter import Meter
from proxy.telemetry.metrics import Metrics

T = TypeVar("T")
_CHAT = "acompletion"
_WAIT_S = 5.0
_log = logging.getLogger("stratiform")

_WITHOUT_EFFECT = (
    "teams", "budgets", "client_keys", "workers", "host", "port", "open_to_network", "default_model", "keep_alive",
    "structured", "prompts", "window", "objects", "ui", "metrics", "otel", "clock", "request_id", "log_level",
    "log_format",
)  # fmt: skip
"""Settings of the section that apply only to our own server, or to things that LiteLLM does itself."""


class Callback:
    """Calls the steps of ``Work``, which the first request builds and all other requests use. When LiteLLM runs each of
    its hooks was found out by running 1.106.2, 1.108 and 1.109.3 (tests/e2e)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None
        self._building: asyncio.Task[Work | None] | None = None
        self._told: set[str] = set()
        self.metrics: Metrics | None = None
        self.share = ShareOfTime(1.0)

    async def before_attempt(self, arguments: Mapping[str, Any], call_type: object) -> dict[str, Any] | None:
        """A deployment is about to be called. Returns the arguments for the call; None: the caller uses its own."""
        if getattr(call_type, "value", call_type) != _CHAT:
            return None
        try:
            work = await self.work()
        except StoodDown as why:
            self.stood_down(why.reason)
            return None
        return await self._contained(work.plan(arguments, self.stood_down))

    async def after(self, step: Callable[..., Coroutine[Any, Any, T]], *given: Any) -> T | None:
        """LiteLLM reports something about an attempt: call this method of ``Work``, if the first request has built
        it."""
        if self._building is None or not self._building.done() or self._loop is not asyncio.get_running_loop():
            return None
        work = self._building.result()
        return await self._contained(step(work, *given)) if work is not None else None

    async def work(self) -> Work:
        """The ``Work`` that plans. Raises StoodDown if it could not be built, or is not built yet."""
        loop = asyncio.get_running_loop()
        if self._building is None:
            self._loop, self._building = loop, loop.create_task(self._build())
        if self._loop is not loop:
            raise StoodDown("another-loop")
        if not self._building.done():
            await asyncio.wait([self._building], timeout=_WAIT_S)
            if not self._building.done():
                raise StoodDown("starting")
        if (work := self._building.result()) is None:
            raise StoodDown("settings")
        return work

    def stood_down(self, reason: StandDownReason) -> None:
        """Note that a request is sent as it came."""
        if self.metrics is not None:
            self.metrics.callback_stood_down(reason)
        self.tell(f"requests go as they came ({reason})")

    async def _contained(self, step: Coroutine[Any, Any, T]) -> T | None:
        """Run a step. Our own errors are not passed on: only the type and the place of an error are logged, because its
        message could quote a prompt."""
        try:
            return await timed(step, self.share)
        except Exception as error:  # noqa: BLE001 - nothing is raised into LiteLLM
            if self.metrics is not None:
                self.metrics.callback_stood_down("internal-error")
            self.tell(f"contained a failure: {place_of(error)}")
            return None

    def tell(self, text: str) -> None:
        """Log a text, only the first time."""
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            _log.warning("inside LiteLLM: %s", text)

    async def _build(self) -> Work | None:
        try:
            return await self._built()
        except ConfigError as error:
            for problem in error.problems:
                self.tell(problem)
        except Exception as error:  # noqa: BLE001 - LiteLLM serves on, whatever is wrong here
            self.tell(f"cannot be started: {place_of(error)}")
        finally:
            self.metrics = self.metrics or Metrics()
            export(self.metrics)
        return None

    async def _built(self) -> Work:
        path = self._host.settings_path()
        settings = load_section(path)
        for warning in shadowing(settings.folder) if path is not None else ():
            self.tell(warning)
        if unused := [name for name in _WITHOUT_EFFECT if name in settings.stratiform.model_fields_set]:
            self.tell(f"without effect here are stratiform.{', stratiform.'.join(unused)}")
        # Nothing serves pages here, so data that only pages show is not collected.
        ours = settings.stratiform
        unwatched = ours.model_copy(update={"ui": ours.ui.model_copy(update={"enabled": False})})
        base = await lay(replace(settings, stratiform=unwatched))
        self.metrics, self.share = base.metrics, ShareOfTime(settings.stratiform.callback.share_of_time)
        store_client = base.store_client(settings)
        await store_client.start()
        meter, clock = Meter(base.metrics, base.prices), base.state.clock
        ports = Ports(base.models, {}, base.planner, Recording(store_client), meter, clock)
        return Work(
            ports,
            Conclusion(ports),
            Deployments(settings, base.prices, self.tell),
            self._host,
            self.share,
            base.aside,
            replaces_points=settings.stratiform.callback.injection_points == "replace",
        )


class Recording:
    """Writes the cost of attempts into the ledger (the port Admission). LiteLLM admits requests and enforces its own
    budgets, so nothing is checked, reserved or refused here."""

    def __init__(self, store_client: StoreClient) -> None:
        self._store_client = store_client
        self.is_immediate = not store_client.is_durable

    def admit(self, headers: Headers, now: float) -> Principal:
        """Raises Unauthorized: LiteLLM has already identified the sender, so nobody asks here."""
        raise Unauthorized("LiteLLM admits requests")

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Have the end of the exchange recorded, if the store outlives this process. Otherwise nobody could read its
        ledger."""
        if self._store_client.is_durable:
            exchange.reservation = Reservation(exchange.arrival.id, exchange.admitted.team)

    async def extend(self, exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        """Always True: no budget holds here."""
        return True

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """Do nothing: LiteLLM enforces the limits of its deployments."""

    async def weigh(self, exchange: Exchange) -> None:
        """Do nothing: no limit holds, so the planner's count of the prompt is good enough."""

    async def settle(self, exchange: Exchange) -> None:
        """Write the exchange's entry: into the store, or into the spool while the store is away."""
        await self._store_client.settle(Settle(settled_entry(exchange), ()))

    defer = settle_later = settle
