"""One attempt inside LiteLLM, from its plan to its settlement.

A plan becomes LiteLLM's arguments: a new mapping with the plan's changes. All other values are the caller's objects.

A client's call is one or more attempts (retries, fallbacks). LiteLLM reports the end of most attempts by one of several
hooks, and the end of some by none. Attempts without a reported end are dropped after some time, or when all attempts
together take too much room. Planning may take only a share of the process's time, so that it never delays LiteLLM's own
work.

Each attempt is planned for its own deployment, from the request as it came. If LiteLLM repeats a call, or makes a call
within another one, the new call begins with the arguments that the callback returned. These are recognised, and the
change is undone first. For nested calls, only the innermost call is planned and settled.
"""

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from math import isfinite
from operator import is_
from time import perf_counter, thread_time
from types import coroutine
from typing import Any, TypeVar

import orjson

from proxy.core.lru import Bounded, LastUsed
from proxy.core.request.demand import demand_of
from proxy.core.request.message import may_be_signed
from proxy.core.request.parsed_body import BodyChanges
from proxy.core.response.outcome import AnswerFacts, Outcome
from proxy.core.response.refusal import is_context_refusal, refusal_of_object
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable
from proxy.engine import Conclusion, Ports
from proxy.engine.attempts import OurEdit
from proxy.engine.conclusion import own_headers
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, Planned, Requested
from proxy.engine.headers import ID_HEADER, named_by
from proxy.errors import InvalidRequest
from proxy.inside.incoming import (
    Deployments,
    Host,
    StandDown,
    StoodDown,
    body_of,
    call_of,
    mode_of,
    principal_of,
    with_room,
)
from proxy.ports import Deployment, Headers, Plan, PlanRequest
from proxy.tasks import Aside, Tasks, spawn
from proxy.upstream.litellm_.library import Route, dumped, mapping

# LiteLLM translates the model's name, and asks for the usage of a stream where its provider and operator let it.
_LITELLMS_OWN = frozenset({"model", "stream_options"})
_PLAIN = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The arguments that a plan has ``changed``; ``dropped`` are those that it leaves out."""

    changed: Mapping[str, Any]
    dropped: frozenset[str] = frozenset()

    def applied(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The caller's arguments with this change, as a new mapping."""
        return {**{n: v for n, v in arguments.items() if n not in self.dropped}, **self.changed}

    def undone(self, arguments: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments without this change, after it was applied. ``came`` are the arguments before the change."""
        touched = self.changed.keys() | self.dropped
        return {
            **{n: v for n, v in arguments.items() if n not in touched},
            **{n: came[n] for n in touched if n in came},
        }


def rewriting(
    arguments: Mapping[str, Any], changes: BodyChanges, headers: Headers, route: Callable[[], Route]
) -> Rewriting | None:
    """The change with which LiteLLM sends the plan in place of the request; None if the plan changes nothing.
    ``headers`` are sent with the change. A field that LiteLLM would refuse for the provider goes into ``extra_body``;
    if the provider has no ``extra_body``, the field is left out. Raises StoodDown if a value of the caller differs from
    its JSON (such as a number that is not finite, or a member's name that is no text): then nothing is changed."""
    before, given = changes.parsed.members, arguments["messages"]
    new = {name: raw for name, raw in changes.members.items() if raw is not None and name not in _LITELLMS_OWN}
    changed = {name: orjson.loads(raw) for name, raw in new.items() if name not in before or raw != bytes(before[name])}
    dropped = frozenset(name for name, raw in changes.members.items() if raw is None and name in before)
    messages = _messages(given, changes)
    if messages is not given:
        changed["messages"] = messages
    if not (changed or dropped or headers):
        return None
    for name in changed.keys() & before.keys() - {"messages"}:
        _check_plain(arguments[name])
    added = changed.keys() - before.keys()
    found = route() if added else None
    beside = {name: changed.pop(name) for name in added if found is not None and name not in found.fields}
    if beside and found is not None and found.extra_body:
        # The caller's own values win.
        changed["extra_body"] = {**beside, **mapping(arguments.get("extra_body"))}
    if headers:
        changed["extra_headers"] = {**dict(headers), **mapping(arguments.get("extra_headers"))}
    return Rewriting(changed, dropped)


def _messages(given: Sequence[Any], changes: BodyChanges) -> Sequence[Any]:
    """The messages that are sent; ``given`` itself if these are all messages in their order. Messages that are sent as
    they came are the caller's own objects."""
    if changes.messages is None:
        new = {i: orjson.loads(raw) for i, raw in changes.changed.items() if raw is not changes.came[i].raw}
        for index in new:
            _check_plain(given[index])
        return [new.get(index, message) for index, message in enumerate(given)] if new else given
    own = {id(message.raw): one for message, one in zip(changes.came, given, strict=True)}
    sent = changes.messages
    for left_out in own.keys() - set(map(id, sent)):
        _check_plain(own[left_out])
    found = [own[id(raw)] if id(raw) in own else orjson.loads(raw) for raw in sent]
    return given if len(found) == len(given) and all(map(is_, found, given)) else found


def _check_plain(given: object) -> None:
    """Raises StoodDown if JSON does not give a value back unchanged. JSON was already written from the value, so it is
    not nested without end, and the names of its members are texts."""
    if isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            _check_plain(each)
    elif type(given) not in _PLAIN and not (isinstance(given, float) and isfinite(given)):
        raise StoodDown("unreadable")


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


T = TypeVar("T")
_BURST_S = 2.0
"""The most time that may be used in advance. Laying out a request of a megabyte takes a few hundredths of a second."""


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
    aside: Aside
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
        parsed = await self.aside.run_large(len(body), self.ports.planner.parse, body)
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
        done = await self.aside.run_large(len(plan.original), rewriting, arguments, plan.changes, plan.headers, route)
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
        """The deployment has answered, completely or not. ``used`` is the usage that LiteLLM reports."""
        self._accept(attempt)
        attempt.exchange.answer.outcome = _outcome(used, is_cut=ending is not ExchangeOutcome.COMPLETED)
        await self._finish(attempt, ending)

    async def _finish(self, attempt: Attempt, ending: ExchangeOutcome) -> None:
        """Settle the attempt if it was not settled yet. LiteLLM does not wait for a store."""
        if not self.open.end(attempt):
            return
        attempt.exchange.ending = ending
        self.ports.meter.began(attempt.exchange)
        ends = self.conclusion.end(attempt.exchange)
        if self.ports.admission.is_immediate:
            await ends
        else:
            spawn(ends, self._ending)


def _outcome(used: Any, *, is_cut: bool = False) -> Outcome:
    """The outcome with LiteLLM's usage of an answer. For a stream that ``is_cut`` short, LiteLLM gives the usage that
    the provider had reported by then (Anthropic reports the prompt's usage first). If the provider had reported none,
    LiteLLM has counted the tokens itself, and knows nothing about the cache."""
    facts = AnswerFacts()
    facts.learn({"usage": dumped(used)})
    outcome = facts.outcome(saw_content=True, is_open=is_cut)
    if not is_cut or (usage := outcome.usage) is None:
        return outcome
    return replace(outcome, usage=usage if usage.read or usage.write else None, tokens=usage.output)
