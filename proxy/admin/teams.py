"""Makes, changes and revokes teams and their keys for the admin API."""

from dataclasses import replace
from typing import Any

from msgspec import UNSET

from proxy.access import validation
from proxy.access.directory import DEFAULT_TEAM
from proxy.access.virtual_keys import declared_id, digest_of, new_id, new_key
from proxy.admin import forms
from proxy.admin.forms import KeyForm, TeamForm
from proxy.admin.resource import Query, Resource, View
from proxy.errors import Conflict, InvalidRequest
from proxy.storage.port import KeyRecord, TeamRecord


class Teams(Resource[TeamRecord, TeamForm]):
    """Teams. A team that has keys is deleted only if the caller insists."""

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
        """Delete a team with its budgets. If the query says ``force=true``, its keys are deleted, too."""
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
            digest = forms.checked("sha256", _digest, form.sha256)
            known = {key.digest for key in self._snapshot.keys.values()}
            if digest in known or digest == self._directory.declared.master_digest:
                raise Conflict("There is such a key already.")
        now = self._clock.now()
        changes = forms.key_changes(form, now)
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
        return await self._put(replace(key, **forms.key_changes(form, self._clock.now())))

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
