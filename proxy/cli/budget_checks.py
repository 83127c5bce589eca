"""Finds budgets that are smaller than what one ordinary request reserves. Such a budget refuses requests from the first
day on."""

from collections.abc import Iterator, Sequence

from proxy.core.model_patterns import allows, matches
from proxy.core.money.budget import nanos, worst_case
from proxy.core.money.charges import longest_output
from proxy.deployments import ModelTable
from proxy.ports import Deployment
from proxy.settings import Budget, Settings, Team
from proxy.spend.estimates import PriceOf


def tight_budgets(settings: Settings, table: ModelTable, price_of: PriceOf) -> Iterator[str]:
    """A warning for each budget that is too small for one request without a limit of its own, at some model that is
    listed by its name. The prompt is not counted."""
    for index, team in enumerate(settings.stratiform.teams):
        served = list(_served(team, table))
        for at, budget in enumerate(team.all_budgets):
            listed = at - 1 if team.budget else at
            place = "budget" if listed < 0 else f"budgets[{listed}]"
            yield from _tight(budget, team, served, price_of, f"stratiform.teams[{index}].{place}")


def _served(team: Team, table: ModelTable) -> Iterator[Deployment]:
    for name, deployment in table.listed():
        if not team.models or allows([team.models], [name, deployment.name, deployment.entry], deployment.groups):
            yield deployment


def _tight(budget: Budget, team: Team, served: Sequence[Deployment], price_of: PriceOf, path: str) -> Iterator[str]:
    amounts: dict[str, int] = {}
    for deployment in served:
        if _holds(budget, deployment):
            amount = _reserved(budget, team, deployment, price_of)
            amounts[deployment.name] = max(amount, amounts.get(deployment.name, 0))
    limit = budget.tokens if budget.unit == "tokens" else nanos(budget.usd or 0.0)
    # A budget of nothing at all is meant as it is written.
    refused = [name for name, amount in amounts.items() if limit and amount > limit]
    if refused:
        most = max(amounts[name] for name in refused)
        shown = f"{most} tokens" if budget.unit == "tokens" else f"${most / 10**9:.2f}"
        whom = ", ".join(f"`{name}`" for name in refused[:3]) + (", ..." if len(refused) > 3 else "")
        yield (
            f"{path}: one request without max_tokens sets aside up to {shown}, which is more than all of it, and is "
            f"refused ({whom}); set assumed_output_tokens"
        )


def _reserved(budget: Budget, team: Team, deployment: Deployment, price_of: PriceOf) -> int:
    """What the answer alone reserves, as ``proxy.spend.estimates`` computes it."""
    price = price_of(deployment)
    assumed = [one.assumed_output_tokens for one in team.all_budgets if _holds(one, deployment)]
    known = [tokens for tokens in assumed if tokens is not None]
    longest = longest_output(max(known) if len(known) == len(assumed) else None, price)
    if budget.unit == "tokens":
        return longest
    return 0 if price is None else worst_case(price, 0, longest, long_life=False)


def _holds(budget: Budget, deployment: Deployment) -> bool:
    return budget.scope != "model" or matches(budget.subject, deployment.name)
