"""Makes and changes budgets for the admin API."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET

from proxy.access import validation
from proxy.access.directory import Directory
from proxy.admin import forms
from proxy.admin.forms import BudgetForm, SpentForm
from proxy.admin.resource import Resource, View
from proxy.core.model_patterns import matches
from proxy.errors import Conflict, InvalidRequest
from proxy.ports import Clock
from proxy.spend.bookings import NOTHING, Booking, booked, counter_of
from proxy.spend.epochs import Epochs
from proxy.spend.rules import rule_of
from proxy.storage.port import BudgetRecord, Store

_MOST_COUNTERS = 200
"""How many counters of a budget are shown at most. Each of them needs a call to the store."""


class Budgets(Resource[BudgetRecord, BudgetForm]):
    """The counted subject of a budget never changes; only its allowed amount does."""

    kind = "budget"
    form = BudgetForm
    naming = ": budgets are named TEAM/NAME"

    def __init__(self, directory: Directory, clock: Clock, store: Store, epochs: Epochs) -> None:
        super().__init__(directory, clock)
        self._store = store
        self._epochs = epochs

    async def create(self, form: BudgetForm) -> View:
        team = self._team(form.team)
        scope = "team" if form.scope is UNSET else form.scope
        subject = "*" if form.subject is UNSET else forms.checked("subject", _subject, form.subject)
        if scope == "team" and subject != "*":
            raise InvalidRequest("A budget of scope 'team' has no subject.", param="subject")
        window = "total" if form.window is UNSET else forms.checked("window", validation.window, form.window)
        changes = forms.budget_changes(form)
        given = None if form.name is UNSET else forms.checked("name", validation.name, form.name)
        name = f"{team.name}/{validation.budget_name(given, scope, window, changes['unit'])}"
        if name in self._snapshot.budgets:
            raise Conflict(f"There is a budget '{name}' already: give this one another name.")
        return await self._put(BudgetRecord(name, team.name, scope, subject, window=window, **changes))

    async def change(self, name: str, form: BudgetForm) -> View:
        budget = self._changeable(name)
        for field in ("team", "name", "scope", "subject", "window"):
            if getattr(form, field) is not UNSET:
                text = f"The {field} of a budget cannot change: delete the budget, and make another."
                raise InvalidRequest(text, param=field)
        limit = forms.in_unit(budget.unit, budget.hard)
        if form.expected is not UNSET and form.expected != limit:
            shown = "no limit" if limit is None else f"{limit:g} {budget.unit}"
            raise Conflict(f"The limit of '{name}' was changed meanwhile: it is {shown} now.")
        return await self._put(replace(budget, **forms.budget_changes(form, budget)))

    async def set_spent(self, name: str, body: Any) -> View:
        """Correct the amount that is counted as spent in the current window, after a store was lost or by the
        provider's bill. A dry run changes nothing and shows what would change. Budgets of the configuration can be
        corrected, too, because their counters are in the store."""
        budget, form = self._found(name), forms.read(body, SpentForm)
        amount = forms.spent_amount(budget, form)
        whom, now = _whom(budget, form), self._clock.now()
        booking = booked(rule_of(budget, whom), NOTHING, now)
        if form.dry_run:
            before = await self._store.balance(budget.team, booking.charge, now)
        else:
            before = await self._store.set_spent(budget.team, replace(booking.charge, amount=amount), now)
            await self._epochs.restored(counter_of(budget.team, booking.rule))
        return {
            "object": "budget.spent",
            "id": budget.id,
            "unit": budget.unit,
            "subject": whom or None,
            "window": budget.window,
            "spent_before": forms.in_unit(budget.unit, before.spent),
            **_state(booking, amount, before.reserved),
            "dry_run": form.dry_run,
        }

    verbs = {"set-spent": set_spent}

    async def _view(self, record: BudgetRecord) -> View:
        unit = record.unit
        return {
            "object": "budget",
            "id": record.id,
            "team": record.team,
            "scope": record.scope,
            "subject": record.subject,
            unit: forms.in_unit(unit, record.hard),
            f"soft_{unit}": forms.in_unit(unit, record.soft),
            "window": record.window,
            "timezone": record.timezone,
            "assumed_output_tokens": record.assumed_output_tokens,
            # The path of a webhook is often its password.
            "webhook": urlsplit(record.webhook).hostname if record.webhook else None,
            "declared": record.id in self._snapshot.declared,
            **(await self._state_now(record) if _has_one_counter(record) else await self._counters(record)),
        }

    async def _counters(self, budget: BudgetRecord) -> Mapping[str, Any]:
        """The counters of the known keys, or of the users that these keys name. Models are not known here, so they have
        no counters."""
        keys = self._snapshot.keys_of(budget.team)
        named = {"key": {key.id for key in keys}, "user": {key.user for key in keys if key.user}}.get(
            budget.scope, set()
        )
        subjects = sorted(one for one in named if matches(budget.subject, one))[:_MOST_COUNTERS]
        return {"counters": [{"subject": one, **await self._state_now(budget, one)} for one in subjects]}

    async def _state_now(self, budget: BudgetRecord, subject: str = "") -> Mapping[str, Any]:
        """The state of one counter of a budget, in the current window. ``subject`` selects one of several counters."""
        now = self._clock.now()
        whom = subject or ("" if budget.scope == "team" else budget.subject)
        booking = booked(rule_of(budget, whom), NOTHING, now)
        found = await self._store.balance(budget.team, booking.charge, now)
        return _state(booking, found.spent, found.reserved)


def _has_one_counter(budget: BudgetRecord) -> bool:
    """Whether one counter counts everything that the budget covers."""
    return budget.scope == "team" or "*" not in budget.subject or (budget.scope == "model" and budget.subject != "*")


def _state(booking: Booking, spent: int, reserved: int) -> Mapping[str, Any]:
    """A counter as the admin API shows it: the spent, reserved and remaining amounts, and the end of the window."""
    rule = booking.rule
    return {
        "spent": forms.in_unit(rule.unit, spent),
        "reserved": forms.in_unit(rule.unit, reserved),
        "left": None if rule.hard is None else forms.in_unit(rule.unit, rule.hard - spent - reserved),
        "resets_at": booking.window.resets_at,
    }


def _whom(budget: BudgetRecord, form: SpentForm) -> str:
    """The key, user or model whose counter is corrected. Raises InvalidRequest."""
    if _has_one_counter(budget):
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
