"""Finds the budgets and rate limits that hold for a request, in the directory."""

from collections.abc import Iterator, Sequence

from proxy.access.directory import Directory
from proxy.core.model_patterns import matches
from proxy.core.money.budget import Rule, Unit
from proxy.ports import Deployment, Principal, RateLimit
from proxy.storage.port import BudgetRecord

# No budget has such an id, because names have no slash.
REQUESTS_ID = "rate/requests"
TOKENS_ID = "rate/tokens"
DEPLOYMENT_REQUESTS_ID = "rate/deployment/requests"
DEPLOYMENT_TOKENS_ID = "rate/deployment/tokens"


class LimitResolver:
    """Finds the rules for each request in the directory's snapshot, without waiting. ``webhook`` is the default for
    budgets without a webhook."""

    def __init__(self, directory: Directory, webhook: str = "") -> None:
        self._directory = directory
        self._webhook = webhook

    @property
    def are_known(self) -> bool:
        """Whether the store was read. Until then there may be more rules."""
        return self._directory.is_loaded

    def rules(self, principal: Principal, deployment: Deployment) -> Sequence[Rule]:
        """The rate limits of key and team, then every budget that holds."""
        budgets = self._directory.snapshot.budgets_of(principal.team)
        found = (budget_rule(budget, principal, deployment.name, self._webhook) for budget in budgets)
        return [*_rate_rules(principal), *(rule for rule in found if rule is not None)]


def budget_rule(budget: BudgetRecord, principal: Principal, model: str, webhook: str = "") -> Rule | None:
    """A budget as the rule for a request; None if the budget is for another key, user or model.

    Under a budget for each user (or key), all requests that name no user (or key) share one counter, so that no request
    escapes the budget by naming nobody.
    """
    named = {"team": "", "key": principal.key_id, "user": principal.user, "model": model}[budget.scope]
    if budget.scope != "team" and not matches(budget.subject, named):
        return None
    # A pattern of models has one counter; "*" alone has a counter for each model.
    whom = named if budget.subject == "*" or budget.scope != "model" else budget.subject
    return rule_of(budget, whom, webhook)


def rule_of(budget: BudgetRecord, whom: str, webhook: str = "") -> Rule:
    """A budget as a rule, for the one key, user or model that ``whom`` names."""
    return Rule(
        id=_rule_id(budget),
        title=_title(budget, whom),
        unit=budget.unit,
        hard=budget.hard,
        soft=budget.soft,
        window=budget.window,
        timezone=budget.timezone,
        whom=whom,
        assumed_output_tokens=budget.assumed_output_tokens,
        webhook=budget.webhook or webhook,
    )


def budget_name(budget: BudgetRecord) -> str:
    """The name of a budget within its team. The id is ``team/name``."""
    return budget.id.removeprefix(f"{budget.team}/")


def _rule_id(budget: BudgetRecord) -> str:
    """The budget's name, with its unit if the name does not show the unit. A budget that was deleted and created again
    in another unit must not find the old counters."""
    name = budget_name(budget)
    return name if name.endswith("tokens") == (budget.unit == "tokens") else f"{name}/{budget.unit}"


def _title(budget: BudgetRecord, whom: str) -> str:
    whose = f" for {budget.scope} '{whom}'" if whom else f" for no {budget.scope}" if budget.scope != "team" else ""
    return f"the budget '{budget_name(budget)}' of team '{budget.team}'{whose}"


def deployment_rules(deployment: Deployment) -> Sequence[Rule]:
    """The limits of a deployment itself, for the requests of all senders together."""
    if deployment.rates is None:
        return ()
    ids = (DEPLOYMENT_REQUESTS_ID, DEPLOYMENT_TOKENS_ID)
    holder = deployment.rates.holder or deployment.id
    return list(_rules_of(deployment.rates, f"deployment '{holder}'", holder, ids))


def _rate_rules(principal: Principal) -> Iterator[Rule]:
    for rate in principal.rates:
        whose = f"key '{rate.holder}'" if rate.holder else f"team '{principal.team}'"
        yield from _rules_of(rate, whose, rate.holder, (REQUESTS_ID, TOKENS_ID))


def _rules_of(rate: RateLimit, whose: str, whom: str, ids: tuple[str, str]) -> Iterator[Rule]:
    limits: tuple[tuple[Unit, int | None], ...] = (("requests", rate.requests), ("tokens", rate.tokens))
    for rule_id, (unit, hard) in zip(ids, limits, strict=True):
        if hard is not None:
            yield Rule(rule_id, f"the rate limit of {whose}", unit, hard, window="minute", whom=whom, is_rate=True)
