"""Teams, as the admin API makes and changes them."""

from dataclasses import replace

from msgspec import UNSET

from proxy.access import validation
from proxy.admin import forms
from proxy.admin.forms import TeamForm
from proxy.admin.resource import Query, Resource, View
from proxy.errors import Conflict, InvalidRequest
from proxy.storage.port import TeamRecord


class Teams(Resource[TeamRecord, TeamForm]):
    """A team that has keys is deleted only where the caller insists."""

    kind = "team"
    form = TeamForm
    filters = ()

    async def create(self, form: TeamForm) -> View:
        if not isinstance(form.name, str):
            raise InvalidRequest("A team needs a name.", param="name")
        name = forms.checked("name", validation.name, form.name)
        if bounds_all := self._directory.declared.bounds_all:
            raise Conflict(
                f"{bounds_all} bounds all requests together, and a team's are counted apart: take it out of the file, "
                "and give each team limits."
            )
        if name in self._snapshot.teams:
            raise Conflict(f"There is a team '{name}' already.")
        return await self._put(TeamRecord(name, created_at=self._clock.now(), **forms.team_changes(form)))

    async def change(self, name: str, form: TeamForm) -> View:
        team = self._changeable(name)
        if form.name not in (UNSET, name):
            raise InvalidRequest("The name of a team cannot change, because the ledger refers to it.", param="name")
        return await self._put(replace(team, **forms.team_changes(form)))

    async def remove(self, name: str, query: Query) -> View:
        """Delete a team with its budgets; with its keys where the query says ``force=true``."""
        self._changeable(name)
        keys = self._snapshot.keys_of(name)
        if keys and query.get("force") != "true":
            raise Conflict(f"The team '{name}' has keys ({len(keys)}): delete them first, or say force=true (--force).")
        for key in keys:
            await self._directory.remove("key", key.id)
        for budget in self._snapshot.budgets_of(name):
            await self._directory.remove("budget", budget.id)
        await self._directory.remove("team", name)
        return {"object": "team", "name": name, "deleted": True, "keys": len(keys)}

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
            "keys": len(self._snapshot.keys_of(record.name)),
            "budgets": len(self._snapshot.budgets_of(record.name)),
            "created_at": record.created_at or None,
            "declared": record.name in self._snapshot.declared,
        }
