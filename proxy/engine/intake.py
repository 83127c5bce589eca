"""Checks every request before it is forwarded: its sender, the deployments that may serve it, and its budget."""

from collections.abc import Callable
from functools import partial

from proxy.access.validation import one_line
from proxy.aside import Aside
from proxy.clock import request_time
from proxy.core.access.reach import Reach
from proxy.core.request.demand import demand_of
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.resilience.retry import RETRY_COUNT, USER_AGENT, RetryPolicy, beside_client
from proxy.core.value import dataclass, replace
from proxy.deployments import ModelTable
from proxy.engine.attempts.affinity import session_key
from proxy.engine.attempts.breaker import Breakers
from proxy.engine.attempts.retry import ONE_TRY, Attempts, Levels
from proxy.engine.bodies.raw import Raw, check_addressed, refuse_compressed
from proxy.engine.custody import Custody, pinned
from proxy.engine.exchange import Exchange, Requested
from proxy.engine.headers import get
from proxy.engine.ports import Client, Limits, Ports
from proxy.engine.rights import further_of, model_of_place, permitted, reach_of_request, refuse_unpriced, usable
from proxy.engine.target import refuse_key_in_model, refuse_key_in_path, without_credentials, without_keys_of
from proxy.errors import ContextTooLong
from proxy.ports import Deployment, Planner, Principal

WindowOf = Callable[[Deployment], int | None]
"""The most tokens that a deployment's model reads. None if that is not known."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """The limits of a request, and how often it is tried. ``trust_time_header``: requests may bring their own time, as
    replays do. ``window_of``: if given, chat requests that are too long for a model are not sent to it. ``tells_id``:
    the id of each request is sent to the upstream."""

    limits: Limits = Limits()
    retries: RetryPolicy = ONE_TRY
    trust_time_header: bool = False
    window_of: WindowOf | None = None
    tells_id: bool = True


class Intake:
    """Takes requests in. Its methods are called in the order in which they are written here."""

    def __init__(
        self, ports: Ports, rules: RequestRules, breakers: Breakers, aside: Aside, custody: Custody | None
    ) -> None:
        self._ports = ports
        self.rules = rules
        self._breakers = breakers
        self._aside = aside
        self._custody = custody

    async def enter(self, exchange: Exchange, client: Client) -> Principal:
        """Identify the sender of the request, and check that its path may be used. Raises ProxyError."""
        now = self.now(client) if self.rules.trust_time_header else exchange.arrival.now
        principal = exchange.principal = self._ports.admission.admit(client.headers, now)
        refuse_key_in_path(client, principal)
        if self._custody is not None:
            await self._custody.enter(exchange, client)
        return principal

    def now(self, client: Client) -> float:
        """The time at which the request happens."""
        return request_time(client.headers, self._ports.clock, trust_header=self.rules.trust_time_header)

    async def check_objects(self, exchange: Exchange, raw: Raw) -> None:
        """Check that the request may use the objects that its body names. Raises ProxyError."""
        if self._custody is not None:
            await self._custody.read(exchange, raw)

    async def route(self, exchange: Exchange, client: Client, raw: Raw, *, may_repeat: bool) -> tuple[Attempts, Reach]:
        """The deployments that may serve the request, in the order in which its session calls them, and everything that
        the request can reach. If the request must not be repeated, only the first deployment is called, once. Raises
        UnknownModel, Forbidden, InvalidRequest, CircuitOpen."""
        principal, head, models = exchange.admitted, raw.head, self._ports.models
        reach = await self._aside.run_large(raw.size, reach_of_request, exchange.parsed, client, raw, principal)
        if head is not None:
            exchange.requested = Requested(head.model, head.stream, head.wants_usage)
            if head.user and not principal.user:
                exchange.principal = replace(principal, user=one_line(without_keys_of(exchange, head.user)))
        check_addressed(exchange)
        levels = levels_of(models, exchange, reach)
        exchange.deployment = levels[0][0]
        further = further_of(models, reach, exchange.requested.model, levels[0][0])
        levels = permitted(levels, principal, exchange, reach, further)
        wider = self._wider(exchange, principal) if may_repeat else ()
        if principal.forwards_key:
            levels, wider = _without_credentials(levels), _without_credentials(wider)
        levels = pinned(levels, exchange)
        parsed = head.parsed if head is not None else None
        if self.rules.window_of is not None and parsed is not None and exchange.arrival.is_chat:
            levels, wider = await fitting(self._ports.planner, self.rules.window_of, exchange, parsed, levels, wider)
        is_spread = any(len(level) > 1 for level in (*levels, *wider))
        key = await self._aside.run_large(raw.size, session_key, principal, head) if is_spread else b""
        policy, sent = ONE_TRY, client.headers
        if may_repeat:
            own = self.rules.retries.of(exchange.requested.model)
            policy = beside_client(own, get(sent, RETRY_COUNT), get(sent, USER_AGENT))
        on_failure = partial(self._ports.meter.failed, exchange)
        attempts = Attempts(
            levels, key, self._breakers, policy, exchange.elapsed_s, on_failure, wider=wider if may_repeat else None
        )
        exchange.deployment = attempts.deployment
        return attempts, reach

    def _wider(self, exchange: Exchange, principal: Principal) -> Levels:
        """The deployments that the request goes to if a context window is too small. A request whose objects live at
        one provider stays there."""
        name = exchange.requested.model
        if not name or exchange.objects.pin is not None:
            return ()
        return usable(self._ports.models.wider(name), principal)

    async def reserve(
        self, exchange: Exchange, attempts: Attempts, reach: Reach, raw: Raw, sound_s: float | None = None
    ) -> None:
        """Reserve the most that the request can cost. ``sound_s`` is how long the audio in it lasts, if that is known.
        Raises ProxyError."""
        # Nothing is known about compressed bytes. Under a limit, they are refused in any case.
        asked = raw.head.asked if raw.head is not None else {} if raw.is_unread else None
        further = further_of(self._ports.models, reach, exchange.requested.model, attempts.deployment)
        size, method, path = sum(map(len, (asked or {}).values())), exchange.arrival.method, exchange.parsed.text
        exchange.requested.demand = await self._aside.run_large(size, demand_of, method, path, asked, sound_s)
        body: bytes | ParsedBody | None = raw.head.parsed if raw.head is not None else None
        if body is None and isinstance(raw.body, bytes):
            body = raw.body
        if body is not None and not exchange.sent:
            exchange.sent = ((body, 0),)
        exchange.requested.further = further.deployments
        await self._ports.admission.reserve(exchange, (*attempts.others, *further.deployments))
        if raw.is_unread and exchange.reservation is not None and exchange.reservation.is_limited:
            refuse_compressed()
        refuse_unpriced(exchange, reach, further)


def _without_credentials(levels: Levels) -> Levels:
    return [[without_credentials(deployment) for deployment in level] for level in levels]


def levels_of(models: ModelTable, exchange: Exchange, reach: Reach) -> Levels:
    """The deployments that may serve the exchange. Sets the ``model`` of the exchange if the request's path or the
    client's header names it, and records what decided it. Raises UnknownModel, InvalidRequest."""
    named = exchange.requested.model or model_of_place(models, reach)
    pin = exchange.objects.pin
    model = named or (reach.chosen if pin is None else "")
    refuse_key_in_model(model, exchange)
    requested = exchange.requested
    if model:
        if model != requested.model:
            requested.model, requested.decided_by = model, "" if named else "header"
        return models.levels(model)
    found = models.unnamed()
    requested.decided_by = "object" if pin is not None else "first" if len(found) > 1 else "configuration"
    return ((found[0],),)


async def fitting(
    planner: Planner, window_of: WindowOf, exchange: Exchange, parsed: ParsedBody, levels: Levels, wider: Levels
) -> tuple[Levels, Levels]:
    """The request's deployments, and those with wider windows, reduced to those whose window holds its prompt. If no
    deployment of its own name has room for it, the wider ones serve it. A request that is fitted to a window anyway
    keeps its own deployments if no other is wide enough. As with LiteLLM's ``enable_pre_call_checks``, only the prompt
    is counted (https://docs.litellm.ai/docs/routing#pre-call-checks-context-window-eu-regions). Raises
    ContextTooLong."""
    windows = [window_of(deployment) for level in (*levels, *wider) for deployment in level]
    tokens = await planner.tokens(parsed) if any(window is not None for window in windows) else None
    if tokens is None or all(window is None or tokens <= window for window in windows):
        return levels, wider
    own, others, name = _fitting(levels, tokens, window_of), _fitting(wider, tokens, window_of), levels[0][0].name
    if any(deployment.name == name for level in own for deployment in level):
        return own, others
    if others:
        return others, ()
    if own or exchange.window is not None:
        return own or levels, ()
    most = max(window for window in windows if window is not None)
    raise ContextTooLong(
        f"the messages have about {tokens} tokens, and the models that may serve the request read at most {most}:"
        " send fewer or shorter messages"
    )


def _fitting(levels: Levels, tokens: int, window_of: WindowOf) -> Levels:
    found = [[d for d in level if (window := window_of(d)) is None or tokens <= window] for level in levels]
    return [level for level in found if level]
