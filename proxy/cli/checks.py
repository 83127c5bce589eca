"""The checks of a configuration that ``serve`` and ``check-config`` share: provider keys that strangers could use,
restrictions of LiteLLM that are not enforced, expired keys, and budgets that are too small for any request."""

from collections.abc import Iterator, Sequence

from proxy.app import factories
from proxy.app.settings import IGNORE_FLAG, Budget, ConfigError, Effect, Settings, Team, Unused, unused_on_http
from proxy.app.ui.gate import is_loopback
from proxy.engine.headers import uses_operators_key
from proxy.kit.model_patterns import allows, matches
from proxy.models.charges import longest_output, nanos, worst_case
from proxy.models.deployment import Deployment, Transport
from proxy.models.deployments import ModelTable, deployment_of
from proxy.teams.estimates import PriceOf

# The dearest token of LiteLLM's price map costs 0.0097 USD.
_DEAR_USD = 0.02
_PER_TOKEN = ("_cost_per_token", "_token_cost")
# Values that are written in place of a key if a server needs none.
_PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "no-key", "not-needed", "not_needed", "x", "-"})


def refuse_exposed(settings: Settings, address: str, *, is_open: bool) -> None:
    """Refuse to serve if anybody who reaches this address could use the operator's keys.

    ``address`` is the address that the socket is bound to. ``is_open`` says that any key is accepted. Raises
    ConfigError.
    """
    if not is_open or settings.stratiform.open_to_network or is_loopback(address):
        return
    if names := list(provider_keys(settings)):
        raise ConfigError([
            f"stratiform.host: listens on {address or 'every address'}, beyond this machine, and accepts any key, "
            f"while {_first_of(names)} would be served with the operator's own key: set general_settings.master_key or "
            "stratiform.teams, listen on 127.0.0.1, or say stratiform.open_to_network: true"
        ])  # fmt: skip


def provider_keys(settings: Settings) -> Iterator[str]:
    """The names of the models that are served with the operator's credentials. With litellm the credentials may come
    from the environment, or from the role of the machine."""
    for entry in factories.entries_with(settings)[0]:
        deployment = deployment_of(entry, no_price)
        is_placeholder = (deployment.api_key or "").strip().lower() in _PLACEHOLDERS
        has_key = uses_operators_key(deployment) and not is_placeholder
        is_signed = has_key or "@" in deployment.base_url.partition("://")[2].partition("/")[0]
        if deployment.transport is Transport.LITELLM or (deployment.transport is Transport.HTTP and is_signed):
            yield entry.name


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")


def no_price(deployment: Deployment) -> None:
    """A source without prices, for questions that do not depend on prices."""


IGNORE_HELP = "accept the file even if it restricts clients in ways that this proxy does not enforce"


def not_honoured(settings: Settings) -> list[Unused]:
    """The keys that are not honoured, although they change permissions or the sent requests. Restrictions come
    first."""
    found, lines = [*settings.unused], {entry.line: entry for entry in factories.entries_with(settings)[0]}
    for index, given in enumerate(settings.models):
        if deployment_of(lines[index], no_price).transport is Transport.HTTP:
            found += unused_on_http(given, f"model_list[{index}]")
    told = (Effect.RESTRICTS, Effect.CHANGES, Effect.UNKNOWN)
    return sorted((one for one in found if one.effect in told), key=lambda one: told.index(one.effect))


def unsupported(settings: Settings) -> Iterator[str]:
    """The restrictions that a configuration relies on and this proxy does not enforce. The configuration is refused
    because of them."""
    for one in settings.unused:
        if one.effect is Effect.RESTRICTS:
            yield f"{one} (to start without it: {IGNORE_FLAG})"


def expired_keys(settings: Settings, now: float) -> Iterator[str]:
    for place, team in enumerate(settings.stratiform.teams):
        for index, key in enumerate(team.keys):
            if key.expires_at is not None and key.expires_at <= now:
                yield f"stratiform.teams[{place}].keys[{index}].expires: has passed: the key is refused; remove it"


def tight_budgets(settings: Settings, table: ModelTable, price_of: PriceOf) -> Iterator[str]:
    """A warning for each budget that is too small for one request without an output limit, at some model that is listed
    by its name. The prompt is not counted."""
    for index, team in enumerate(settings.stratiform.teams):
        served = [
            deployment
            for name, deployment in table.listed()
            if not team.models or allows([team.models], [name, deployment.name, deployment.entry], deployment.groups)
        ]
        for place, budget in placed_budgets(team):
            amounts: dict[str, int] = {}
            for one in (one for one in served if _holds(budget, one)):
                amounts[one.name] = max(amounts.get(one.name, 0), _reserved(budget, team, one, price_of))
            limit = budget.tokens if budget.unit == "tokens" else nanos(budget.usd or 0.0)
            # A budget of 0 is intended, so there is no warning about it.
            if refused := [name for name, amount in amounts.items() if limit and amount > limit]:
                most = max(amounts[name] for name in refused)
                shown = f"{most} tokens" if budget.unit == "tokens" else f"${most / 10**9:.2f}"
                yield (
                    f"stratiform.teams[{index}].{place}: one request without max_tokens sets aside up to {shown}, "
                    f"which is more than all of it, and is refused ({_first_of(refused)}); set assumed_output_tokens"
                )


def placed_budgets(team: Team) -> Iterator[tuple[str, Budget]]:
    """The budgets of a team, each with its path behind the team's."""
    if team.budget is not None:
        yield "budget", team.budget
    yield from ((f"budgets[{at}]", budget) for at, budget in enumerate(team.budgets))


def dear_prices(settings: Settings) -> Iterator[str]:
    """A warning for each price of a token that was probably meant for a million tokens."""
    given = [(f"stratiform.prices.{name}", price.model_dump()) for name, price in settings.stratiform.prices.items()]
    for index, entry in enumerate(settings.models):
        for part in ("litellm_params", "model_info"):
            given.append((f"model_list[{index}].{part}", getattr(entry, part).model_extra or {}))
    for path, prices in given:
        for name, usd in prices.items():
            if name.endswith(_PER_TOKEN) and isinstance(usd, int | float) and usd >= _DEAR_USD:
                yield f"{path}.{name}: is the price of one token; did you mean {usd / 1e6:g}, for {usd:g} a million?"


def _reserved(budget: Budget, team: Team, deployment: Deployment, price_of: PriceOf) -> int:
    """The reservation for the answer alone, as ``proxy.teams.estimates`` computes it."""
    price = price_of(deployment)
    assumed = [one.assumed_output_tokens for one in team.all_budgets if _holds(one, deployment)]
    known = [tokens for tokens in assumed if tokens is not None]
    longest = longest_output(max(known) if len(known) == len(assumed) else None, price)
    in_usd = 0 if price is None else worst_case(price, 0, longest, long_life=False)
    return longest if budget.unit == "tokens" else in_usd


def _holds(budget: Budget, deployment: Deployment) -> bool:
    return budget.scope != "model" or matches(budget.subject, deployment.name)
