"""Knows which team owns which objects of the provider's account. This is checked before a request is sent, and recorded
before it ends.

A team's requests reach the provider with the operator's key, and all objects of the account belong to the operator. The
objects that a request's path, query and body name are looked up among those that the team has made through this proxy.
Any other object is answered as one that does not exist. The request goes to the deployment that made the objects.
Requests with the master key, with a client's own provider key, or of a proxy without keys are not checked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl

from proxy.engine.bodies import Raw, Upload
from proxy.engine.exchange import Exchange, ObjectUse
from proxy.engine.ports import Client
from proxy.kit.clock import Clock
from proxy.kit.errors import Forbidden, InvalidRequest, NotFound, StoreError, StoreUnavailable
from proxy.kit.tasks import Aside
from proxy.kit.value import dataclass, digest
from proxy.models import Deployment
from proxy.models.deployments import ModelTable
from proxy.protocol.account import BATCHES, COMPLETIONS, RESPONSES, Act, is_allowed
from proxy.protocol.references import MOST_ID_CHARS, LineFile, Reference, family_of, may_refer, references
from proxy.storage import ObjectRecord, Store

REFERRING_FILES = "files (refer to objects)"
"""The family of a file that may hold requests that refer to objects. Such a file must not be the input of a batch."""
T = TypeVar("T")
_PASSING_S = 35 * 86400.0
_TIMEOUT_S = 2.0
_MOST_LATE = 10_000
_CURSORS = frozenset({"after", "before", "after_id", "before_id"})
_MOST_PARAMETERS = 100
_ITEM_PATHS = frozenset({RESPONSES, "conversations"})


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many objects of a team are remembered, and for how long."""

    most: int = 100_000
    keep_s: float = 400 * 86400.0


class Custody:
    """Asks the store. If a call fails that decides about a right, the request is answered with 503. Records that could
    not be written stay in memory, and are written when the store answers again."""

    def __init__(
        self,
        store: Store,
        models: ModelTable,
        clock: Clock,
        failed: Callable[[str], None],
        bounds: Bounds | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._store = store
        self._models = models
        self._clock = clock
        self._failed = failed
        self._bounds = bounds or Bounds()
        self._aside = aside or Aside()
        self._late: dict[tuple[str, str], ObjectRecord] = {}

    async def enter(self, exchange: Exchange, client: Client) -> None:
        """Check the path and the query of a request whose sender may use only the objects of its team. Raises
        Forbidden, NotFound, InvalidRequest, StoreUnavailable."""
        principal, operation, segments = exchange.principal, exchange.objects.operation, exchange.parsed.segments
        named = _in_query(client.query)
        if not is_allowed(principal.paths, segments):
            if operation.act is Act.UNKNOWN:
                raise Forbidden(
                    "This path reaches the whole account of the provider, or is not known to this proxy: it is off "
                    f"for team '{principal.team}' unless the team's `paths` allow it.",
                    code="path_not_allowed",
                )
            exchange.objects = ObjectUse(operation, is_filtered=operation.act is Act.LIST)
            if operation.act is Act.TOUCH:
                named.append(Reference(operation.object_id, operation.family, "id"))
        await self._check(exchange, named)

    async def read(self, exchange: Exchange, raw: Raw) -> None:
        """Check what the body of a request refers to whose sender may use only the objects of its team. Raises
        NotFound, Forbidden, InvalidRequest, StoreUnavailable."""
        operation = exchange.objects.operation
        if operation.makes and operation.family in (RESPONSES, COMPLETIONS):
            members = raw.head.members if raw.head is not None else None
            given = bytes(members["store"]).strip() if members is not None and "store" in members else b""
            exchange.objects.is_stored = given == b"true" if operation.family == COMPLETIONS else given != b"false"
        if isinstance(raw.body, bytes):
            if raw.body:
                # On these paths a body may refer to items by their ids alone.
                has_items = operation.family in _ITEM_PATHS or operation.act is Act.UNKNOWN
                search = partial(references_in, has_items=has_items, is_free_form=operation.is_free_form)
                named = await self._aside.run_large(raw.size, search, raw, raw.body)
                await self._check(exchange, named)
        elif not (isinstance(raw.body, Upload) or raw.is_form):
            what = "its length, or for a compressed body its content, cannot be checked here"
            raise InvalidRequest(f"the body may refer to stored objects, and {what}: send plain JSON, or a form")

    async def owned(self, team: str, names: Sequence[str]) -> list[ObjectRecord | None]:
        """The team's objects of these names. Raises StoreUnavailable."""
        await self._write_late()
        late = [self._late.get((team, name)) for name in names]
        if not names or all(late):
            return late
        found = await self._stored(self._store.owned(team, [_kept(name) for name in names], self._clock.now()))
        return [one or other for one, other in zip(found, late, strict=True)]

    async def remember(self, exchange: Exchange, bill: str = "") -> None:
        """Store the objects that the exchange made. A failure of the store never raises an error here."""
        principal, deployment, said = exchange.principal, exchange.deployment, exchange.answer.outcome.said
        if deployment is None or said is None or not exchange.answer.is_accepted:
            return
        operation = exchange.objects.operation
        if operation.act is Act.TOUCH and exchange.arrival.method == "DELETE" and not operation.below:
            self._late.pop((principal.team, operation.object_id), None)
            with suppress(StoreUnavailable):
                await self._stored(self._store.disown(principal.team, _kept(operation.object_id)))
            return
        made: dict[str, str] = {}
        if bill or (principal.is_confined and operation.makes and exchange.objects.is_stored):
            made[said.id] = exchange.objects.made_family or operation.family
        if principal.is_confined and exchange.objects.is_stored and operation.act is not Act.LIST:
            # These objects were made in addition to the object itself. A file that was joined from parts was not read.
            made = {**(dict.fromkeys(said.ids, REFERRING_FILES) if operation.family == "uploads" else said.ids), **made}
        made.pop("", None)
        if made:
            records = [
                self._record(name, family, exchange, deployment, bill if name == said.id else "")
                for name, family in made.items()
            ]
            await self._keep(principal.team, records)

    async def take_bill(self, team: str, name: str) -> str:
        """The bill of an object, which is returned only once. Empty if there is none, or if the store does not
        answer."""
        late = self._late.get((team, name))
        if late is not None and late.bill:
            del self._late[team, name]
            return late.bill
        with suppress(StoreUnavailable):
            return await self._stored(self._store.take_bill(team, _kept(name)))
        return ""

    async def _stored(self, answer: Awaitable[T]) -> T:
        """The store's answer. Raises StoreUnavailable if there is none in time."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await answer
        except (StoreError, TimeoutError) as error:
            self._failed("objects")
            raise StoreUnavailable(
                "It cannot be checked whose the objects of this request are: the store does not answer."
            ) from error

    def _record(self, name: str, family: str, exchange: Exchange, deployment: Deployment, bill: str) -> ObjectRecord:
        is_passing = exchange.objects.operation.is_passing and family in (
            RESPONSES,
            COMPLETIONS,
            exchange.objects.operation.family,
        )
        return ObjectRecord(
            name=_kept(name),
            team=exchange.principal.team,
            family=family,
            # An object's id is unique within its server, which is kept as a digest.
            server=digest(deployment.transport.value.encode(), deployment.base_url.encode()).hex()[:16],
            deployment=deployment.id,
            forget_at=self._clock.now() + (min(self._bounds.keep_s, _PASSING_S) if is_passing else self._bounds.keep_s),
            bill=bill,
        )

    async def _check(self, exchange: Exchange, named: Sequence[Reference]) -> None:
        principal = exchange.principal
        asked = [one for one in named if not is_allowed(principal.paths, one.family.split("/"))]
        if not asked:
            return
        records = await self.owned(principal.team, [one.id for one in asked])
        for reference, record in zip(asked, records, strict=True):
            made_by = self._models.known(record.deployment) if record is not None else None
            if record is None or made_by is None:
                name, member = reference.id[:MOST_ID_CHARS].encode("utf-8", "replace").decode(), reference.member
                raise NotFound(f"No such object: '{name}'.", param=None if member == "id" else member)
            if record.family == REFERRING_FILES and exchange.objects.operation.family == BATCHES:
                raise Forbidden(
                    "The batch's input file refers to stored objects, or came in parts, so that it cannot be checked: "
                    "requests of a batch may not refer to objects here.",
                    param=reference.member,
                    code="path_not_allowed",
                )
            pin = exchange.objects.pin
            if pin is not None and place(pin) != place(made_by):
                raise InvalidRequest(
                    "the request's objects live at different deployments: it can go to one of them only",
                    param=reference.member,
                    code="objects_apart",
                )
            exchange.objects.pin = pin or made_by

    async def _keep(self, team: str, records: Sequence[ObjectRecord]) -> None:
        await self._write_late()
        try:
            await self._stored(self._store.remember(team, records, self._bounds.most, self._clock.now()))
        except StoreUnavailable:
            for record in records[: _MOST_LATE - len(self._late)]:
                self._late[team, record.name] = record

    async def _write_late(self) -> None:
        """Write the records that could not be written before. After the first failure, the remaining records stay in
        memory."""
        while self._late:
            (team, name), record = next(iter(self._late.items()))
            try:
                await self._stored(self._store.remember(team, [record], self._bounds.most, self._clock.now()))
            except StoreUnavailable:
                return
            self._late.pop((team, name), None)


def place(deployment: Deployment) -> tuple[object, ...]:
    """The values that are equal for two deployments that reach the same objects."""
    return deployment.transport, deployment.base_url, deployment.api_key, tuple(deployment.headers)


def pinned(
    levels: Sequence[Sequence[Deployment]], exchange: Exchange, pin: Deployment
) -> Sequence[Sequence[Deployment]]:
    """The deployments that reach the objects of the request, which live at ``pin``. Raises InvalidRequest if none of
    the model's deployments does."""
    if not exchange.requested.model:
        return ((pin,),)
    kept = [[one for one in level if place(one) == place(pin)] for level in levels]
    if not any(kept):
        raise InvalidRequest(
            "the request's objects live at another deployment than its model", param="model", code="objects_apart"
        )
    return [level for level in kept if level]


def refers(name: str) -> bool:
    """Whether a form's field of this name refers to an object."""
    return family_of(name) is not None


class FileWatch:
    """Records on an exchange that the file which it uploads may hold requests that refer to objects. It gets the upload
    chunk by chunk."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._lines = LineFile()

    def __call__(self, chunk: bytes) -> None:
        """Look for references in a chunk of the file."""
        if self._exchange.objects.operation.family != "files":
            return
        self._lines.feed(chunk)
        if self._lines.may_refer:
            self._exchange.objects.made_family = REFERRING_FILES


def _in_query(query: str) -> list[Reference]:
    """The objects that a query names: members of bodies, and the cursors of lists."""
    if not query:
        return []
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise InvalidRequest(f"the query has more than {_MOST_PARAMETERS} parameters") from error
    found = []
    for name, value in pairs:
        if name.strip().lower() == "_method":
            raise InvalidRequest("'_method' may name another method than the one that was checked", param="_method")
        family = "cursors" if name.lower() in _CURSORS else family_of(name)
        if family is not None and value:
            found.append(Reference(value[:MOST_ID_CHARS], family, name))
    return found


def references_in(raw: Raw, body: bytes, *, has_items: bool, is_free_form: bool) -> list[Reference]:
    """The objects to which a request's body refers. The messages of earlier requests are not searched again. Raises
    InvalidRequest."""
    parsed = raw.head.parsed if raw.head is not None else None
    if parsed is not None and parsed.body is body and not has_items and not parsed.has(may_refer):
        return []
    return references(body, has_items=has_items, is_free_form=is_free_form)


def _kept(name: str) -> str:
    """An object's id as the store keeps it. A long or unusual id is replaced by a digest."""
    if len(name) <= 128 and name.isascii() and name.isprintable():
        return name
    return "~" + digest(name.encode("utf-8", "surrogatepass")).hex()
