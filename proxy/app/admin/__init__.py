"""Manages teams, keys and budgets, and reports spend, for the admin API and the command line. Both use the same code.

As in HTTP, an operation has a method, a path below ``/admin/``, a query and a body that was JSON. It returns a JSON
value or CSV text, or raises a ``ProxyError``. ``AdminService`` finds the resource that a path names: teams, keys and
budgets, which have most of their operations in common, or a report. Nothing here depends on an HTTP server.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from msgspec import UNSET

from proxy.app.admin.reports import Query, Sessions, View, check_query, entries_report, sessions_answer, spend_report
from proxy.kit.clock import Clock
from proxy.kit.errors import Conflict, InvalidRequest, MethodNotAllowed, NotFound, NotReady, OutOfDate, StoreError
from proxy.protocol.access import matches
from proxy.storage import BudgetRecord, KeyRecord, R, RecordKind, Store, TeamRecord, record_name
from proxy.teams import validation
from proxy.teams.authentication import (
    DEFAULT_TEAM,
    Directory,
    DirectorySnapshot,
    declared_id,
    digest_of,
    new_id,
    new_key,
)
from proxy.teams.bookings import NOTHING, Booking, booked, counter_of, rule_of
from proxy.teams.store_client import Epochs
from proxy.teams.validation import BudgetForm, KeyForm, SpentForm, TeamForm

F = TypeVar("F")


class Resource(ABC, Generic[R, F]):
    """Records of one kind. ``verbs`` are further operations besides reads and writes; each gets a name and a body.
    ``filters`` are the parameters by which a list may be narrowed. ``naming`` ends the text of an error for an unknown
    name."""

    kind: RecordKind
    form: type[F]
    naming: str = ""
    filters: Sequence[str] = ("team",)
    verbs: Mapping[str, Callable[[Any, str, Any], Awaitable[View]]] = {}

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    async def all(self, query: Query) -> Iterable[View]:
        found = self._snapshot.of(self.kind).values()
        records = [one for one in found if "team" not in query or query["team"] == one.team]
        return [await self._view(one) for one in sorted(records, key=self._order)]

    async def one(self, name: str) -> View:
        return await self._view(self._found(name))

    @abstractmethod
    async def create(self, form: F) -> View:
        """Make a record. Raises InvalidRequest, Conflict."""

    @abstractmethod
    async def change(self, name: str, form: F) -> View:
        """Change a record. Raises InvalidRequest, NotFound, Conflict."""

    async def remove(self, name: str, query: Query) -> View:
        """Delete a record. Raises NotFound, Conflict."""
        self._changeable(name)
        await self._directory.remove(self.kind, name)
        return {"object": self.kind, "id": name, "deleted": True}

    @property
    def _snapshot(self) -> DirectorySnapshot:
        return self._directory.snapshot

    @abstractmethod
    async def _view(self, record: R) -> View: ...

    def _order(self, record: R) -> Any:
        """The sort key of lists."""
        return record_name(record)

    def _found(self, name: str) -> R:
        record: R | None = self._snapshot.of(self.kind).get(name)
        if record is None:
            raise NotFound(f"There is no such {self.kind}{self.naming}.")
        return record

    def _changeable(self, name: str) -> R:
        """A record that is managed here. Raises NotFound, and Conflict for a record of the configuration."""
        record = self._found(name)
        if name in self._snapshot.declared:
            raise Conflict(f"The {self.kind} '{name}' is declared in the proxy's configuration: change it there.")
        return record

    async def _put(self, record: R) -> View:
        await self._directory.put(record)
        return await self.one(record_name(record))

    def _team(self, name: Any) -> TeamRecord:
        """The team that a form names. Raises InvalidRequest."""
        team = self._snapshot.teams.get(name) if isinstance(name, str) else None
        if team is None:
            raise InvalidRequest("There is no such team.", param="team", code="unknown_team")
        return team


class Teams(Resource[TeamRecord, TeamForm]):
    """Teams. A team that has keys is deleted only if the caller insists."""

    kind = "team"
    form = TeamForm
    filters = ()

    async def create(self, form: TeamForm) -> View:
        if not isinstance(form.name, str):
            raise InvalidRequest("A team needs a name.", param="name")
        name = validation.checked("name", validation.name, form.name)
        if bounds_all := self._directory.declared.bounds_all:
            raise Conflict(
                f"{bounds_all} bounds all requests together, and a team's are counted apart: take it out of the file, "
                "and give each team limits."
            )
        if name in self._snapshot.teams:
            raise Conflict(f"There is a team '{name}' already.")
        return await self._put(TeamRecord(name, created_at=self._clock.now(), **validation.team_changes(form)))

    async def change(self, name: str, form: TeamForm) -> View:
        team = self._changeable(name)
        if form.name not in (UNSET, name):
            raise InvalidRequest("The name of a team cannot change, because the ledger refers to it.", param="name")
        return await self._put(replace(team, **validation.team_changes(form)))

    async def remove(self, name: str, query: Query) -> View:
        """Delete a team with its budgets. If the query says ``force=true``, its keys are deleted, too."""
        self._changeable(name)
        keys = self._snapshot.keys_by_team.get(name, ())
        if keys and query.get("force") != "true":
            raise Conflict(f"The team '{name}' has keys ({len(keys)}): delete them first, or say force=true (--force).")
        count = await self._empty(name)
        await self._directory.remove("team", name)
        # Until now, another process could make keys and budgets for the team.
        count += await self._empty(name)
        return {"object": "team", "name": name, "deleted": True, "keys": count}

    async def _empty(self, name: str) -> int:
        """Delete the keys and the budgets of a team. Returns the number of keys."""
        count = 0
        for key in self._snapshot.keys_by_team.get(name, ()):
            count += await self._directory.remove("key", key.id)
        for budget in self._snapshot.by_team.get(name, ()):
            await self._directory.remove("budget", budget.id)
        return count

    async def _view(self, record: TeamRecord) -> View:
        return {
            "object": "team",
            "name": record.name,
            "mode": record.mode or None,
            "models": list(record.models),
            "requests_per_minute": record.requests_per_minute,
            "tokens_per_minute": record.tokens_per_minute,
            "client_keys": "forward" if record.forwards_keys else "refuse",
            "paths": list(record.paths),
            "keys": len(self._snapshot.keys_by_team.get(record.name, ())),
            "budgets": len(self._snapshot.by_team.get(record.name, ())),
            "created_at": record.created_at or None,
            "declared": record.name in self._snapshot.declared,
        }


class Keys(Resource[KeyRecord, KeyForm]):
    """Keys. Only the answer to the creation of a key holds the key itself."""

    kind = "key"
    form = KeyForm
    naming = ": keys are named by their id (key-...)"

    async def create(self, form: KeyForm) -> View:
        """Make a key, or take over an existing key by its digest."""
        team = self._team(DEFAULT_TEAM if form.team is UNSET else form.team)
        secret = new_key()
        digest = digest_of(secret)
        if form.sha256 is not UNSET:
            digest = validation.checked("sha256", _digest, form.sha256)
            known = {key.digest for key in self._snapshot.keys.values()}
            if digest in known or digest == self._directory.declared.master_digest:
                raise Conflict("There is such a key already.")
        now = self._clock.now()
        changes = validation.key_changes(form, now)
        # The id of an existing key follows from its digest, so its budgets can be made before the key works.
        id_ = new_id() if form.sha256 is UNSET else declared_id(digest)
        if id_ in self._snapshot.keys:
            raise Conflict("There is a key of this id already.")
        view = await self._put(KeyRecord(id_, digest, team.name, created_at=now, **changes))
        return {**view, "key": secret} if form.sha256 is UNSET else view

    async def change(self, name: str, form: KeyForm) -> View:
        key = self._changeable(name)
        if form.sha256 is not UNSET or form.team not in (UNSET, key.team):
            raise InvalidRequest("A key keeps its secret and its team: make another key, and revoke this one.")
        return await self._put(replace(key, **validation.key_changes(form, self._clock.now())))

    async def revoke(self, name: str, body: Any) -> View:
        """Refuse a key from now on. It stays in the list, because the ledger refers to it."""
        key = self._changeable(name)
        if key.revoked_at is None:
            await self._directory.put(replace(key, revoked_at=self._clock.now()))
        return await self.one(name)

    verbs = {"revoke": revoke}

    async def _view(self, record: KeyRecord) -> View:
        is_expired = record.expires_at is not None and self._clock.now() >= record.expires_at
        return {
            "object": "key",
            "id": record.id,
            "team": record.team,
            "user": record.user or None,
            "models": list(record.models),
            "mode": record.mode or None,
            "requests_per_minute": record.requests_per_minute,
            "tokens_per_minute": record.tokens_per_minute,
            "status": "revoked" if record.revoked_at is not None else "expired" if is_expired else "active",
            "created_at": record.created_at or None,
            "expires_at": record.expires_at,
            "revoked_at": record.revoked_at,
            "note": record.note or None,
            "declared": record.id in self._snapshot.declared,
        }

    def _order(self, record: KeyRecord) -> tuple[str, float, str]:
        return record.team, record.created_at, record.id


def _digest(text: str) -> str:
    if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
        raise ValueError("must be a SHA-256 in hex: 64 characters")
    return text.lower()


_MOST_TRIES = 20
# How many counters of a budget are shown at most. Each of them needs a call to the store.
_MOST_COUNTERS = 200


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
        subject = "*" if form.subject is UNSET else validation.checked("subject", _subject, form.subject)
        if scope == "team" and subject != "*":
            raise InvalidRequest("A budget of scope 'team' has no subject.", param="subject")
        window = "total" if form.window is UNSET else validation.checked("window", validation.window, form.window)
        changes = validation.budget_changes(form)
        given = None if form.name is UNSET else validation.checked("name", validation.name, form.name)
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
        limit = validation.in_unit(budget.unit, budget.hard)
        if form.expected is not UNSET and form.expected != limit:
            shown = "no limit" if limit is None else f"{limit:g} {budget.unit}"
            raise Conflict(f"The limit of '{name}' was changed meanwhile: it is {shown} now.")
        return await self._put(replace(budget, **validation.budget_changes(form, budget)))

    async def set_spent(self, name: str, body: Any) -> View:
        """Correct the amount that is counted as spent in the current window, after a store was lost or by the
        provider's bill. A dry run changes nothing and shows what would change. Budgets of the configuration can be
        corrected, too, because their counters are in the store."""
        budget, form = self._found(name), validation.read_form(body, SpentForm)
        amount = validation.spent_amount(budget, form)
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
            "spent_before": validation.in_unit(budget.unit, before.spent),
            **_state(booking, amount, before.reserved),
            "dry_run": form.dry_run,
        }

    verbs = {"set-spent": set_spent}

    async def _view(self, record: BudgetRecord) -> View:
        unit = record.unit
        if _has_one_counter(record):
            state = await self._state_now(record)
        else:
            # The counters of the known keys, or of the users that these keys name. Models are not known here, so they
            # have no counters.
            keys = self._snapshot.keys_by_team.get(record.team, ())
            named = {"key": {key.id for key in keys}, "user": {key.user for key in keys if key.user}}
            subjects = sorted(one for one in named.get(record.scope, ()) if matches(record.subject, one))
            counted = subjects[:_MOST_COUNTERS]
            state = {"counters": [{"subject": one, **await self._state_now(record, one)} for one in counted]}
        return {
            "object": "budget",
            "id": record.id,
            "team": record.team,
            "scope": record.scope,
            "subject": record.subject,
            unit: validation.in_unit(unit, record.hard),
            f"soft_{unit}": validation.in_unit(unit, record.soft),
            "window": record.window,
            "timezone": record.timezone,
            "assumed_output_tokens": record.assumed_output_tokens,
            # The path of a webhook is often its password.
            "webhook": urlsplit(record.webhook).hostname if record.webhook else None,
            "declared": record.id in self._snapshot.declared,
            **state,
        }

    async def _state_now(self, budget: BudgetRecord, subject: str = "") -> Mapping[str, Any]:
        """The state of one counter of a budget, in the current window. ``subject`` selects one of several counters."""
        now = self._clock.now()
        booking = booked(rule_of(budget, subject or _only_subject(budget)), NOTHING, now)
        found = await self._store.balance(budget.team, booking.charge, now)
        return _state(booking, found.spent, found.reserved)


def _has_one_counter(budget: BudgetRecord) -> bool:
    """Whether one counter counts everything that the budget covers."""
    return budget.scope == "team" or "*" not in budget.subject or (budget.scope == "model" and budget.subject != "*")


def _only_subject(budget: BudgetRecord) -> str:
    return "" if budget.scope == "team" else budget.subject


def _state(booking: Booking, spent: int, reserved: int) -> Mapping[str, Any]:
    """A counter as the admin API shows it: the spent, reserved and remaining amounts, and the end of the window."""
    rule = booking.rule
    return {
        "spent": validation.in_unit(rule.unit, spent),
        "reserved": validation.in_unit(rule.unit, reserved),
        "left": None if rule.hard is None else validation.in_unit(rule.unit, rule.hard - spent - reserved),
        "resets_at": booking.window.resets_at,
    }


def _whom(budget: BudgetRecord, form: SpentForm) -> str:
    """The key, user or model whose counter is corrected. Raises InvalidRequest."""
    if _has_one_counter(budget):
        if form.subject not in (UNSET, _only_subject(budget)):
            raise InvalidRequest("This budget has one counter: leave 'subject' out.", param="subject")
        return _only_subject(budget)
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


class AdminService:
    """Makes, changes and shows teams, keys and budgets, reports spend, and shows whether the store is the known one."""

    def __init__(
        self,
        directory: Directory,
        store: Store,
        clock: Clock,
        epochs: Epochs | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """``sessions`` gives access to the stored data of live sessions; None if no proxy runs here."""
        self._directory = directory
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._epochs = epochs or Epochs(store, None)
        self._turn = asyncio.Lock()
        self._resources: Mapping[str, Resource[Any, Any]] = {
            "teams": Teams(directory, clock),
            "keys": Keys(directory, clock),
            "budgets": Budgets(directory, clock, store, self._epochs),
        }

    async def answer(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Any:
        """Do an operation. Raises InvalidRequest, NotFound, Conflict, MethodNotAllowed, NotReady."""
        kind, _, rest = path.strip("/").partition("/")
        try:
            if kind in ("spend", "entries") and not rest:
                if method != "GET":
                    raise MethodNotAllowed(f"{kind} can only be read.")
                report = spend_report if kind == "spend" else entries_report
                return await report(self._store, query or {}, self._clock.now())
            if kind == "store" and rest in ("", "accept"):
                if method != ("POST" if rest else "GET"):
                    raise MethodNotAllowed("POST accepts the store." if rest else "The store can only be read.")
                lost = list(await (self._epochs.accept() if rest else self._epochs.not_accepted()))
                state = {"lost": [], "accepted": lost} if rest else {"lost": lost}
                return {"object": "store", "epoch": self._epochs.current, **state}
            if kind == "sessions" and self._sessions is not None:
                return await sessions_answer(self._sessions, method, rest, query or {}, self._clock.now())
            resource = self._resources.get(kind)
            if resource is None:
                raise NotFound(
                    f"There is no /admin/{path}: there are teams, keys, budgets, sessions, store, spend and entries."
                )
            # Nothing may change between the read and the write of an operation. If another process has changed
            # something, the operation begins anew.
            async with self._turn:
                for _ in range(_MOST_TRIES):
                    await self._directory.refresh()
                    with suppress(OutOfDate):
                        return await _operation(resource, method, rest, query or {}, body)
                raise OutOfDate("Other processes change teams, keys and budgets all the time: try again.")
        except StoreError as error:
            raise store_away(error) from error


def store_away(error: StoreError) -> NotReady:
    """The error that a client gets while the store does not answer."""
    return NotReady(f"The store does not answer ({error}).", code="store_unavailable")


async def _operation(resource: Resource[Any, Any], method: str, rest: str, query: Query, body: Any) -> Any:
    """Call the method of a resource that does the operation."""
    if not rest:
        if method == "GET":
            check_query(query, resource.filters)
            return {"object": "list", "data": list(await resource.all(query))}
        if method == "POST":
            return await resource.create(validation.read_form(body, resource.form))
        raise MethodNotAllowed("GET lists, POST creates.")
    name, _, verb = rest.rpartition("/")
    if name and verb in resource.verbs:
        if method != "POST":
            raise MethodNotAllowed(f"POST does {verb}.")
        return await resource.verbs[verb](resource, name, body)
    match method:
        case "GET":
            return await resource.one(rest)
        case "PATCH":
            return await resource.change(rest, validation.read_form(body, resource.form))
        case "DELETE":
            return await resource.remove(rest, query)
        case _:
            raise MethodNotAllowed("GET reads, PATCH changes, DELETE deletes.")
