"""Budgets, as the admin API makes and changes them."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import UNSET

from proxy.access import validation
from proxy.access.directory import Directory
from proxy.admin import forms
from proxy.admin.budget_state import BudgetStatus, is_one_pot
from proxy.admin.forms import BudgetForm, SpentForm
from proxy.admin.resource import Query, Resource
from proxy.admin.views import View, budget_view
from proxy.core.model_patterns import matches
from proxy.errors import Conflict, InvalidRequest, NotFound
from proxy.ports import Clock
from proxy.storage.port import BudgetRecord


class Budgets(Resource):
    """What a budget counts never changes, only how much it allows."""

    form = BudgetForm

    def __init__(self, directory: Directory, clock: Clock, budget_status: BudgetStatus) -> None:
        super().__init__(directory, clock)
        self._pots = budget_status
        self.verbs = {"set-spent": self.set_spent}

    async def all(self, query: Query) -> Iterable[View]:
        budgets = sorted(self._snapshot.budgets.values(), key=lambda budget: budget.id)
        return [await self._view(budget) for budget in budgets if query.get("team") in (None, budget.team)]

    async def one(self, name: str) -> View:
        return await self._view(self._found(name))

    async def create(self, form: BudgetForm) -> View:
        team = self._team(form.team)
        scope = "team" if form.scope is UNSET else form.scope
        subject = "*" if form.subject is UNSET else forms.checked("subject", _subject, form.subject)
        if scope == "team" and subject != "*":
            raise InvalidRequest("A budget of scope 'team' has no subject.", param="subject")
        window = "total" if form.window is UNSET else forms.checked("window", validation.window, form.window)
        changes = forms.budget_changes(form)
        given = None if form.name is UNSET else forms.checked("name", validation.name, form.name)
        name = validation.budget_name(given, scope, window, changes["unit"])
        record = BudgetRecord(
            id=f"{team.name}/{name}", team=team.name, scope=scope, subject=subject, window=window, **changes
        )
        if record.id in self._snapshot.budgets:
            raise Conflict(f"There is a budget '{record.id}' already: give this one another name.")
        await self._directory.put(record)
        return await self._view(record)

    async def change(self, name: str, form: BudgetForm) -> View:
        budget = self._found(name)
        self._managed("budget", name)
        for field in ("team", "name", "scope", "subject", "window"):
            if getattr(form, field) is not UNSET:
                raise InvalidRequest(f"A budget keeps its {field}: delete it, and make another.", param=field)
        await self._directory.put(replace(budget, **forms.budget_changes(form, budget)))
        return await self.one(name)

    async def remove(self, name: str, query: Query) -> View:
        self._found(name)
        self._managed("budget", name)
        await self._directory.remove("budget", name)
        return {"object": "budget", "id": name, "deleted": True}

    async def set_spent(self, name: str, body: object) -> View:
        """Correct what is counted as spent: after a store was lost, or by the provider's bill. Declared budgets, too:
        their counters stand in the store."""
        budget, form = self._found(name), forms.read(body, SpentForm)
        amount = forms.spent_amount(budget, form)
        whom = _whom(budget, form)
        found = await self._pots.set_spent(budget, whom, amount, self._clock.now(), is_dry=form.dry_run)
        return {
            "object": "budget.spent",
            "id": budget.id,
            "unit": budget.unit,
            "subject": whom or None,
            "window": budget.window,
            **found,
            "dry_run": form.dry_run,
        }

    def _found(self, name: str) -> BudgetRecord:
        budget = self._snapshot.budgets.get(name)
        if budget is None:
            raise NotFound("There is no such budget: budgets are named TEAM/NAME.")
        return budget

    async def _view(self, budget: BudgetRecord) -> View:
        return budget_view(budget, self._snapshot, await self._pots.state(budget, self._clock.now()))


def _whom(budget: BudgetRecord, form: SpentForm) -> str:
    """Whose counter a correction is about. Raises InvalidRequest."""
    if is_one_pot(budget):
        whom = "" if budget.scope == "team" else budget.subject
        if form.subject not in (UNSET, whom):
            raise InvalidRequest("This budget has one counter: leave 'subject' out.", param="subject")
        return whom
    if form.subject is UNSET:
        raise InvalidRequest(
            f"Under this budget each {budget.scope} has its own counter: 'subject' says which.", param="subject"
        )
    if not matches(budget.subject, form.subject):
        raise InvalidRequest(f"This budget is about {budget.subject!r} only.", param="subject")
    return form.subject


def _subject(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return validation.text(text)
