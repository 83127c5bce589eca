"""Stratiform inside a LiteLLM proxy: a callback that lays each chat request out before LiteLLM sends it.

LiteLLM does everything else: keys, budgets, routing, retries, translation. For each attempt it gives the callback the
request and the deployment that is really called, and sends the request that the callback returns. The usage of an
answer comes back by another hook, and the usage of a stream by a third one. ``incoming`` reads LiteLLM's arguments and
data. ``plugins/litellm_hook.py`` is the entry that LiteLLM loads. Nothing here imports an HTTP server or client.

LiteLLM's hooks are contained: no error is raised into LiteLLM, none of its objects is changed, no request waits for our
failure twice, and in doubt the callback stands down: then the request is sent as it came. The first request builds the
parts that plan and settle, on the serving event loop, from the ``stratiform`` section of LiteLLM's configuration. If
the section is broken, or the store cannot be used, this is logged once, and LiteLLM goes on serving.

A client's call is one or more attempts (retries, fallbacks). LiteLLM reports the end of most attempts by one of several
hooks, and the end of some by none. Attempts without a reported end are dropped after some time, or when all attempts
together take too much room. Planning may take only a share of the process's time, so that it never delays LiteLLM's own
work.

Each attempt is planned for its own deployment, from the request as it came. If LiteLLM repeats a call, or makes a call
within another one, the new call begins with the arguments that the callback returned. These are recognised, and the
change is undone first. For nested calls, only the innermost call is planned and settled.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from time import perf_counter, thread_time
from types import coroutine
from typing import Any, TypeVar

from proxy.app.foundation import lay
from proxy.app.inside.incoming import (
    Deployments,
    Host,
    Rewriting,
    StandDown,
    StandDownReason,
    StoodDown,
    body_of,
    call_of,
    export,
    mode_of,
    principal_of,
    rewriting,
    with_room,
)
from proxy.app.settings import ConfigError, load_section, shadowing
from proxy.engine import Conclusion, Ports
from proxy.engine.attempts import OurEdit
from proxy.engine.conclusion import own_headers
from proxy.engine.exchange import (
    Arrival,
    Exchange,
    ExchangeOutcome,
    Planned,
    Principal,
    Requested,
    Reservation,
    Settlement,
)
from proxy.engine.headers import ID_HEADER, named_by
from proxy.engine.ports import PlanRequest
from proxy.engine.telemetry import MetricsMeter
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import InvalidRequest, Unauthorized
from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.tasks import Tasks, place_of, spawn
from proxy.kit.value import dataclass
from proxy.models import Deployment, Headers
from proxy.planner.plan import Plan
from proxy.protocol.request.demand import demand_of
from proxy.protocol.request.message import may_be_signed
from proxy.protocol.response.outcome import AnswerFacts
from proxy.protocol.response.refusal import is_context_refusal, refusal_of_object
from proxy.protocol.wire.json_body import Unreadable
from proxy.storage import Settle
from proxy.teams.bookings import settled_entry
from proxy.teams.store_client import StoreClient
from proxy.upstream.litellm_library import dumped, mapping

__all__ = ["Callback", "Host", "Work"]

T = TypeVar("T")
_CHAT = "acompletion"
_WAIT_S = 5.0
_log = logging.getLogger("stratiform")

# Settings of the section that apply only to our own server, or to things that LiteLLM does itself.
_WITHOUT_EFFECT = (
    "teams", "budgets", "client_keys", "workers", "host", "port", "open_to_network", "default_model", "keep_alive",
    "structured", "prompts", "window", "objects", "ui", "metrics", "otel", "clock", "request_id", "log_level",
    "log_format",
)  # fmt: skip


LONGEST_S = 7200.0
"""An attempt without any report for this long counts as over: LiteLLM's own time-out is 6,000 s by default."""
_MOST_CALLS = 10_000
# There are fewer retries and fallbacks than this. A client may use the same id for many calls.
_MOST_OF_A_CALL = 100
_MOST_BYTES = 256 << 20


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of a deployment. ``call`` identifies the client's call (``incoming.call_of``). ``came`` are the
    arguments as they came. ``rewritten`` is the change that was made to them; None if the request is sent as it
    came."""

    call: str
    model_id: str
    exchange: Exchange
    plan: Plan = field(repr=False)
    came: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rewritten: Rewriting | None = field(default=None, repr=False)

    @property
    def _laid_out(self) -> Any:
        """The messages that were sent in place of those that came; None if these were sent."""
        return self.rewritten.changed.get("messages") if self.rewritten is not None else None

    def is_shown_by(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments contain the messages that were sent for this attempt."""
        mine, theirs = self._laid_out or self.came.get("messages"), arguments.get("messages")
        return mine is not None and (theirs is mine or theirs == mine)

    def is_continued_by(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments' messages begin with the layout that was sent for this attempt. A call that begins with
        the messages as they came is a call of its own, such as the one that goes on with a stream that broke off."""
        mine, theirs = self._laid_out, arguments.get("messages")
        return isinstance(mine, list) and isinstance(theirs, list) and theirs[: len(mine)] == mine


class OpenAttempts:
    """The attempts that are under way, by their calls."""

    def __init__(self) -> None:
        self._calls: Bounded[str, Sequence[Attempt]] = Bounded(_MOST_BYTES, _weight, _MOST_CALLS)

    def __contains__(self, attempt: Attempt) -> bool:
        return attempt in self._calls.get(attempt.call, ())

    def begin(self, attempt: Attempt, now: float) -> None:
        """Add an attempt that begins at ``now``, in unix seconds."""
        self._calls.put(attempt.call, (*self._calls.get(attempt.call, ())[-_MOST_OF_A_CALL:], attempt))
        while now - next(iter(self._calls.values()))[-1].exchange.arrival.now > LONGEST_S:
            self._calls.drop_oldest()

    def end(self, attempt: Attempt) -> bool:
        """Remove an attempt that is over. Returns False if it was already over before."""
        if attempt not in self:
            return False
        left = [one for one in self._calls[attempt.call] if one is not attempt]
        self._calls.drop(attempt.call)
        if left:
            self._calls.put(attempt.call, left)
        return True

    def of(self, call: str, arguments: Mapping[str, Any] | None = None, model_id: str = "") -> Attempt | None:
        """The attempt of a call to which a report belongs: the attempt whose messages are in the ``arguments``, or the
        attempt at that deployment, or else the last attempt."""
        found = self._calls.get(call, ())
        if len(found) > 1 and arguments is not None:
            found = [one for one in found if one.is_shown_by(arguments)] or found
        if len(found) > 1 and model_id:
            found = [one for one in found if one.model_id == model_id] or found
        return found[-1] if found else None


def _weight(attempts: Sequence[Attempt]) -> int:
    """The approximate size in bytes."""
    return sum(len(one.plan.body) + len(one.plan.original) for one in attempts)


# The most time that may be used in advance. Laying out a request of a megabyte takes a few hundredths of a second.
_BURST_S = 2.0


class ShareOfTime:
    """Planning may take ``share`` of the time that passes, and time of its share that it has left unused, up to some
    seconds."""

    def __init__(self, share: float, now_s: float | None = None) -> None:
        self._share = share
        self._left_s = _BURST_S
        self._seen_s = perf_counter() if now_s is None else now_s

    def has_any(self, now_s: float | None = None) -> bool:
        """Whether some time of the share is left. ``now_s`` is a reading of the monotonic clock."""
        now_s = perf_counter() if now_s is None else now_s
        self._left_s = min(_BURST_S, self._left_s + self._share * (now_s - self._seen_s))
        self._seen_s = now_s
        return self._left_s > 0

    def take(self, seconds: float) -> None:
        """Subtract used seconds of the event loop's processor time."""
        self._left_s -= seconds


@coroutine
def timed(
    work: Coroutine[Any, Any, T], share: ShareOfTime, clock: Callable[[], float] = thread_time
) -> Generator[Any, Any, T]:
    """Await a coroutine, and take the processor time of its own steps from a share. The work of others while it waits
    is not counted. ``clock`` reads the processor time of this thread, in seconds."""
    step, value = work.send, None
    while True:
        began = clock()
        try:
            waits_for = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            share.take(clock() - began)
        try:
            step, value = work.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001 - the coroutine itself handles a cancellation
            step, value = work.throw, error


_PATH = "/chat/completions"
_MOST_RECENT = 4096
_MOST_SAID_CHARS = 2000


@dataclass(eq=False)
class Work:
    """Plans attempts, and settles each exactly once. ``replaces_points``: if a plan is carried out, LiteLLM's own
    injection points are left out."""

    ports: Ports
    conclusion: Conclusion
    deployments: Deployments
    host: Host
    share: ShareOfTime
    replaces_points: bool = False
    open: OpenAttempts = field(default_factory=OpenAttempts)
    _current: ContextVar[Attempt | None] = field(default_factory=lambda: ContextVar("attempt", default=None))
    _recent: LastUsed[str, Headers] = field(default_factory=lambda: LastUsed(_MOST_RECENT))
    _ending: Tasks = field(default_factory=set)

    async def plan(self, arguments: Mapping[str, Any], stood_down: StandDown) -> dict[str, Any] | None:
        """The arguments with which the caller sends an attempt. None: the caller goes on with its own arguments.
        ``stood_down`` is called if the request is sent as it came although it might have been planned."""
        restored: dict[str, Any] | None = None
        try:
            restored = await self._restored(arguments)
            return await self._planned(restored or arguments) or restored
        except StoodDown as why:
            stood_down(why.reason)
        except (Unreadable, InvalidRequest):
            stood_down("unreadable")  # LiteLLM, or the provider, judges the request
        return restored

    async def succeeded(self, arguments: Mapping[str, Any], response: object) -> None:
        """A deployment has answered without a stream."""
        if (attempt := self.open.of(call_of(arguments), arguments)) is not None:
            await self._answered(attempt, getattr(response, "usage", None), ExchangeOutcome.COMPLETED)

    async def failed(self, arguments: Mapping[str, Any], error: Exception) -> None:
        """A deployment has refused the request, or could not be reached. If the layout may be the cause, it is barred
        for its session: LiteLLM's next request is sent as it came."""
        if (attempt := self.open.of(call_of(arguments), arguments)) is None:
            return
        told = getattr(error, "status_code", 0)
        status = told if isinstance(told, int) and 400 <= told < 600 else 0
        said = refusal_of_object({"error": {"message": str(error)[:_MOST_SAID_CHARS]}})
        may_be_ours = attempt.rewritten is not None and OurEdit.LAYOUT.behind(status)
        if may_be_ours and not is_context_refusal(status, said):
            self.ports.planner.barred(attempt.plan)
        attempt.exchange.answer.status = status
        await self._finish(attempt, ExchangeOutcome.REJECTED if 400 <= status < 500 else ExchangeOutcome.BROKEN)

    async def logged(self, details: Mapping[str, Any], response: object) -> None:
        """LiteLLM logs a success: the end of a stream (also if its client left), or an answer from LiteLLM's response
        cache, for which no deployment was called."""
        if (attempt := self._of(details)) is None:
            return
        if details.get("cache_hit") is True:
            self.open.end(attempt)
        elif attempt.exchange.requested.stream:
            has_left = bool(mapping(details.get("standard_logging_object")).get("error_str"))
            ending = ExchangeOutcome.HUNG_UP if has_left else ExchangeOutcome.COMPLETED
            await self._answered(attempt, getattr(response, "usage", None), ending)

    async def broken(self, details: Mapping[str, Any]) -> None:
        """LiteLLM logs the failure of a stream. Failures of calls without an answer are reported by another hook."""
        if (attempt := self._of(details)) is not None and attempt.exchange.answer.is_accepted:
            await self._answered(attempt, details.get("combined_usage_object"), ExchangeOutcome.BROKEN)

    async def headers(self, request: Mapping[str, Any], response: object) -> dict[str, str]:
        """The headers about a call's last attempt. For a stream, this call marks its beginning. ``response`` is None if
        no deployment answered."""
        call = call_of(request)
        attempt = self.open.of(call)
        if attempt is not None and response is not None and attempt.exchange.requested.stream:
            self._accept(attempt)
        return dict(self._recent.find(call) or ())

    async def _restored(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments as they came, if these are the arguments with which an earlier attempt of this task was sent.
        Raises StoodDown for a nested call whose messages only begin like those of that attempt."""
        if (outer := self._current.get()) is None:
            return None
        theirs, came = arguments.get("messages"), outer.came.get("messages")
        is_shown, is_same = outer.is_shown_by(arguments), theirs is came or theirs == came
        if not is_shown and outer.is_continued_by(arguments):
            raise StoodDown("nested")
        if outer in self.open and outer.call == call_of(arguments):
            if outer.exchange.answer.is_accepted:
                await self._finish(outer, ExchangeOutcome.BROKEN)  # a stream broke off, and another takes its place
            elif not (is_shown or is_same):
                raise StoodDown("nested")
            self.open.end(outer)
        return outer.rewritten.undone(arguments, outer.came) if outer.rewritten is not None and is_shown else None

    async def _planned(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The attempt's plan, as arguments; None if the request is sent as it came. Raises StoodDown, Unreadable,
        InvalidRequest."""
        now = self.ports.clock.now()
        if (deployment := self.deployments.find(arguments)) is None:
            return None
        body = body_of(arguments, deployment.profile)
        if not self.replaces_points:
            deployment = with_room(deployment, arguments, body)
        # Messages bound by signed thinking must be sent as they were sent before, so such a request is laid out even if
        # no time of the share is left.
        if not self.share.has_any() and not may_be_signed(body):
            raise StoodDown("share-of-time")
        parsed = await self.ports.aside.run_large(len(body), self.ports.planner.parse, body)
        mode, principal = mode_of(arguments, deployment.mode), principal_of(arguments)
        plan = await self.ports.planner.plan(PlanRequest(parsed, deployment, principal, mode, now, has_body=False))
        done = await self._carried_out(arguments, plan, deployment)
        metadata, call_id = mapping(arguments.get("metadata")), str(arguments.get("litellm_call_id") or "")
        exchange = Exchange(
            Arrival("POST", _PATH, now, size=len(body), is_chat=True, named=named_by([(ID_HEADER, call_id)], ())),
            principal,
            Requested(
                str(metadata.get("model_group") or deployment.name),
                stream=arguments.get("stream") is True,
                demand=demand_of("POST", _PATH, parsed.members),
            ),
            deployment=deployment,
            planned=Planned(plan.mode, plan.reason, plan),
            attempts=1,
        )
        await self.ports.admission.reserve(exchange)
        self._begin(call_id, arguments, exchange, plan, done)
        return done.applied(arguments) if done is not None else None

    async def _carried_out(self, arguments: Mapping[str, Any], plan: Plan, deployment: Deployment) -> Rewriting | None:
        """The plan as a change of the arguments; None if the request is sent as it came."""
        if plan.changes is None:
            return None
        route = partial(self.host.route, deployment)
        done = await self.ports.aside.run_large(
            len(plan.original), rewriting, arguments, plan.changes, plan.headers, route
        )
        if done is None:
            return None
        if (key := self.host.cache_key(arguments)) is not None:
            done = replace(done, changed={**done.changed, "cache_key": key})
        if self.replaces_points:
            done = replace(done, dropped=done.dropped | {"cache_control_injection_points"})
        return done

    def _begin(
        self, call_id: str, arguments: Mapping[str, Any], exchange: Exchange, plan: Plan, rewritten: Rewriting | None
    ) -> None:
        exchange.overhead_s = exchange.elapsed_s()
        exchange.answer.asked(exchange.elapsed_s(), runs_on=False)
        model_id, call = str(mapping(arguments.get("model_info")).get("id") or ""), call_of(arguments)
        attempt = Attempt(call, model_id, exchange, plan, arguments, rewritten)
        self.open.begin(attempt, exchange.arrival.now)
        self._current.set(attempt)
        # LiteLLM sends the request's id in its own header.
        self._recent.put(call, own_headers(exchange, ((ID_HEADER, call_id),)))

    def _of(self, details: Mapping[str, Any]) -> Attempt | None:
        given = mapping(details.get("litellm_params"))
        call = call_of({**given, "litellm_call_id": details.get("litellm_call_id")})
        return self.open.of(call, model_id=str(mapping(given.get("model_info")).get("id") or ""))

    def _accept(self, attempt: Attempt) -> None:
        """The deployment has accepted the request, and begun to answer."""
        answer = attempt.exchange.answer
        if answer.first_byte_s is None:
            answer.status, answer.first_byte_s = 200, attempt.exchange.elapsed_s()
            self.ports.planner.on_accepted(attempt.plan, attempt.exchange.time())

    async def _answered(self, attempt: Attempt, used: Any, ending: ExchangeOutcome) -> None:
        """The deployment has answered, completely or not. ``used`` is the usage that LiteLLM reports. For a stream that
        is cut short, this is the usage that the provider had reported by then (Anthropic reports the prompt's usage
        first). If the provider had reported none, LiteLLM has counted the tokens itself, and knows nothing about the
        cache."""
        self._accept(attempt)
        facts, is_cut = AnswerFacts(), ending is not ExchangeOutcome.COMPLETED
        facts.learn({"usage": dumped(used)})
        outcome = facts.outcome(saw_content=True, is_open=is_cut)
        if is_cut and (usage := outcome.usage) is not None:
            outcome = replace(outcome, usage=usage if usage.read or usage.write else None, tokens=usage.output)
        attempt.exchange.answer.outcome = outcome
        await self._finish(attempt, ending)

    async def _finish(self, attempt: Attempt, ending: ExchangeOutcome) -> None:
        """Settle the attempt if it was not settled yet. LiteLLM does not wait for a store."""
        if not self.open.end(attempt):
            return
        attempt.exchange.ending = ending
        self.ports.meter.began()
        spawn(self._ended(attempt.exchange), self._ending)

    async def _ended(self, exchange: Exchange) -> None:
        await timed(self.conclusion.end(exchange), self.share)


class Callback:
    """Calls the steps of ``Work``, which the first request builds and all other requests use. When LiteLLM runs each of
    its hooks was found out by running 1.106.2, 1.108, 1.109.3 and 1.110.2 (tests/e2e)."""

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
        meter, clock = MetricsMeter(base.metrics, base.facts.price), base.state.clock
        ports = Ports(base.models, {}, base.planner, Recording(store_client), meter, clock, aside=base.aside)
        return Work(
            ports,
            Conclusion(ports),
            Deployments(settings, base.prices, self.tell),
            self._host,
            self.share,
            replaces_points=settings.stratiform.callback.injection_points == "replace",
        )


class Recording:
    """Writes the cost of attempts into the ledger (the port Admission). LiteLLM admits requests and enforces its own
    budgets, so nothing is checked, reserved or refused here."""

    def __init__(self, store_client: StoreClient) -> None:
        self._store_client = store_client

    def admit(self, headers: Headers, now: float) -> Principal:
        """Raises Unauthorized: LiteLLM has already identified the sender, so nobody asks here."""
        raise Unauthorized("LiteLLM admits requests")

    def limits(self, principal: Principal) -> bool:
        """Always False: LiteLLM enforces budgets."""
        return False

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Have the end of the exchange recorded, if the store outlives this process. Otherwise nobody could read its
        ledger."""
        if self._store_client.is_durable:
            exchange.reservation = Reservation(exchange.arrival.id, exchange.principal.team)

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
