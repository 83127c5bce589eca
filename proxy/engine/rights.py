"""Checks what a key may ask for against everything that its request can reach (``proxy.core.access.reach``).

With a key that has a list of models, a request that is not understood is refused. With a key under a budget or a rate
limit, a request that cannot be priced is refused. All other requests pass unchanged.
"""

from collections.abc import Callable
from urllib.parse import quote

from proxy.core.access.reach import Asked, ModelPlace, Reach, reach_of, speaks_of_models
from proxy.core.account.paths import Path
from proxy.core.model_patterns import allows, allows_all, is_ordinary
from proxy.core.request.wants import wants_of
from proxy.core.value import dataclass, replace
from proxy.deployments import ModelTable
from proxy.engine.attempts.retry import Levels
from proxy.engine.bodies.raw import Raw, has_body
from proxy.engine.bodies.upload import Upload
from proxy.engine.custody import refers
from proxy.engine.exchange import Exchange
from proxy.engine.ports import Client
from proxy.errors import Forbidden, UnknownModel
from proxy.ports import Deployment, Principal, Transport

_SHOWN_CHARS = 128
_MAY_ASK = ("tools", "plugins")
"""Members that may ask another model if they hold something unknown (``proxy.core.request.wants``)."""


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
    is_listed = not allows_all(principal.models)
    if not (is_listed or principal.is_confined):
        return None

    def is_refused(name: str) -> bool:
        names_model = is_listed and speaks_of_models(name) and name != "model"
        return names_model or (principal.is_confined and refers(name))

    return is_refused


def reach_of_request(path: Path, client: Client, raw: Raw, principal: Principal) -> Reach:
    """Everything that a request can reach. For a key with a list of models, the models that its tools may ask count,
    too."""
    form_model = raw.body.model if isinstance(raw.body, Upload) else None
    has_one = raw.body != b"" if isinstance(raw.body, bytes) else has_body(client)
    asked = Asked(client.method, path, client.query, client.headers, raw.members, form_model, has_body=has_one)
    reach = reach_of(asked)
    if not reach.unread and not allows_all(principal.models) and (odd := wants_of(raw.members or {})[1]) in _MAY_ASK:
        reach = replace(reach, unread=f"its '{odd}' may ask a model that is not named")
    return reach


def model_of_place(models: ModelTable, reach: Reach) -> str:
    """The model that the path names, if this proxy has it, else empty."""
    if reach.place is None:
        return ""
    try:
        models.levels(reach.place.name)
    except UnknownModel:
        return ""
    return reach.place.name


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
    if reach.is_listing or allows_all(principal.models):
        return levels
    asked, first = exchange.requested.model, levels[0][0]
    if reach.unread:
        why = f"of this request it is not known which: {reach.unread}"
        raise Forbidden(f"This key may use certain models only, and {why}.")
    if reach.is_foreign or not reach.models:
        raise Forbidden("This key may not use paths that name no model.")
    if asked and not _is_allowed(principal, first, asked):
        raise _not_allowed(asked)
    others = [name for name in reach.models if name != asked]
    for deployment, name in zip(further.deployments, others, strict=False):
        if not _is_allowed(principal, deployment, name):
            raise _not_allowed(name)
    if further.unknown is not None:
        raise _not_allowed(further.unknown)
    return usable(levels, principal, first.name)


def usable(levels: Levels, principal: Principal, checked: str | None = None) -> Levels:
    """The deployments that a key may use by their own names. Deployments of the name ``checked`` stay in any case."""
    if allows_all(principal.models):
        return levels
    found = [
        [d for d in level if d.name == checked or allows(principal.models, _names(d), d.groups)] for level in levels
    ]
    return [level for level in found if level]


def refuse_unpriced(exchange: Exchange, reach: Reach, further: Further) -> None:
    """Raises Forbidden if a limit holds for the request and its price cannot be known."""
    if exchange.reservation is None or not exchange.reservation.is_limited or reach.is_listing:
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
