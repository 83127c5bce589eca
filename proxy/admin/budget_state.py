"""How much of a budget is spent: read from the same counters that requests are checked against."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.admin.forms import in_unit
from proxy.core.money.budget import Rule
from proxy.spend.counters import account_of, counter_of
from proxy.spend.epochs import Epochs
from proxy.spend.rules import rule_of
from proxy.spend.windows import Window, window_at
from proxy.storage.port import Balance, BudgetRecord, Charge, MoneyStore


class BudgetStatus:
    """The state of budgets that are one pot. What is counted for each key, user or model apart has no one state."""

    def __init__(self, store: MoneyStore, epochs: Epochs) -> None:
        self._store = store
        self._epochs = epochs

    async def set_spent(
        self, budget: BudgetRecord, whom: str, amount: int, now: float, *, is_dry: bool
    ) -> Mapping[str, Any]:
        """Correct what is spent in the window of now, by or for ``whom``; how it was and how it is. A dry run shows
        what would be. Raises StoreError."""
        rule = rule_of(budget, whom)
        window = window_at(rule.window, rule.timezone, now)
        account, *within = _accounts(rule, window)
        if is_dry:
            before = _sum(await self._store.balances(budget.team, [account, *within], now))
        else:
            before = await self._store.set_spent(
                budget.team, Charge(account, amount, None, window.keep_s, within=within), now
            )
            await self._epochs.restored(counter_of(budget.team, rule))
        return {
            "spent_before": in_unit(budget, before.spent),
            "spent": in_unit(budget, amount),
            "reserved": in_unit(budget, before.reserved),
            "left": None if budget.hard is None else in_unit(budget, budget.hard - amount - before.reserved),
            "resets_at": window.resets_at,
        }

    async def state(self, budget: BudgetRecord, now: float) -> Mapping[str, Any]:
        """What is spent and reserved in the window of now, what is left, and when it begins anew. Raises StoreError."""
        if not is_one_pot(budget):
            return {}
        rule = rule_of(budget, "" if budget.scope == "team" else budget.subject)
        window = window_at(rule.window, rule.timezone, now)
        balances = await self._store.balances(budget.team, _accounts(rule, window), now)
        found = _sum(balances)
        return {
            "spent": in_unit(budget, found.spent),
            "reserved": in_unit(budget, found.reserved),
            "left": None if budget.hard is None else in_unit(budget, budget.hard - found.spent - found.reserved),
            "resets_at": window.resets_at,
        }


def is_one_pot(budget: BudgetRecord) -> bool:
    """Whether all that the budget is about is counted together."""
    return budget.scope == "team" or "*" not in budget.subject or (budget.scope == "model" and budget.subject != "*")


def _sum(balances: Sequence[Balance]) -> Balance:
    return Balance(balances[0].account, sum(one.spent for one in balances), sum(one.reserved for one in balances))


def _accounts(rule: Rule, window: Window) -> Sequence[str]:
    return [account_of(rule, window), *(account_of(rule, replace(window, name=name)) for name in window.within)]
