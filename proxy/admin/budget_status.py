"""How much of a budget is spent. It is read from the counters that requests are checked against."""

from collections.abc import Mapping
from typing import Any

from proxy.admin.forms import in_unit
from proxy.spend.counters import charge_of, counter_of
from proxy.spend.epochs import Epochs
from proxy.spend.rules import rule_of
from proxy.spend.windows import Window, window_at
from proxy.storage.port import BudgetRecord, MoneyStore


class BudgetStatus:
    """The state of budgets that have one counter. Where each key, user or model is counted apart, there is none."""

    def __init__(self, store: MoneyStore, epochs: Epochs) -> None:
        self._store = store
        self._epochs = epochs

    async def set_spent(
        self, budget: BudgetRecord, whom: str, amount: int, now: float, *, is_dry: bool
    ) -> Mapping[str, Any]:
        """Correct what is spent in the current window, by or for ``whom``. Returns the state before and after. A dry
        run changes nothing and shows what would change. Raises StoreError."""
        rule = rule_of(budget, whom)
        window = window_at(rule.window, rule.timezone, now)
        charge = charge_of(rule, window, amount)
        if is_dry:
            before = await self._store.balance(budget.team, charge, now)
        else:
            before = await self._store.set_spent(budget.team, charge, now)
            await self._epochs.restored(counter_of(budget.team, rule))
        return {"spent_before": in_unit(budget, before.spent), **_view(budget, window, amount, before.reserved)}

    async def state(self, budget: BudgetRecord, now: float) -> Mapping[str, Any]:
        """What is spent and reserved in the current window, what is left, and when the window ends. Raises
        StoreError."""
        if not has_one_counter(budget):
            return {}
        rule = rule_of(budget, "" if budget.scope == "team" else budget.subject)
        window = window_at(rule.window, rule.timezone, now)
        found = await self._store.balance(budget.team, charge_of(rule, window), now)
        return _view(budget, window, found.spent, found.reserved)


def has_one_counter(budget: BudgetRecord) -> bool:
    """Whether everything that the budget is about is counted together."""
    return budget.scope == "team" or "*" not in budget.subject or (budget.scope == "model" and budget.subject != "*")


def _view(budget: BudgetRecord, window: Window, spent: int, reserved: int) -> Mapping[str, Any]:
    return {
        "spent": in_unit(budget, spent),
        "reserved": in_unit(budget, reserved),
        "left": None if budget.hard is None else in_unit(budget, budget.hard - spent - reserved),
        "resets_at": window.resets_at,
    }
