"""Keys, as the admin API makes and revokes them."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import UNSET

from proxy.access.directory import DEFAULT_TEAM, Directory
from proxy.access.virtual_keys import digest_of, new_id, new_key
from proxy.admin import forms
from proxy.admin.forms import KeyForm
from proxy.admin.resource import Query, Resource
from proxy.admin.views import View, key_view
from proxy.errors import Conflict, InvalidRequest, NotFound
from proxy.ports import Clock
from proxy.storage.port import KeyRecord


class Keys(Resource):
    """A key itself is in the answer that made it, and nowhere else."""

    form = KeyForm

    def __init__(self, directory: Directory, clock: Clock) -> None:
        super().__init__(directory, clock)
        self.verbs = {"revoke": self.revoke}

    async def all(self, query: Query) -> Iterable[View]:
        keys = sorted(self._snapshot.keys.values(), key=lambda key: (key.team, key.created_at, key.id))
        return [self._view(key) for key in keys if query.get("team") in (None, key.team)]

    async def one(self, name: str) -> View:
        return self._view(self._found(name))

    async def create(self, form: KeyForm) -> View:
        """The answer alone has the key itself."""
        team = self._team(DEFAULT_TEAM if form.team is UNSET else form.team)
        secret = new_key()
        digest = digest_of(secret)
        if form.sha256 is not UNSET:
            digest = forms.checked("sha256", _digest, form.sha256)
            if digest == self._directory.declared.master_digest or any(
                key.digest == digest for key in self._snapshot.keys.values()
            ):
                raise Conflict("There is such a key already.")
        now = self._clock.now()
        changes = forms.key_changes(form, now)
        key = KeyRecord(id=new_id("key"), digest=digest, team=team.name, created_at=now, **changes)
        await self._directory.put(key)
        shown = {"key": secret} if form.sha256 is UNSET else {}
        return {**self._view(key), **shown}

    async def change(self, name: str, form: KeyForm) -> View:
        key = self._found(name)
        self._managed("key", name)
        if form.sha256 is not UNSET or form.team not in (UNSET, key.team):
            raise InvalidRequest("A key keeps its secret and its team: make another, and revoke this one.")
        await self._directory.put(replace(key, **forms.key_changes(form, self._clock.now())))
        return await self.one(name)

    async def revoke(self, name: str, body: object) -> View:
        """From now on the key is refused. It stays in the list: the ledger names it."""
        key = self._found(name)
        self._managed("key", name)
        if key.revoked_at is None:
            await self._directory.put(replace(key, revoked_at=self._clock.now()))
        return await self.one(name)

    async def remove(self, name: str, query: Query) -> View:
        self._found(name)
        self._managed("key", name)
        await self._directory.remove("key", name)
        return {"object": "key", "id": name, "deleted": True}

    def _found(self, name: str) -> KeyRecord:
        key = self._snapshot.keys.get(name)
        if key is None:
            raise NotFound("There is no such key: keys are named by their id (key-...).")
        return key

    def _view(self, key: KeyRecord) -> View:
        return key_view(key, self._snapshot, self._clock.now())


def _digest(text: str) -> str:
    if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
        raise ValueError("must be a SHA-256 in hex: 64 characters")
    return text.lower()
