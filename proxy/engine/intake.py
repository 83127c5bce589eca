"""Checks every request before it is forwarded: its sender, the deployments that may serve it, and its budget.

What a key may ask for is checked against everything that its request can reach (``proxy.protocol.access``). With a key
that has a list of models, a request that is not understood is refused. With a key under a budget or a rate limit, a
request that cannot be priced is refused. All other requests pass unchanged.

The key of a request's session is the same on every worker. It is what the client says about its session, or else the
beginning of the first user message: the instructions and contexts before that message may change, and the end of the
conversation always changes.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from urllib.parse import quote

from proxy.engine.attempts import ONE_TRY, Attempts, Breakers, Levels, ordered
from proxy.engine.bodies import Raw, Upload, check_addressed, has_body, refuse_compressed
from proxy.engine.custody import Custody, pinned, refers
from proxy.engine.exchange import Exchange, ObjectUse, Principal, Requested
from proxy.engine.headers import get, refuse_key_in_model, refuse_key_in_path, without_credentials, without_keys_of
from proxy.engine.ports import BodyLimits, Client, Planner, Ports
from proxy.kit.clock import request_time
from proxy.kit.errors import ContextTooLong, Forbidden, UnknownModel
from proxy.kit.resilience import RETRY_COUNT, USER_AGENT, RetryPolicy
from proxy.kit.value import dataclass, digest, replace
from proxy.models import Deployment, Transport
from proxy.models.deployments import ModelTable
from proxy.protocol.access import ModelPlace, Reach, allows, is_ordinary, reach_of, speaks_of_models
from proxy.protocol.account import Path, operation_of
from proxy.protocol.request import ParsedBody, RequestFields
from proxy.protocol.request.demand import demand_of, wants_of
from proxy.protocol.wire.json_body import Unreadable, members_of, one_line, value

_SHOWN_CHARS = 128
# Members that may ask another model if they hold something unknown (``proxy.protocol.request.demand``).
_MAY_ASK = ("tools", "plugins")
# Stands for what a chat can reach beside its model, as long as neither a list of models nor a limit depends on it.
_NOT_ASKED = Reach(unread="this was not looked for")


@dataclass(frozen=True, slots=True)
class Further:
    """The models that a request can reach in addition to the one that selects its deployment. ``unknown`` is one of
    them that the same upstream does not serve under the same name, so neither the model nor its price is known."""

    deployments: tuple[Deployment, ...] = ()
    unknown: str | None = None


def refused_fields(principal: Principal) -> Callable[[str], bool] | None:
    """A function that returns whether a form with this key must not have a field of a given name. For a team that has
    only its own objects, these are fields that refer to objects of the account. For a key with a list of models, these
    are fields that select further models. None if every field passes."""
    is_listed = bool(principal.models)
    if not (is_listed or principal.is_confined):
        return None

    def is_refused(name: str) -> bool:
        return is_listed and speaks_of_models(name) and name != "model" or (principal.is_confined and refers(name))

    return is_refused


def reach_of_request(path: Path, client: Client, raw: Raw, principal: Principal) -> Reach:
    """Everything that a request can reach. For a key with a list of models, the models that its tools may ask count,
    too."""
    form_model = raw.body.model if isinstance(raw.body, Upload) else None
    has_one = raw.body != b"" if isinstance(raw.body, bytes) else has_body(client)
    headers, members = client.headers, raw.head.members if raw.head is not None else None
    reach = reach_of(client.method, path, client.query, headers, members, form_model, has_body=has_one)
    if principal.models and not reach.unread and (odd := wants_of(members or {})[1]) in _MAY_ASK:
        reach = replace(reach, unread=f"its '{odd}' may ask a model that is not named")
    return reach


def path_for(path: str, place: ModelPlace | None, asked: str, model: str) -> str:
    """The path with the upstream's name for the model, if the path names the model."""
    if place is None or place.name != asked or asked == model:
        return path
    segments = path.split("/")
    segments[place.number + 1] = quote(model, safe="@:") + place.rest
    return "/".join(segments)


def further_of(models: ModelTable, reach: Reach, asked: str, first: Deployment) -> Further:
    """The models that the request can reach in addition to the one that it asks for. ``first`` serves the model that it
    asks for."""
    found: list[Deployment] = []
    for name in reach.models:
        if name == asked:
            continue
        try:
            deployment = models.levels(name)[0][0]
        except UnknownModel:
            return Further(tuple(found), name)
        if not is_same_upstream(deployment, first) or not _is_called(deployment, name):
            return Further(tuple(found), name)
        found.append(deployment)
    return Further(tuple(found))


def permitted(levels: Levels, principal: Principal, exchange: Exchange, reach: Reach, further: Further) -> Levels:
    """The deployments of a name that a key may use. The client's name for a model counts for the first of them. A
    deployment that replaces it must be allowed by its own name. Raises Forbidden."""
    asked, first = exchange.requested.model, levels[0][0]
    if reach.unread:
        why = f"of this request it is not known which: {reach.unread}"
        raise Forbidden(f"This key may use certain models only, and {why}.")
    if reach.is_foreign or not reach.models:
        raise Forbidden("This key may not use paths that name no model.")
    if asked and not _is_allowed(principal, first, asked):
        raise _not_allowed(asked)
    for deployment, name in zip(further.deployments, [name for name in reach.models if name != asked], strict=False):
        if not _is_allowed(principal, deployment, name):
            raise _not_allowed(name)
    if further.unknown is not None:
        raise _not_allowed(further.unknown)
    return usable(levels, principal, first.name)


def usable(levels: Levels, principal: Principal, checked: str | None = None) -> Levels:
    """The deployments that a key may use by their own names. Deployments of the name ``checked`` stay in any case."""
    found = [
        [d for d in level if d.name == checked or allows(principal.models, _names(d), d.groups)] for level in levels
    ]
    return [level for level in found if level]


def refuse_unpriced(reach: Reach, further: Further) -> None:
    """Raises Forbidden for a request under a limit if its price cannot be known."""
    if reach.is_listing:
        return
    why = reach.unread
    if not why and further.unknown is not None:
        why = (
            f"the model '{_shown(further.unknown)}', which it can reach, is not in this proxy's model list by that name"
        )
    if why:
        raise Forbidden(
            f"A budget or a rate limit holds for this key, and what this request costs is not known: {why}.",
            code="model_price_unknown",
        )


def _is_allowed(principal: Principal, deployment: Deployment, asked: str) -> bool:
    # A star occurs only in patterns, never in a model's name. The entry of the model list that serves a name allows
    # only names that have no other meaning for a server.
    names = _names(deployment, asked) if is_ordinary(asked) else [asked]
    return "*" not in asked and allows(principal.models, names, deployment.groups if is_ordinary(asked) else ())


def _names(deployment: Deployment, asked: str = "") -> list[str]:
    return [name for name in (asked, deployment.name, deployment.entry) if name]


def is_same_upstream(one: Deployment, other: Deployment) -> bool:
    """Whether two deployments reach the same server with the same key."""
    return (one.transport, one.base_url, one.api_key) == (other.transport, other.base_url, other.api_key)


def _is_called(deployment: Deployment, name: str) -> bool:
    """Whether the upstream knows the model by that name. LiteLLM puts the provider's name before it."""
    bare = deployment.model.partition("/")[2] if deployment.transport is Transport.LITELLM else deployment.model
    return name in (deployment.model, bare)


def _not_allowed(name: str) -> Forbidden:
    return Forbidden(f"This key may not use the model '{_shown(name)}'.", param="model")


def _shown(name: str) -> str:
    return name.encode("utf-8", "replace").decode()[:_SHOWN_CHARS]


# Only so many bytes of the first user message count. Later bytes may change, for example files in the chat.
_LEAD_BYTES = 256


def session_key(principal: Principal, head: RequestFields | None) -> bytes:
    """The key of a request's session within its scope."""
    scope = principal.scope.encode()
    if principal.session_hint:
        return digest(scope, b"hint", principal.session_hint.encode("utf-8", "surrogateescape"))
    members = head.members if head is not None else None
    if head is None or members is None:
        return digest(scope)
    given = members.get("prompt_cache_key")
    if given is not None:
        return digest(scope, b"cache-key", bytes(given))
    return digest(scope, b"lead", _lead(head.parsed))


def _lead(parsed: ParsedBody | None) -> bytes:
    """The beginning of the first user message, as far as the messages can be read."""
    with suppress(Unreadable):
        for raw in parsed.raws() if parsed is not None and "messages" in parsed.members else ():
            message = members_of(raw)
            with suppress(KeyError, Unreadable):
                if value(message["role"]) == "user":
                    return bytes(message["content"])[:_LEAD_BYTES]
    return b""


WindowOf = Callable[[Deployment], int | None]
"""The most tokens that a deployment's model reads. None if that is not known."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """The limits of a request, and how often it is tried. ``trust_time_header``: requests may bring their own time, as
    replays do. ``window_of``: if given, chat requests that are too long for a model are not sent to it. ``tells_id``:
    the id of each request is sent to the upstream."""

    limits: BodyLimits = BodyLimits()
    retries: RetryPolicy = ONE_TRY
    trust_time_header: bool = False
    window_of: WindowOf | None = None
    tells_id: bool = True


class Intake:
    """Takes requests in. Its methods are called in the order in which they are written here."""

    def __init__(self, ports: Ports, rules: RequestRules, breakers: Breakers, custody: Custody | None) -> None:
        self._ports = ports
        self.rules = rules
        self._breakers = breakers
        self._custody = custody

    async def enter(self, exchange: Exchange, client: Client) -> Principal:
        """Identify the sender of the request, and check that its path may be used. Raises ProxyError."""
        now = request_time(client.headers, self._ports.clock) if self.rules.trust_time_header else exchange.arrival.now
        principal = exchange.principal = self._ports.admission.admit(client.headers, now)
        if not exchange.arrival.is_chat:  # the path of a chat is the proxy's own
            refuse_key_in_path(client.path, client.headers, principal)
            if self._custody is not None:
                exchange.objects = ObjectUse(operation_of(exchange.arrival.method, exchange.parsed.segments))
        if self._custody is not None and principal.is_confined:
            await self._custody.enter(exchange, client)
        return principal

    def arrived(self, exchange: Exchange, client: Client, size: int) -> None:
        """The request is complete. The client's own slowness up to here is not counted as the proxy's."""
        arrival, clock = exchange.arrival, self._ports.clock
        arrival.now = request_time(client.headers, clock) if self.rules.trust_time_header else clock.now()
        arrival.opened, arrival.size = perf_counter(), size

    async def route(self, exchange: Exchange, client: Client, raw: Raw, *, may_repeat: bool) -> tuple[Attempts, Reach]:
        """The deployments that may serve the request, in the order in which its session calls them, and everything that
        the request can reach, unless nothing depends on it. If the request must not be repeated, only the first
        deployment is called, once. Raises ProxyError, also if the request may not use the objects that its body
        names."""
        if self._custody is not None and exchange.principal.is_confined:
            await self._custody.read(exchange, raw)
        principal, head, models, reach = exchange.principal, raw.head, self._ports.models, _NOT_ASKED
        if principal.models or not exchange.arrival.is_chat:
            reach = await self._reach(exchange, client, raw)
        if head is not None:
            exchange.requested = Requested(head.model, head.stream, head.wants_usage)
            if head.user and not principal.user:
                exchange.principal = replace(principal, user=one_line(without_keys_of(exchange, head.user)))
        if exchange.arrival.addressed:
            check_addressed(exchange)
        levels = levels_of(models, exchange, reach)
        exchange.deployment = levels[0][0]
        if principal.models and not reach.is_listing:
            further = further_of(models, reach, exchange.requested.model, levels[0][0])
            levels = permitted(levels, principal, exchange, reach, further)
        wider: Levels = ()
        # A request whose objects live at one provider stays there, even if a context window is too small.
        if exchange.objects.pin is not None:
            levels = pinned(levels, exchange, exchange.objects.pin)
        elif may_repeat and exchange.requested.model and (wider := models.wider(exchange.requested.model)):
            wider = usable(wider, principal) if principal.models else wider
        if principal.forwards_key:
            levels, wider = _without_credentials(levels), _without_credentials(wider)
        parsed = head.parsed if head is not None else None
        if self.rules.window_of is not None and parsed is not None and exchange.arrival.is_chat:
            levels, wider = await fitting(self._ports.planner, self.rules.window_of, exchange, parsed, levels, wider)
        if any(len(level) > 1 for level in (*levels, *wider)):
            key = await self._ports.aside.run_large(raw.size, session_key, principal, head)
            levels, wider = [ordered(level, key) for level in levels], [ordered(level, key) for level in wider]
        sent, repeats = client.headers, self.rules.retries
        told = exchange.requested.model, get(sent, RETRY_COUNT), get(sent, USER_AGENT)
        policy = repeats.of(*told) if may_repeat else ONE_TRY
        on_failure = partial(self._ports.meter.failed, exchange)
        attempts = Attempts(
            levels, self._breakers, policy, exchange.elapsed_s, on_failure, wider=wider if may_repeat else None
        )
        exchange.deployment = attempts.deployment
        return attempts, reach

    async def _reach(self, exchange: Exchange, client: Client, raw: Raw) -> Reach:
        run, size = self._ports.aside.run_large, exchange.arrival.size
        return await run(size, reach_of_request, exchange.parsed, client, raw, exchange.principal)

    async def reserve(
        self,
        exchange: Exchange,
        client: Client,
        attempts: Attempts,
        reach: Reach,
        raw: Raw,
        sound_s: float | None = None,
    ) -> None:
        """Reserve the most that the request can cost. ``sound_s`` is how long the audio in it lasts, if that is known.
        Raises ProxyError."""
        # Nothing is known about compressed bytes. Under a limit, they are refused in any case.
        asked = raw.head.asked if raw.head is not None else {} if raw.is_unread else None
        size, method, path = sum(map(len, (asked or {}).values())), exchange.arrival.method, exchange.parsed.text
        exchange.requested.demand = await self._ports.aside.run_large(size, demand_of, method, path, asked, sound_s)
        body: bytes | ParsedBody | None = raw.head.parsed if raw.head is not None else None
        if body is None and isinstance(raw.body, bytes):
            body = raw.body
        if body is not None and not exchange.sent:
            exchange.sent = ((body, 0),)
        if reach is _NOT_ASKED and self._ports.admission.limits(exchange.principal):
            reach = await self._reach(exchange, client, raw)
        models, asked_for = self._ports.models, exchange.requested.model
        further = Further() if reach is _NOT_ASKED else further_of(models, reach, asked_for, attempts.deployment)
        exchange.requested.further = further.deployments
        await self._ports.admission.reserve(exchange, (*attempts.others, *further.deployments))
        if exchange.reservation is not None and exchange.reservation.is_limited:
            if raw.is_unread:
                refuse_compressed()
            refuse_unpriced(reach, further)


def _without_credentials(levels: Levels) -> Levels:
    return [[without_credentials(deployment) for deployment in level] for level in levels]


def levels_of(models: ModelTable, exchange: Exchange, reach: Reach) -> Levels:
    """The deployments that may serve the exchange. Sets the ``model`` of the exchange if the request's path or the
    client's header names it, and records what decided it. Raises UnknownModel, InvalidRequest."""
    named = exchange.requested.model
    if not named and reach.place is not None:
        with suppress(UnknownModel):
            models.levels(reach.place.name)
            named = reach.place.name  # the path names it, and this proxy has it
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
