"""One attempt inside LiteLLM, from its plan to its settlement.

Each attempt is planned for its own deployment, from the request as it came. If LiteLLM repeats a call, or makes a call
within another one, the new call begins with the arguments that the callback returned. These are recognised, and the
change is undone first. For nested calls, only the innermost call is planned and settled.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from proxy.aside import Aside
from proxy.core.lru import LastUsed
from proxy.core.request.demand import demand_of
from proxy.core.request.message import may_be_signed
from proxy.core.response.context_refusal import is_context_refusal
from proxy.core.response.outcome import AnswerFacts, Outcome
from proxy.core.response.refusal import refusal_of_object
from proxy.core.wire.json_body import Unreadable
from proxy.engine import Conclusion, Ports
from proxy.engine.answers.relay import own_headers
from proxy.engine.attempts.retry_body import OurEdit
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, Planned, Requested
from proxy.engine.headers import ID_HEADER, named_by
from proxy.errors import InvalidRequest
from proxy.inside.attempts import Attempt, OpenAttempts
from proxy.inside.host import Host
from proxy.inside.incoming import (
    Deployments,
    StandDown,
    StoodDown,
    body_of,
    call_of,
    mode_of,
    principal_of,
    with_room,
)
from proxy.inside.rewriting import Rewriting, rewriting
from proxy.inside.share_of_time import ShareOfTime
from proxy.ports import Deployment, Headers, Plan, PlanRequest
from proxy.tasks import Tasks, spawn
from proxy.upstream.litellm_.library import dumped, mapping

_PATH = "/chat/completions"
_POINTS = "cache_control_injection_points"
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
        is_suspect = bool(OurEdit.LAYOUT.behind(status)) and not is_context_refusal(status, said)
        if attempt.rewritten is not None and is_suspect:
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
        elif attempt.is_stream:
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
        if (attempt := self.open.of(call)) is not None and response is not None and attempt.is_stream:
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
        key = self.host.cache_key(arguments)
        if key is not None:
            done = replace(done, changed={**done.changed, "cache_key": key})
        return replace(done, dropped=done.dropped | {_POINTS}) if self.replaces_points else done

    def _begin(
        self, call_id: str, arguments: Mapping[str, Any], exchange: Exchange, plan: Plan, rewritten: Rewriting | None
    ) -> None:
        exchange.overhead_s = exchange.elapsed_s()
        exchange.answer.asked(exchange.elapsed_s(), runs_on=False)
        model_id, is_stream = str(mapping(arguments.get("model_info")).get("id") or ""), exchange.requested.stream
        call = call_of(arguments)
        attempt = Attempt(call, model_id, exchange, plan, is_stream, arguments, rewritten)
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
