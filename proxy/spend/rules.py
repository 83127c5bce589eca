"""Which budgets and rate limits hold for a request, by the directory: the Rules port."""

from collections.abc import Iterator, Sequence

from proxy.access.directory import Directory
from proxy.core.model_patterns import matches
from proxy.core.money.budget import Rule, Unit
from proxy.ports import Deployment, Principal
from proxy.storage.port import BudgetRecord

# No budget has such an id: names have no slash.
REQUESTS_ID = "rate/requests"
TOKENS_ID = "rate/tokens"
_REQUESTS: Unit = "requests"
_TOKENS: Unit = "tokens"
_MINUTE = "minute"


class LimitResolver:
    """Asked for each request; answers from the directory's snapshot. ``webhook`` is that of budgets that have none."""

    def __init__(self, directory: Directory, webhook: str = "") -> None:
        self._directory = directory
        self._webhook = webhook

    @property
    def are_known(self) -> bool:
        """Whether the store was read."""
        return self._directory.is_loaded

    def rules(self, principal: Principal, deployment: Deployment) -> Sequence[Rule]:
        """The rate limits of key and team, then every budget that holds."""
        budgets = self._directory.snapshot.budgets_of(principal.team)
        if not budgets and not principal.rates:
            return ()
        found = (budget_rule(budget, principal, deployment.name, self._webhook) for budget in budgets)
        return [*_rate_rules(principal), *(rule for rule in found if rule is not None)]


def budget_rule(budget: BudgetRecord, principal: Principal, model: str, webhook: str = "") -> Rule | None:
    """The rule that a budget is for a subject's request; None where it is about somebody or something else.

    A request without a user (or key) counts, under a budget for each of them, together with all others of that kind:
    to name nobody is no way around it.
    """
    named = {"team": "", "key": principal.key_id, "user": principal.user, "model": model}[budget.scope]
    if budget.scope != "team" and not matches(budget.subject, named):
        return None
    # A pattern of models is one pot; "*" alone is a pot for each.
    whom = named if budget.subject == "*" or budget.scope != "model" else budget.subject
    return rule_of(budget, whom, webhook)


def rule_of(budget: BudgetRecord, whom: str, webhook: str = "") -> Rule:
    """A budget as a rule, for one of those that it counts apart."""
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
    """What a budget is called within its team: a declared one's id is ``team/name``."""
    return budget.id.removeprefix(f"{budget.team}/")


def _rule_id(budget: BudgetRecord) -> str:
    """The name. A budget that was deleted and made anew in another unit must not find the old one's counters."""
    name = budget_name(budget)
    return name if name.endswith("tokens") == (budget.unit == "tokens") else f"{name}/{budget.unit}"


def _title(budget: BudgetRecord, whom: str) -> str:
    whose = f" for {budget.scope} '{whom}'" if whom else f" for no {budget.scope}" if budget.scope != "team" else ""
    return f"the budget '{budget_name(budget)}' of team '{budget.team}'{whose}"


def _rate_rules(principal: Principal) -> Iterator[Rule]:
    for rate in principal.rates:
        whose = f"key '{rate.holder}'" if rate.holder else f"team '{principal.team}'"
        for rule_id, unit, hard in ((REQUESTS_ID, _REQUESTS, rate.requests), (TOKENS_ID, _TOKENS, rate.tokens)):
            if hard is not None:
                title = f"the rate limit of {whose}"
                yield Rule(rule_id, title, unit, hard, window=_MINUTE, whom=rate.holder, is_rate=True)
