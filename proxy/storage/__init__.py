"""Keeps everything that outlives a request, behind one protocol.

``Store`` is what a store promises. Its engines are SQLite, in a file or in memory, and Redis. A worker's spool keeps
calls while the store is away. The packages that use this one decide what is stored; nothing here knows about requests.

Money is counted in integer nano-dollars, so that sums are exact on every engine. A counter stays below 2^53, which is 9
million USD, because Redis scripts compute in doubles. Every method may raise ``proxy.kit.errors.StoreError``; no
other error leaves an engine. One method is one round trip. ``now`` is unix seconds of the machine's clock: it decides
what has expired, never the window of an exchange.

The life of a reservation, by exchange id, is below. Each step is atomic. It is done once, even if it is asked for
several times, and the calls may arrive in any order. A call that timed out may still be carried out later. A reserve
for an open reservation leaves its charges as they are, and gives it the new entry and the later ``expires_at``::

    reserve ──> settle      the entry is written, the counters move from reserved to spent
       │  └───> release     the counters go back; no entry └──(expires_at)────> billed as reserved, with
       ``Reserve.entry``, marked as estimated; a later settle corrects
                            counters and entry to the real values, once
    settle alone            the store was away at the time of the reservation: the counters are charged, and the entry
                            is written

A reserve that arrives after its settle or release is granted and changes nothing. For that, an engine remembers ended
reservations for at least ``REMEMBERED_S``.

A store is still the one that was known, or it was emptied or exchanged: its epoch tells. This is a random id that the
first worker writes into it. Workers remember this id, also across
restarts. A store that shows another epoch, or none, does not hold the counters that were written before: its budgets
would begin anew. Such a store is not trusted until an operator has accepted it. A single budget counts again once its
counter was restored.

The store keeps all this as facts: small texts by name. Facts are only ever added or overwritten, so that workers of
several hosts may write them at once:

    epoch            the id
    heir             the epoch that was lost when this one began; absent if the store began empty for all workers
    lost:EPOCH       a worker knew that epoch, and this store has another one: empty until an operator accepts it, then
                     the id of the epoch that was accepted in its place
    restored:NAME    the epoch under which an operator has restored a counter
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Literal, Protocol, TypeVar

from proxy.kit.value import dataclass, field

REMEMBERED_S = 86400.0
"""The shortest time for which a release, or a reservation that was billed as it stood, is remembered."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The amount that an exchange takes from one counter: of a budget in one of its windows, or of a rate limit.

    ``account`` names the counter within the team, by rule, subject and window ("b:monthly:-:2026-11-01"). The counter
    is forgotten ``keep_s`` after its last change (None: never). ``amount`` is the reserved amount, in the counter's
    unit (nano-dollars, tokens, requests), and ``expected`` is the amount that will probably be spent. ``limit`` is the
    most that spent and reserved may reach together with this charge (None: no limit). ``within`` are further counters
    that count towards the same limit: the earlier parts of a rolling window.
    """

    account: str
    amount: int
    limit: int | None = None
    keep_s: float | None = None
    expected: int = 0
    within: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """All charges of one exchange (there may be none): granted together or not at all. At ``expires_at``, the
    reservation of a worker that died is billed as it stands and marked as estimated."""

    exchange_id: str
    team: str
    charges: Sequence[Charge]
    expires_at: float
    entry: "LedgerEntry"
    """The entry that is written into the ledger if nobody settles."""


@dataclass(frozen=True, slots=True)
class Balance:
    """A counter after a call, in its own unit. The counters that its charge names in ``within`` are added."""

    account: str
    spent: int
    reserved: int
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    """The reservation was made. There is a balance for each charge, in the order of the charges, which includes the new
    reservation. ``epoch`` is the store's epoch (see above); empty if the store has lost it; None if the
    store has no epoch."""

    balances: Sequence[Balance]
    epoch: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was reserved. ``balance`` is the unchanged balance of the first counter that would have exceeded its
    limit. ``is_repeated``: the call was made before without an answer. The first call may still be carried out, so the
    reservation must be released."""

    charge: Charge
    balance: Balance
    is_repeated: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One settled exchange in the ledger, at the prices of its day. An entry holds no prompt text and no key.

    ``at`` is when the request arrived, so that windows and reports agree on the day. ``key_id`` is a virtual key's
    public id, and ``user`` is the user that the key or the client named. ``saved`` is the difference to the cost of the
    client's own layout. ``break_kind`` says why less of the request was read from the cache than possible, and
    ``break_cost`` is the cost of that; they are empty and 0 if there was no cache break. ``provider_cause`` is the
    cause that the provider itself reports (``proxy.protocol.response.outcome``); empty if it reports none.
    """

    exchange_id: str
    at: float
    team: str
    key_id: str = ""
    user: str = ""
    model: str = ""
    mode: str = ""
    reason: str = ""
    status: int = 0
    ending: str = ""
    read_tokens: int = 0
    write_5m_tokens: int = 0
    write_1h_tokens: int = 0
    plain_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    saved: int = 0
    latency_ms: int = 0
    estimated: bool = False
    break_kind: str = ""
    break_cost: int = 0
    provider_cause: str = ""


@dataclass(frozen=True, slots=True)
class Settle:
    """The end of an exchange. Each ``amount`` of ``final`` replaces the reserved amount on its counter. A counter that
    was reserved and is not in ``final`` is charged nothing. A counter in ``final`` is also charged if nothing was
    reserved on it."""

    entry: LedgerEntry
    final: Sequence[Charge]

    @property
    def exchange_id(self) -> str:
        """The exchange that has ended."""
        return self.entry.exchange_id

    @property
    def team(self) -> str:
        """The team of the exchange."""
        return self.entry.team


@dataclass(frozen=True, slots=True)
class Release:
    """A reservation that is to be given back, because its exchange was never sent upstream. It leaves no entry. If the
    exchange was already settled or billed, nothing changes."""

    exchange_id: str
    team: str


PutOff = Settle | Release | Reserve
"""A call that may be put off until the store answers. A reservation that is put off is for an exchange that was already
sent, so it has no limits."""

SpendGroup = Literal["team", "key", "user", "model", "day"]
GROUP_FIELDS: Mapping[SpendGroup, str] = {"team": "team", "key": "key_id", "user": "user", "model": "model"}
"""The field of an entry by which a group is formed. A day has no field: it follows from ``at``."""


@dataclass(frozen=True, slots=True)
class SpendQuery:
    """A report: entries with ``since <= at < until``, of one team (key, user, model) or of all, summed up by groups.
    Without a group there is one row, or no row if there is no entry. ``utc_offset_s`` is added to ``at`` before the day
    is computed. A group "day" has the form "2026-11-22"."""

    since: float
    until: float
    by: Sequence[SpendGroup] = ()
    team: str | None = None
    key_id: str | None = None
    user: str | None = None
    model: str | None = None
    utc_offset_s: int = 0


@dataclass(frozen=True, slots=True)
class SpendRow:
    """One line of a report. ``group`` has the groups of the query in their order; ``estimated`` counts entries."""

    group: Mapping[str, str]
    requests: int
    read_tokens: int
    write_tokens: int
    plain_tokens: int
    output_tokens: int
    cost: int
    saved: int
    estimated: int


def largest_first(rows: Iterable[SpendRow]) -> Sequence[SpendRow]:
    """The lines of a report in their order: the largest cost first, then by group."""
    return sorted(rows, key=lambda row: (-row.cost, *row.group.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The permissions of a team or a key, and when the team or the key was created."""

    mode: str = ""
    models: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class KeyRecord(Permissions):
    """A virtual key. Only the digest of its secret is kept; ``id`` is public (``key-`` and 12 characters)."""

    id: str
    digest: str = field(repr=False)
    team: str
    user: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TeamRecord(Permissions):
    """A team. ``forwards_keys``: its clients may send the provider's key as well, which then goes upstream."""

    name: str
    forwards_keys: bool = False
    paths: tuple[str, ...] = ()
    """Paths that the team may use although they reach the whole account of the provider."""


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """A budget: its subject, its amounts, and its window. ``subject`` is the key id, user or model to which the budget
    applies ("*": each of them has its own counter)."""

    id: str
    team: str
    scope: Literal["team", "key", "user", "model"] = "team"
    subject: str = "*"
    unit: Literal["usd", "tokens"] = "usd"
    hard: int | None = None
    """In the unit of its counter: nano-dollars, or tokens."""
    soft: int | None = None
    window: str = "total"
    """"total", "day", "week", "month" (calendar, in ``timezone``) or "rolling:SECONDS"."""
    timezone: str = "UTC"
    assumed_output_tokens: int | None = None
    webhook: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """An object of the provider's account (a file, a stored response, a batch ...) that a team made through the proxy.

    ``name`` is the provider's id for it, ``family`` the kind of object, ``deployment`` the id of the deployment that
    made it. ``server`` names the server within which the id is unique: two servers may give the same id. ``bill``
    describes an exchange that will be settled when the object's usage is known; it is empty for most objects.
    """

    name: str
    team: str
    family: str
    server: str
    deployment: str
    forget_at: float
    bill: str = ""


Record = TeamRecord | KeyRecord | BudgetRecord
"""A record that an operator manages while the proxy runs."""
RecordKind = Literal["team", "key", "budget"]
RECORD_KINDS: Mapping[type[Record], RecordKind] = {TeamRecord: "team", KeyRecord: "key", BudgetRecord: "budget"}
R = TypeVar("R", TeamRecord, KeyRecord, BudgetRecord)


def record_name(record: Record) -> str:
    """The name by which a record is found among those of its kind."""
    return record.name if isinstance(record, TeamRecord) else record.id


Place = tuple[float, str]
"""The position of a blob in the order of its scope: the time at which it is forgotten, and its name."""


class Store(Protocol):
    """One engine."""

    is_shared: bool
    """Whether several workers and hosts may use it at once."""

    is_durable: bool
    """Whether its content outlives the process."""

    # Budgets, rate limits and the ledger.

    async def reserve(self, ask: Reserve, now: float) -> Granted | Refused:
        """Grant all charges or none, in one atomic step. Expired reservations of the team are billed first."""

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        """Write the entry and replace the reservation. Returns the balances of ``final``, in its order. The change is
        durable on return."""

    async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
        """Settle, release and reserve for one team in one round trip. Some of the calls may have been put off. The
        reservations among them have no limits. If this raises an error, some of the calls may have been carried out; a
        repetition does no harm."""

    async def renew(self, team: str, exchange_ids: Sequence[str], expires_at: float) -> None:
        """Renew the reservations of exchanges that still run. An exchange without a reservation is left out, and a
        reservation that lasts longer is not shortened."""

    async def expire(self, now: float) -> int:
        """Bill every expired reservation as it stands, and mark it as estimated. Returns how many there were. Also
        delete data whose time is over."""

    async def balance(self, team: str, charge: Charge, now: float) -> Balance:
        """The current counter of a charge, with the counters ``within`` its limit added. An unknown counter is zero."""

    async def set_spent(self, team: str, charge: Charge, now: float) -> Balance:
        """Correct a counter: the spent amount of the counter, together with the counters ``within`` its limit, becomes
        the charge's amount. Reserved amounts stay. Returns the balance before."""

    async def claim(self, team: str, name: str, keep_s: float, now: float) -> bool:
        """Claim a name, for notices that go out once. Returns whether nobody has claimed it in the last ``keep_s``."""

    async def spend(self, query: SpendQuery) -> Sequence[SpendRow]:
        """A report, largest cost first, then by group."""

    async def entries(
        self, since: float, until: float, after: str = "", limit: int = 1000, team: str | None = None
    ) -> Sequence[LedgerEntry]:
        """A page of the ledger, ``since <= at < until``, in the order of (at, exchange id). For the next page,
        ``since`` is the last entry's ``at`` and ``after`` its id: entries up to (since, after) are left out."""

    async def forget_entries(self, before: float) -> int:
        """Delete entries with ``at < before``. Returns how many there were. Counters stay."""

    # Teams, keys and budgets that are managed while the proxy runs. They are few: all are read, and cached by
    # version.

    async def directory_version(self) -> int:
        """The version of the records, which grows with every change."""

    async def records(self, record_type: type[R]) -> Sequence[R]:
        """All records of a kind, sorted by name, including revoked keys."""

    async def put(self, record: Record, version: int | None = None) -> bool:
        """Create or replace, by name or id. Returns False, and does nothing, if the records have another version than
        this one; None: any version."""

    async def remove(self, kind: RecordKind, name: str) -> bool:
        """Delete a record. Returns whether there was one."""

    # The owners of objects in the provider's account. A record counts until its ``forget_at``.

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        """Keep records of one team. If the team already has an object, the object keeps its bill, and the later of both
        end times. An object that another team has made at the same server stays that team's. If a team has more than
        about ``most`` objects (a sixteenth more or less), its records that end first are deleted."""

    async def owned(self, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
        """The team's objects of these names; None for an object that is not the team's."""

    async def disown(self, team: str, name: str) -> None:
        """Delete the record of an object that was deleted."""

    async def take_bill(self, team: str, name: str) -> str:
        """Take the bill of the team's object away and return it. If several callers ask at once, one gets it and the
        others get an empty text."""

    # Layout state: opaque, versioned blobs. They may be lost (then caching starts again), but they are never wrong.

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        """Blobs of one scope, in one round trip."""

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope, in one round trip. Each blob is forgotten ``ttl_s`` after its last save."""

    async def page(self, scope: str, behind: Place, limit: int, now: float) -> Sequence[tuple[str, float, bytes]]:
        """Blobs of one scope, the last saved first: name, the time at which it is forgotten, and blob. The page begins
        after ``behind``, the place of the last blob of the page before; (inf, "") for the first page. One round
        trip."""

    # Facts are statements of the store about itself: short texts by name (``proxy.storage``).

    async def facts(self) -> Mapping[str, str]:
        """All facts."""

    async def put_facts(self, facts: Mapping[str, str], *, overwrite: bool) -> None:
        """Write facts. Without ``overwrite``, an existing fact stays as it is."""

    async def time(self) -> float | None:
        """The store's own clock, in unix seconds; None if the store uses the machine's clock."""

    async def ping(self) -> None:
        """Raises StoreError if the store does not answer."""

    async def aclose(self) -> None:
        """Finish all work that was handed over, and release everything."""


EPOCH = "epoch"
_HEIR = "heir"
_LOST = "lost:"
_RESTORED = "restored:"

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoreEpoch:
    """The state of a store, as seen by a worker that knew an epoch. ``lost`` is the epoch whose place this store has
    taken. If ``lost`` is empty, the counters are those that were known, or an operator has accepted them. ``restored``
    names the counters that were restored meanwhile."""

    id: str
    lost: str = ""
    restored: Set[str] = frozenset()


def facts_to_add(facts: Facts, known: str, fresh: str) -> dict[str, str]:
    """The facts that a worker adds to the store. ``known`` is the epoch that the worker knew, empty if it knew none.
    ``fresh`` becomes the id of a store that has none."""
    found = facts.get(EPOCH)
    added: dict[str, str] = {}
    if found is None:
        added[EPOCH] = fresh
        if known:
            added[_HEIR] = known
    if known and known != found and _LOST + known not in facts:
        added[_LOST + known] = ""
    return added


def read_epoch(facts: Facts, known: str) -> StoreEpoch:
    """The state of the store for a worker that knew the epoch ``known``. The facts must have an epoch."""
    epoch = facts[EPOCH]
    before = "" if known == epoch else known or facts.get(_HEIR, "")
    if not before or facts.get(_LOST + before) == epoch:
        return StoreEpoch(epoch)
    restored = [name for name, at in facts.items() if name.startswith(_RESTORED) and at == epoch]
    return StoreEpoch(epoch, before, frozenset(name.removeprefix(_RESTORED) for name in restored))


def facts_to_replace(facts: Facts, fresh: str) -> dict[str, str]:
    """The facts to set after a part of the store was lost, so that a new epoch begins."""
    before = facts[EPOCH]
    return {EPOCH: fresh, _HEIR: before, _LOST + before: ""}


def epochs_not_accepted(facts: Facts) -> list[str]:
    """The epochs whose place the store has taken and that no operator has accepted."""
    epoch = facts.get(EPOCH, "")
    return sorted(name.removeprefix(_LOST) for name, by in facts.items() if name.startswith(_LOST) and by != epoch)


def facts_to_accept(facts: Facts) -> dict[str, str]:
    """The facts to set when an operator accepts the store as it is."""
    return {_LOST + lost: facts[EPOCH] for lost in epochs_not_accepted(facts)}


def facts_to_restore(facts: Facts, name: str) -> dict[str, str]:
    """The facts to set when an operator restores a counter; none if the store is in order."""
    return {_RESTORED + name: facts[EPOCH]} if epochs_not_accepted(facts) else {}
