"""The operations of the admin API and of the command line on one directory. Both use the same code.

As in HTTP, an operation has a method, a path below ``/admin/``, a query and a body that was JSON. It returns a JSON
value or CSV text, or raises a ``ProxyError``.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from proxy.access.authentication import Directory
from proxy.admin import forms
from proxy.admin.forms import Query, Resource
from proxy.admin.sessions import Sessions, sessions_answer
from proxy.admin.spend import entries_report, spend_report
from proxy.admin.teams import Budgets, Keys, Teams
from proxy.errors import MethodNotAllowed, NotFound, NotReady
from proxy.ports import Clock, StoreError
from proxy.spend.epochs import Epochs
from proxy.storage.port import Store


class AdminService:
    """Makes, changes and shows teams, keys and budgets, and reports spend."""

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
                return await self._store_state(method, rest)
            if kind == "sessions" and self._sessions is not None:
                return await sessions_answer(self._sessions, method, rest, query or {}, self._clock.now())
            resource = self._resources.get(kind)
            if resource is None:
                raise NotFound(
                    f"There is no /admin/{path}: there are teams, keys, budgets, sessions, store, spend and entries."
                )
            # Nothing may change between the read and the write of an operation.
            async with self._turn:
                await self._directory.refresh()
                return await _operation(resource, method, rest, query or {}, body)
        except StoreError as error:
            raise store_away(error) from error

    async def _store_state(self, method: str, verb: str) -> Mapping[str, Any]:
        """Show whether the store is the known one; with the verb ``accept``, accept the store as it is."""
        if method != ("POST" if verb else "GET"):
            raise MethodNotAllowed("POST accepts the store." if verb else "The store can only be read.")
        lost = await (self._epochs.accept() if verb else self._epochs.not_accepted())
        accepted = {"accepted": list(lost)} if verb else {}
        return {"object": "store", "epoch": self._epochs.current, "lost": [] if verb else list(lost), **accepted}


def store_away(error: StoreError) -> NotReady:
    """The error that a client gets while the store does not answer."""
    return NotReady(f"The store does not answer ({error}).", code="store_unavailable")


async def _operation(resource: Resource[Any, Any], method: str, rest: str, query: Query, body: Any) -> Any:
    """Call the method of a resource that does the operation."""
    if not rest:
        if method == "GET":
            forms.check_query(query, resource.filters)
            return {"object": "list", "data": list(await resource.all(query))}
        if method == "POST":
            return await resource.create(forms.read(body, resource.form))
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
            return await resource.change(rest, forms.read(body, resource.form))
        case "DELETE":
            return await resource.remove(rest, query)
        case _:
            raise MethodNotAllowed("GET reads, PATCH changes, DELETE deletes.")
