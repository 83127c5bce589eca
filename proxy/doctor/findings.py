"""Entries in the order of time become the findings about each client: its culprits, its losses, and its cache."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from proxy.core.caches.prompt import BillSum
from proxy.core.diagnosis.breaks import Break
from proxy.core.diagnosis.diagnose import diagnose
from proxy.core.diagnosis.record import SYSTEM, PromptRecord
from proxy.core.money.prices import input_cost
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage
from proxy.doctor.entries import Entry
from proxy.doctor.rules import Rules
from proxy.doctor.untold import Seen, seen, untold_break

# What is remembered: of a session more than the lines of its sub-agents that take turns, and of all sessions as much as
# fits into 100 MB, at 28 bytes a piece and the sizes of lines besides.
_RECORDS = 64
_PIECES = 2_000_000
_CULPRITS = 5_000
_MODELS = 100
# A longer pause lies between two logs.
_LONGEST_PAUSE_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """What breaks are added up by. ``sign`` is what a line evidently is, empty where it is nothing that is known."""

    kind: str
    piece: str
    piece_kind: str
    line: int
    sign: str
    is_waste: bool


@dataclass(slots=True)
class Loss:
    """What one culprit has cost so far, in requests, tokens and USD."""

    breaks: int = 0
    lost: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class Findings:
    """About one client. ``usd`` is what its prompts have cost, where the log tells the usage and the price is known.
    ``written`` are the tokens that were not read, and ``largest`` the largest prompt of each session, added up.
    ``agreed`` of ``compared`` breaks have the cause that the provider itself has named. ``span_s`` are the seconds that
    the log covers, and ``last`` is the time of the last call."""

    calls: int = 0
    told: int = 0
    sessions: int = 0
    unpriced: int = 0
    models: dict[str, int] = field(default_factory=dict)
    usage: BillSum = field(default_factory=BillSum)
    usd: float = 0.0
    written: int = 0
    largest: int = 0
    compared: int = 0
    agreed: int = 0
    span_s: float = 0.0
    last: float | None = None
    losses: dict[Culprit, Loss] = field(default_factory=dict)

    @property
    def hours(self) -> float | None:
        """The length of the log; None where it tells no times."""
        return None if self.last is None else self.span_s / 3600

    def count(self, model: str, at: float | None, usage: Usage | None, usd: float | None) -> None:
        """Count one call, in the order of time. ``usd`` is the cost of its prompt, None where the model's price is not
        known."""
        self.calls += 1
        if model in self.models or len(self.models) < _MODELS:
            self.models[model] = self.models.get(model, 0) + 1
        if at is not None:
            pause_s = 0.0 if self.last is None else at - self.last
            self.span_s += pause_s if pause_s < _LONGEST_PAUSE_S else 0.0
            self.last = at
        self.unpriced += usd is None
        if usage is not None:
            self.told += 1
            self.usage.add(usage)
            self.written += usage.prompt - usage.read
            self.usd += usd or 0.0


@dataclass(slots=True)
class _Session:
    """What is remembered of one session."""

    records: list[PromptRecord] = field(default_factory=list)
    seen: Seen | None = None
    largest: int = 0

    @property
    def pieces(self) -> int:
        """How much it takes; a session without records counts as one piece."""
        return 1 + sum(record.count for record in self.records)


class _Sessions(OrderedDict[tuple[str, str], _Session]):
    """The sessions in the order of their use; those that were used least recently are forgotten first."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces = 0

    def used(self, session: _Session, before: int) -> None:
        """A session has grown from so many pieces; it is the one that was used last."""
        self._pieces += session.pieces - before
        while self._pieces > _PIECES and len(self) > 1:
            _, old = self.popitem(last=False)
            self._pieces -= old.pieces


def findings(entries: Iterable[Entry], rules: Rules) -> dict[str, Findings]:
    """The findings by client. ``entries`` come in the order of time."""
    found: dict[str, Findings] = {}
    sessions = _Sessions()
    for entry in entries:
        client = found.setdefault(entry.client, Findings())
        session = sessions.get((entry.client, entry.session))
        before = 0 if session is None else session.pieces
        if session is None:
            session = sessions[entry.client, entry.session] = _Session()
            client.sessions += 1
        sessions.move_to_end((entry.client, entry.session))
        _count(client, session, entry, rules)
        broken = _break(session, entry, rules)
        sessions.used(session, before)
        if broken is not None:
            _add(client, broken, entry)
    return found


def _count(client: Findings, session: _Session, entry: Entry, rules: Rules) -> None:
    price, usage = rules.of(entry.model, entry.provider, entry.profile).price, entry.usage
    cost = 0.0 if usage is None or price is None else input_cost(usage, price)
    client.count(entry.model, entry.at, usage, None if price is None else cost)
    if usage is not None and usage.prompt > session.largest:
        client.largest += usage.prompt - session.largest
        session.largest = usage.prompt


def _break(session: _Session, entry: Entry, rules: Rules) -> Break | None:
    """The break of a call; the session then remembers it."""
    held = rules.of(entry.model, entry.provider, entry.profile)
    at = entry.at or 0.0
    if entry.record is None:
        if entry.usage is None:
            return None
        before, session.seen = session.seen, seen(at, entry.model, entry.usage, session.seen)
        if before is None:
            return None
        return untold_break(before, at, entry.model, entry.usage, held, is_compacted=entry.is_compacted)
    record = entry.record
    if entry.continues and session.records:
        record = record.continuing(session.records[-1])
    broken = diagnose(session.records, record, entry.usage, held.profile, held.price)
    session.records.append(record.answered(entry.usage, held.profile))
    del session.records[:-_RECORDS]
    return broken if broken is not None and (broken.lost or broken.culprit) else None


def _add(client: Findings, broken: Break, entry: Entry) -> None:
    culprit = Culprit(
        kind=str(broken.kind),
        piece=broken.culprit,
        piece_kind=broken.culprit_kind,
        line=broken.line,
        sign=_sign(broken, entry),
        is_waste=broken.is_waste,
    )
    if culprit not in client.losses and len(client.losses) >= _CULPRITS:
        culprit = replace(culprit, piece="", line=0, sign="")
    loss = client.losses.setdefault(culprit, Loss())
    loss.breaks += 1
    loss.lost += broken.lost
    loss.usd += broken.usd
    if entry.cause != UNTOLD and broken.expected_cause:
        client.compared += 1
        client.agreed += entry.cause == broken.expected_cause


def _sign(broken: Break, entry: Entry) -> str:
    """What the line that differs evidently is."""
    record = entry.record
    if record is None or broken.culprit_kind != SYSTEM or broken.place < 0:
        return ""
    named = enumerate(zip(record.places, record.named(), strict=True))
    index = next((i for i, (place, (kind, _)) in named if place == broken.place and kind == SYSTEM), -1)
    return entry.signs.get(index, {}).get(broken.line, "")


def worst(losses: Sequence[tuple[Culprit, Loss]]) -> list[tuple[Culprit, Loss]]:
    """The dearest first."""
    return sorted(losses, key=lambda item: (-item[1].usd, -item[1].lost))
