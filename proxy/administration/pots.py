"""How much of a budget is spent: read from the same counters that requests are checked against."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.accounts import account_of
from proxy.administration.forms import in_unit
from proxy.core.budget import Rule
from proxy.rulebook import rule_of
from proxy.store import BudgetRecord, MoneyStore
from proxy.windows import Window, window_at


class Pots:
    """The state of budgets that are one pot. What is counted for each key, user or model apart has no one state."""

    def __init__(self, store: MoneyStore) -> None:
        self._store = store

    async def state(self, budget: BudgetRecord, now: float) -> Mapping[str, Any]:
        """What is spent and reserved in the window of now, what is left, and when it begins anew. Raises StoreError."""
        if budget.scope != "team" and "*" in budget.subject and not (budget.scope == "model" and budget.subject != "*"):
            return {}
        rule = rule_of(budget, "" if budget.scope == "team" else budget.subject)
        window = window_at(rule.window, rule.timezone, now)
        balances = await self._store.balances(budget.team, _accounts(rule, window), now)
        spent, reserved = sum(one.spent for one in balances), sum(one.reserved for one in balances)
        return {
            "spent": in_unit(budget, spent),
            "reserved": in_unit(budget, reserved),
            "left": None if budget.hard is None else in_unit(budget, budget.hard - spent - reserved),
            "resets_at": window.resets_at,
        }


def _accounts(rule: Rule, window: Window) -> Sequence[str]:
    return [account_of(rule, window), *(account_of(rule, replace(window, name=name)) for name in window.within)]
