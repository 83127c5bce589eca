"""What can be done with things of one kind."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from proxy.access.directory import Directory, Snapshot
from proxy.admin.views import View
from proxy.errors import Conflict, InvalidRequest
from proxy.ports import Clock
from proxy.storage.port import TeamRecord

Query = Mapping[str, str]


class Resource(ABC):
    """Things of one kind. ``verbs``: actions beside reading and writing, which get a name and a body; ``filters``: what
    a list may be asked for."""

    form: type[Any]
    filters: Sequence[str] = ("team",)
    verbs: Mapping[str, Callable[[str, object], Awaitable[View]]]

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self.verbs = {}

    @property
    def _snapshot(self) -> Snapshot:
        return self._directory.snapshot

    @abstractmethod
    async def all(self, query: Query) -> Iterable[View]:
        """Those that the query asks for."""

    @abstractmethod
    async def one(self, name: str) -> View:
        """One of them. Raises NotFound."""

    @abstractmethod
    async def create(self, form: Any) -> View:
        """Make one. Raises InvalidRequest, Conflict."""

    @abstractmethod
    async def change(self, name: str, form: Any) -> View:
        """Change one. Raises InvalidRequest, NotFound, Conflict."""

    @abstractmethod
    async def remove(self, name: str, query: Query) -> View:
        """Delete one. Raises NotFound, Conflict."""

    def _managed(self, what: str, name: str) -> None:
        """Raises Conflict for what stands in the file."""
        if name in self._snapshot.declared:
            raise Conflict(f"The {what} '{name}' is declared in the proxy's configuration: change it there.")

    def _team(self, name: object) -> TeamRecord:
        """The team that a form names. Raises InvalidRequest."""
        team = self._snapshot.teams.get(name) if isinstance(name, str) else None
        if team is None:
            raise InvalidRequest("There is no such team.", param="team", code="unknown_team")
        return team
