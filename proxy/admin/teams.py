"""Teams, as the admin API makes and changes them."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import UNSET

from proxy.access import validation
from proxy.admin import forms
from proxy.admin.forms import TeamForm
from proxy.admin.resource import Query, Resource
from proxy.admin.views import View, team_view
from proxy.errors import Conflict, InvalidRequest, NotFound
from proxy.storage.port import TeamRecord


class Teams(Resource):
    """Deleting one with keys must be meant."""

    form = TeamForm
    filters = ()

    async def all(self, query: Query) -> Iterable[View]:
        teams = sorted(self._snapshot.teams.values(), key=lambda team: team.name)
        return [team_view(team, self._snapshot) for team in teams]

    async def one(self, name: str) -> View:
        return team_view(self._found(name), self._snapshot)

    async def create(self, form: TeamForm) -> View:
        if not isinstance(form.name, str):
            raise InvalidRequest("A team needs a name.", param="name")
        name = forms.checked("name", validation.name, form.name)
        if name in self._snapshot.teams:
            raise Conflict(f"There is a team '{name}' already.")
        await self._directory.put(TeamRecord(name, created_at=self._clock.now(), **forms.team_changes(form)))
        return await self.one(name)

    async def change(self, name: str, form: TeamForm) -> View:
        team = self._found(name)
        self._managed("team", name)
        if form.name not in (UNSET, name):
            raise InvalidRequest("A team keeps its name: the ledger knows it by that.", param="name")
        await self._directory.put(replace(team, **forms.team_changes(form)))
        return await self.one(name)

    async def remove(self, name: str, query: Query) -> View:
        self._found(name)
        self._managed("team", name)
        keys = self._snapshot.keys_of(name)
        if keys and query.get("force") != "true":
            raise Conflict(f"The team '{name}' has keys ({len(keys)}): delete them first, or say force=true (--force).")
        for key in keys:
            await self._directory.remove("key", key.id)
        for budget in self._snapshot.budgets_of(name):
            await self._directory.remove("budget", budget.id)
        await self._directory.remove("team", name)
        return {"object": "team", "name": name, "deleted": True, "keys": len(keys)}

    def _found(self, name: str) -> TeamRecord:
        team = self._snapshot.teams.get(name)
        if team is None:
            raise NotFound("There is no such team.")
        return team
