"""The operations of the admin API that teams, keys and budgets have in common."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from proxy.access.directory import Directory, Snapshot
from proxy.errors import Conflict, InvalidRequest, NotFound
from proxy.ports import Clock
from proxy.storage.port import R, RecordKind, TeamRecord, record_name

Query = Mapping[str, str]
View = dict[str, Any]
"""A record as it is shown: a JSON object with the names of the configuration. It holds no secret and no digest."""
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
        records = sorted(self._snapshot.of(self.kind).values(), key=self._order)
        return [await self._view(one) for one in records if "team" not in query or query["team"] == one.team]

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
    def _snapshot(self) -> Snapshot:
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
