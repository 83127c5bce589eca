"""Decides who may send requests: it finds the key of a sender, the team of the key, and the session hint.

Teams, keys and budgets are those of the configuration, and those that are managed while the proxy runs. Both are
records of the same types (``proxy.storage``). A ``DirectorySnapshot`` holds all of them and never changes. The
``Directory`` replaces it when the store's version has changed, so that a request reads only memory. A change in this
process takes effect at once, and a change elsewhere within ``POLL_S``. While the store is away, the last snapshot stays
in force. A version that falls shows that the store was emptied: its keys and teams are gone, but the budgets that were
read before still limit requests until an operator accepts the loss (``forget_lost``).

A virtual key is a prefix that secret scanners can search for, and 43 random letters and digits (256 bits). Only its
SHA-256 digest is kept. With this much randomness, nobody can find the key of a digest by trying, so a slow hash would
not make it safer. Keys that an operator writes into the configuration are kept in the same way, only in memory. The
time of a digest lookup reveals nothing useful about another key: a caller who knew the beginning of a digest would
still have to find a key for it.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import string
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, TypeVar

from proxy.engine.exchange import Principal
from proxy.kit.errors import NotReady, OutOfDate, StoreError, Unauthorized
from proxy.kit.modes import Mode
from proxy.kit.secrets import KEY_PREFIX, OWN_KEY_HEADER, client_key, sent_keys
from proxy.kit.value import dataclass, field
from proxy.models import Headers, RateLimit
from proxy.protocol.access import allows_all
from proxy.storage import (
    RECORD_KINDS,
    BudgetRecord,
    KeyRecord,
    R,
    Record,
    RecordKind,
    Store,
    TeamRecord,
    record_name,
)

OfTeam = TypeVar("OfTeam", KeyRecord, BudgetRecord)

DEFAULT_TEAM = "default"
"""The team of requests with the master key, and of all requests to a proxy without keys."""
CLIENT_KEYS_TEAM = "client-keys"
"""The team of requests with a provider's key, if the configuration forwards such keys."""
MASTER_ID = "master"

POLL_S = 2.0

_log = logging.getLogger("stratiform.directory")


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration's teams, keys and budgets. ``master_digest`` is empty if there is no master key.
    ``forwards_unknown``: keys that are not known here count as the provider's keys, and go upstream. ``bounds_all``
    names the setting of the configuration file that limits the requests of all clients together; empty if there is
    none."""

    teams: Sequence[TeamRecord] = ()
    keys: Sequence[KeyRecord] = ()
    budgets: Sequence[BudgetRecord] = ()
    master_digest: str = field(default="", repr=False)
    forwards_unknown: bool = False
    bounds_all: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the configuration names no key and no team. Without managed keys every key is then accepted."""
        return not (self.teams or self.keys or self.master_digest or self.forwards_unknown)


@dataclass(frozen=True, slots=True)
class DirectorySnapshot:
    """All records at one time, by name or id. ``declared`` are the names and ids that the configuration declares."""

    teams: Mapping[str, TeamRecord]
    keys: Mapping[str, KeyRecord]
    budgets: Mapping[str, BudgetRecord]
    declared: frozenset[str] = frozenset()
    by_team: Mapping[str, Sequence[BudgetRecord]] = field(default_factory=dict, repr=False)
    keys_by_team: Mapping[str, Sequence[KeyRecord]] = field(default_factory=dict, repr=False)

    def of(self, kind: RecordKind) -> Mapping[str, Any]:
        return {"team": self.teams, "key": self.keys, "budget": self.budgets}[kind]


def snapshot_of(
    declared: Declared,
    teams: Iterable[TeamRecord] = (),
    keys: Iterable[KeyRecord] = (),
    budgets: Iterable[BudgetRecord] = (),
) -> DirectorySnapshot:
    """Declared and managed records together. If both have the same name, the configuration wins."""
    built_in = [TeamRecord(DEFAULT_TEAM)]
    if declared.forwards_unknown:
        built_in.append(TeamRecord(CLIENT_KEYS_TEAM))
    all_keys, all_budgets = _named((*keys, *declared.keys)), _named((*budgets, *declared.budgets))
    return DirectorySnapshot(
        teams=_named((*built_in, *teams, *declared.teams)),
        keys=all_keys,
        budgets=all_budgets,
        declared=frozenset(
            [
                *(record.name for record in (*built_in, *declared.teams)),
                *(record.id for record in declared.keys),
                *(record.id for record in declared.budgets),
            ]
        ),
        by_team=_by_team(all_budgets.values()),
        keys_by_team=_by_team(all_keys.values()),
    )


def _named(records: Iterable[R]) -> dict[str, R]:
    """The records by name or id. Of several with the same name, the last one counts."""
    return {record_name(record): record for record in records}


def _by_team(records: Iterable[OfTeam]) -> Mapping[str, Sequence[OfTeam]]:
    found: dict[str, list[OfTeam]] = {}
    for record in records:
        found.setdefault(record.team, []).append(record)
    return found


class Directory:
    """The current snapshot, and the way to change it."""

    def __init__(self, declared: Declared, store: Store) -> None:
        self.declared = declared
        self.snapshot = snapshot_of(declared)
        self.is_loaded = False
        """Whether the managed records have ever been read. Until then, an unknown key may be a managed one."""
        self.store_errors = 0
        self.on_failure: Callable[[], Awaitable[None]] | None = None
        """Called each time that the store cannot be read."""
        self._managed: dict[RecordKind, dict[str, Any]] = {"team": {}, "key": {}, "budget": {}}
        self._lost: Sequence[BudgetRecord] = ()
        self._store = store
        self._version: int | None = None
        self._turn = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the managed records if they have changed. Raises StoreError."""
        async with self._turn:
            # The version is read first, so that a change during the reading of the records is found the next time.
            version = await self._store.directory_version()
            if version == self._version:
                return
            # Budgets are read before and after the keys that they hold for: those that come or go meanwhile count.
            before = await self._store.records(BudgetRecord)
            teams, keys = await self._store.records(TeamRecord), await self._store.records(KeyRecord)
            budgets = [*before, *await self._store.records(BudgetRecord)]
            if self._version is not None and version < self._version:
                self._lost = (*self._lost, *self._managed["budget"].values())
            self._managed = {"team": _named(teams), "key": _named(keys), "budget": _named(budgets)}
            self._renew_snapshot()
            self._version = version
            self.is_loaded = True

    def forget_lost(self) -> None:
        """Drop the budgets of a store that was emptied, because an operator has accepted the store as it is."""
        self._lost = ()
        self._renew_snapshot()

    def declare(self, declared: Declared) -> None:
        """Use another configuration from now on. The managed records stay as they were last read."""
        self.declared = declared
        self._renew_snapshot()

    def _renew_snapshot(self) -> None:
        teams, keys, budgets = (found.values() for found in self._managed.values())
        # A budget that was created again comes after the lost budget of the same id, so it replaces the lost one.
        self.snapshot = snapshot_of(self.declared, teams, keys, [*self._lost, *budgets])

    async def put(self, record: Record) -> None:
        """Create or replace a managed record, which takes effect at once. Raises StoreError, and OutOfDate if another
        process has changed records meanwhile: the record may follow from one that is different by now."""
        version = self._version
        if not await self._store.put(record, version):
            raise OutOfDate("The teams, keys and budgets were changed meanwhile: try again.")
        if version is not None and version == self._version:
            # This record is all that has changed. To read ten thousand others again takes a quarter of a second.
            self._managed[RECORD_KINDS[type(record)]][record_name(record)] = record
            self._renew_snapshot()
            self._version = version + 1
        await self.refresh()

    async def remove(self, kind: RecordKind, name: str) -> bool:
        """Delete a managed record. Returns whether there was one. Raises StoreError."""
        was_there = await self._store.remove(kind, name)
        await self.refresh()
        return was_there

    async def load(self) -> None:
        """Read the managed records. If the store is away, this is logged."""
        try:
            await self.refresh()
        except StoreError as error:
            if self.store_errors == 0:
                _log.error("the store's teams and keys cannot be read (%s); what was read last holds", error)
            self.store_errors += 1
            if self.on_failure is not None:
                await self.on_failure()
        else:
            self.store_errors = 0


_ALPHABET = string.ascii_letters + string.digits
_KEY_CHARS = 43


def new_key() -> str:
    """A new key, made at random."""
    return KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_KEY_CHARS))


def new_id() -> str:
    """A public id: ``key-`` and 12 random hexadecimal digits, as in an id that is computed (``declared_id``)."""
    return "key-" + secrets.token_hex(6)


def digest_of(key: str) -> str:
    """The digest that is kept of a key: its SHA-256, in hex. Surrogates stand for bytes of a header that are not
    UTF-8."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def declared_id(digest: str) -> str:
    """The public id of an existing key, from the configuration or elsewhere. It is computed from the digest."""
    return "key-" + hashlib.blake2b(digest.encode(), digest_size=6, person=b"strat-key-id").hexdigest()


# The header that identifies one conversation most closely comes first. opencode and kilo send x-session-affinity and
# x-session-id. Codex sends thread-id for a thread within the session of session-id.
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "thread-id", "session-id")
_MAX_HINT_CHARS = 256


class Identity:
    """Identifies the sender of a request. Because of the ``salt``, nobody else can compute the scopes of clients. State
    that outlives the process, or is shared, needs the same salt every time.

    If the configuration names no key and no team, and no key was made, every key is accepted, and keys only tell
    clients apart. This ends as soon as there is a key, until the process is started again. So deleting the last key
    does not give everybody access.
    """

    def __init__(self, directory: Directory, salt: bytes) -> None:
        self._directory = directory
        self._salt = salt[:64]
        self._is_open = directory.declared.is_empty
        self._seen: DirectorySnapshot | None = None
        self._records: Mapping[str, KeyRecord] = {}
        self._met: dict[str, Principal] = {}

    def admit(self, headers: Headers, now: float) -> Principal:
        """The sender of a request. Raises Unauthorized if keys are needed and no valid key was sent."""
        directory, snapshot = self._directory, self._directory.snapshot
        if snapshot is not self._seen:
            records = list(snapshot.keys.values())
            if master := directory.declared.master_digest:
                records.append(KeyRecord(id=MASTER_ID, digest=master, team=DEFAULT_TEAM))
            self._records = {record.digest: record for record in records}
            self._met = {}
            self._is_open = self._is_open and directory.declared.is_empty and not snapshot.keys
            self._seen = snapshot
        sent = {name.lower(): value for name, value in headers}
        hint = session_hint(sent)
        keys = sent_keys(headers)
        if self._is_open:
            self._check_loaded()
            return Principal(scope=self._scope("", keys[0] if keys else ""), session_hint=hint)
        own = sent.get(OWN_KEY_HEADER, "").strip()
        for key in [own] if own else keys:
            if (found := self._find(key)) is not None:
                record, team = found
                _check_good(record, now)
                if (principal := self._met.get(record.id)) is None:
                    principal = _principal(self._scope(team.name, record.id), team, record)
                    self._met[record.id] = principal
                # If the other key, besides the proxy's own, were a second key of the proxy, the provider would get it.
                brings_key = bool(own) and team.forwards_keys and client_key(headers) is not None
                brings_key = brings_key and not any(key.startswith(KEY_PREFIX) or self._find(key) for key in keys)
                return replace(
                    principal,
                    session_hint=hint,
                    virtual=not brings_key,
                    forwards_key=brings_key,
                    is_confined=principal.is_confined and not brings_key,
                )
        return self._stranger(own, keys, client_key(headers), hint)

    def is_master(self, headers: Headers) -> bool:
        """Whether the master key was sent. False if there is no master key."""
        master = self._directory.declared.master_digest
        return bool(master) and any([hmac.compare_digest(digest_of(key), master) for key in sent_keys(headers)])

    @property
    def has_master(self) -> bool:
        return bool(self._directory.declared.master_digest)

    def signed(self, text: str) -> str:
        """A signature of a text. Every proxy with this master key makes the same signature, and nobody else can make
        it. Empty if there is no master key."""
        master = self._directory.declared.master_digest
        return hmac.digest(master.encode(), text.encode(), "sha256").hex() if master else ""

    def _stranger(self, own: str, keys: Sequence[str], theirs: str | None, hint: str) -> Principal:
        """The principal of a key that is not known here. If the configuration forwards such keys, it counts as the
        provider's key. Raises Unauthorized, NotReady."""
        looks_ours = bool(own) or any(key.startswith(KEY_PREFIX) for key in keys)
        if looks_ours:
            self._check_loaded()
        if self._directory.declared.forwards_unknown and theirs is not None and not looks_ours:
            team = self._directory.snapshot.teams[CLIENT_KEYS_TEAM]
            principal = _principal(self._scope(CLIENT_KEYS_TEAM, theirs), team, None)
            return replace(principal, session_hint=hint, virtual=False, forwards_key=True)
        if not keys and not own:
            raise Unauthorized("No API key: send one of this proxy's keys as `Authorization: Bearer KEY`.")
        self._check_loaded()
        raise Unauthorized("Incorrect API key: this proxy does not know the key that was sent.")

    def _check_loaded(self) -> None:
        if not self._directory.is_loaded:
            raise NotReady("The proxy's keys have not been read yet: its store does not answer.")

    def _find(self, key: str) -> tuple[KeyRecord, TeamRecord] | None:
        """The record and the team of a key; None for a key that is not known here."""
        if (record := self._records.get(digest_of(key))) is None:
            return None
        team = self._directory.snapshot.teams.get(record.team)
        return (record, team) if team is not None else None

    def _scope(self, team: str, key: str) -> str:
        text = f"{team}\0{key}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, digest_size=16, key=self._salt).hexdigest()


def session_hint(headers: Mapping[str, str]) -> str:
    """The session id in a client's headers (by their names in lower case); empty if there is none."""
    return next((headers[name][:_MAX_HINT_CHARS] for name in _SESSION_HEADERS if headers.get(name)), "")


def _principal(scope: str, team: TeamRecord, key: KeyRecord | None) -> Principal:
    """The principal of a key, with the narrower of the rights of the team and of the key."""
    parts: tuple[KeyRecord | TeamRecord, ...] = (team,) if key is None else (key, team)
    rates = [
        RateLimit(key.id if key is not None and part is key else "", part.requests_per_minute, part.tokens_per_minute)
        for part in parts
        if part.requests_per_minute is not None or part.tokens_per_minute is not None
    ]
    return Principal(
        scope=scope,
        team=team.name,
        mode=min((_mode(part.mode) for part in parts if part.mode), default=Mode.TIER),
        virtual=True,
        key_id="" if key is None else key.id,
        user="" if key is None else key.user,
        models=tuple(tuple(part.models) for part in parts if not allows_all([part.models])),
        rates=tuple(rates),
        is_confined=key is not None and key.id != MASTER_ID and "*" not in team.paths,
        paths=tuple(team.paths),
    )


def _mode(text: str) -> Mode:
    """The mode of that name. A store that is shared with a later version may hold a mode that is not known here. Then
    requests pass through unchanged."""
    try:
        return Mode.parse(text)
    except ValueError:
        return Mode.PASSTHROUGH


def _check_good(key: KeyRecord, now: float) -> None:
    """Raises Unauthorized for a revoked or expired key. Only a caller who has the key gets this error."""
    if key.revoked_at is not None:
        raise Unauthorized("This API key has been revoked.")
    if key.expires_at is not None and now >= key.expires_at:
        raise Unauthorized("This API key has expired.")


def is_address(name: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether only this machine reaches an address. A text that is not an address counts as reachable from outside,
    except ``localhost``."""
    if not is_address(name):
        return name == "localhost"
    found = ip_address(name)
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)
