"""The diagnosis of one request: whether its prompt broke the cache, which piece did, and what that cost.

Only requests are compared, as the providers' own diagnostics do it; what no difference explains is the provider's
side, in the words of ``proxy.core.shadow.deviations``.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.caches.prompt import Bill
from proxy.core.diagnosis.breaks import Break, BreakKind
from proxy.core.diagnosis.comparison import Difference, difference, likeness, tokens_of
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, PromptPiece, PromptRecord, shared_front
from proxy.core.money.prices import Price, input_cost
from proxy.core.providers import CacheProfile, Family
from proxy.core.recognition.pieces import PieceKind
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage
from proxy.core.shadow.deviations import LOST, Deviation, Observation, lost_kind, tolerance

PARAMETER = "parameter"
MODEL = "model"
ROUTE = "route"
"""Kinds of culprits that are no pieces of the prompt."""

_CONTENT = frozenset({PieceKind.FILE, PieceKind.SYMBOL, PieceKind.DOCUMENT})
_NO_WASTE = frozenset({BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM})


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of the answer to a request: its usage (None: not told), how that departs from what was expected
    (empty: nobody has compared it), and the provider's own cause (``proxy.core.response.miss_diagnostics``)."""

    usage: Usage | None = None
    deviation: str = ""
    provider_cause: str = UNTOLD


@dataclass(frozen=True, slots=True)
class Comparison:
    """A request beside the one of its session that it goes on (``old``). ``first`` pieces are the same in front, and
    ``found`` is how they differ behind (None: the request repeats all of the earlier one)."""

    before: Sequence[PromptRecord]
    now: PromptRecord
    old: PromptRecord
    first: int
    found: Difference | None

    def differs(self, profile: CacheProfile) -> bool:
        """Whether the client has sent something else than before, as far as this provider's cache goes by it."""
        return self.found is not None or _outside(self, profile) is not None

    def diagnosed(self, answer: Answer, profile: CacheProfile, price: Price | None = None) -> Break | None:
        """Why the request was read less than it could have been; None where it was not. ``price`` is the model's, in
        USD a token; None: nobody knows it, and no USD are told."""
        accounts = _Accounts(self, answer, profile)
        culprit = _outside(self, profile) or _culprit(self)
        if culprit is None:
            culprit = accounts.unexplained()
        elif not accounts.is_alive(self.old):
            culprit = replace(culprit, kind=Deviation.EXPIRED, is_waste=False)
        return (
            None if culprit is None else replace(accounts.priced(culprit, price), provider_cause=answer.provider_cause)
        )


def compared(before: Sequence[PromptRecord], now: PromptRecord) -> Comparison | None:
    """A request beside the earlier ones of its session, the newest last; None where it goes on from none of them."""
    if not before or not now.digests:
        return None
    old, first = _predecessor(before, now)
    if first == old.count:
        return Comparison(before, now, old, first, None)
    found = difference(old, now, first)
    return None if found is None else Comparison(before, now, old, first, found)


def diagnose(
    before: Sequence[PromptRecord], now: PromptRecord, answer: Answer, profile: CacheProfile, price: Price | None = None
) -> Break | None:
    """Why the request was read less than it could have been; None where it was not. ``before`` are the records of the
    session, the newest last; ``price`` as in ``Comparison.diagnosed``."""
    comparison = compared(before, now)
    return None if comparison is None else comparison.diagnosed(answer, profile, price)


def _predecessor(before: Sequence[PromptRecord], now: PromptRecord) -> tuple[PromptRecord, int]:
    """The request that this one goes on, and how many pieces both begin with: the one that is most alike, the newest of
    equal ones."""
    newest = before[-1]
    first = shared_front(newest, now)
    if first == newest.count and newest.total == max(record.total for record in before):
        return newest, first
    old = max(reversed(before), key=lambda record: likeness(record, now))
    return old, shared_front(old, now)


def _outside(comparison: Comparison, profile: CacheProfile) -> Break | None:
    """A difference in what stands in front of the pieces, or between them."""
    old, now, found = comparison.old, comparison.now, comparison.found
    if (old.model, old.route, old.parameters) == (now.model, now.route, now.parameters):
        return None
    if old.model != now.model:
        return Break(BreakKind.MODEL_SWITCHED, now.model or MODEL, MODEL, behind=now.total)
    common = found.common if found is not None else now.total
    starts = {kind: _start(now, kind) for kind in (TOOL, SYSTEM, TURN)}
    breaking = profile.breaking
    groups = ((TOOL, breaking.before_tools), (SYSTEM, breaking.before_system), (TURN, breaking.before_messages))
    for kind, names in groups:
        for name in names:
            if old.parameters.get(name) != now.parameters.get(name) and starts[kind] <= common:
                rest = now.total - starts[kind]
                return Break(BreakKind.PARAMETERS, name, PARAMETER, before=starts[kind], behind=rest, is_waste=True)
    if found is None and old.route != now.route:
        return Break(BreakKind.ROUTE_SWITCHED, now.route or ROUTE, ROUTE, behind=now.total, is_waste=True)
    return None


def _start(record: PromptRecord, kind: str) -> int:
    """Where the pieces of a kind begin, in tokens: tools, system texts, and all else."""
    fronts = {TOOL: (), SYSTEM: (TOOL,), TURN: (TOOL, SYSTEM)}[kind]
    count = next((i for i, (each, _) in enumerate(record.named()) if each not in fronts), record.count)
    return record.end(count)


def _culprit(comparison: Comparison) -> Break | None:
    """The first piece that differs, and how."""
    now, found, first = comparison.now, comparison.found, comparison.first
    if found is None:
        return None
    kind, piece = _kind(found)
    if piece.kind == TOOL:
        kind = BreakKind.TOOLS
    tokens = piece.tokens if piece in found.gaps[0].new else 0
    is_content = piece.kind in _CONTENT and kind is not BreakKind.REORDERED
    return Break(
        kind=kind,
        culprit=piece.key,
        culprit_kind=piece.kind,
        place=now.places[first] if first < now.count else -1,
        line=found.line,
        before=found.common,
        tokens=tokens,
        behind=now.total - found.common - tokens,
        is_waste=kind not in _NO_WASTE and not is_content,
    )


def _kind(found: Difference) -> tuple[BreakKind, PromptPiece]:
    """What happened at the first difference, and to which piece."""
    gap = found.gaps[0]
    if gap.is_shorter:
        return BreakKind.COMPACTED, gap.new[0]
    for piece in (*gap.old[:1], *gap.new[:1]):
        if piece.digest in found.moved:
            return BreakKind.REORDERED, piece
    if not gap.old:
        # A turn is always new: it is the context behind it that does not stay where it is.
        stays_last = gap.new[0].kind == TURN and gap.following.kind != TURN
        return (BreakKind.REORDERED, gap.following) if stays_last else (BreakKind.APPEARED, gap.new[0])
    theirs = gap.old[0]
    if not gap.new:
        newer = {_name(piece) for later in found.gaps for piece in later.new}
        is_elsewhere = theirs.kind in _CONTENT and _name(theirs) in newer
        return BreakKind.CHANGED if is_elsewhere else BreakKind.DISAPPEARED, theirs
    mine = gap.new[0]
    if _name(mine) != _name(theirs):
        if _name(mine) in map(_name, gap.old):
            return BreakKind.DISAPPEARED, theirs
        if _name(theirs) in map(_name, gap.new):
            return BreakKind.APPEARED, mine
    return BreakKind.CHANGED, mine


def _name(piece: PromptPiece) -> tuple[str, str]:
    return piece.kind, piece.key


class _Accounts:
    """What was read of a request, and what could have been."""

    def __init__(self, comparison: Comparison, answer: Answer, profile: CacheProfile) -> None:
        self._before, self._now = comparison.before, comparison.now
        self._old, self._found = comparison.old, comparison.found
        self._answer, self._profile = answer, profile
        usage = answer.usage
        self._usage = None if usage is None or usage.estimated or usage.prompt <= 0 else usage
        self._ratio = self._usage.prompt / self._now.total if self._usage is not None and self._now.total else 1.0

    def unexplained(self) -> Break | None:
        """What the provider's side is where no piece differs; None where all was read that could be."""
        now, profile, deviation = self._now, self._profile, self._answer.deviation
        if deviation and self._usage is not None:
            return Break(Deviation(deviation), before=now.total) if deviation in LOST else None
        expected, whole = self._held(self._old), Break(Deviation.EXPIRED, before=now.total)
        if self._usage is None:
            return whole if not self.is_alive(self._old) and expected else None
        if not expected and not self._usage.read and profile.family is not Family.NONE:
            is_short = now.total < profile.min_tokens
            return replace(whole, kind=BreakKind.BELOW_MINIMUM) if is_short else None
        if self._usage.read >= expected * self._ratio * profile.hit_chance - tolerance(self._usage, profile):
            return None
        hit = bisect_left(now.ends, expected)
        distances = [bisect_left(now.ends, stop) - hit for stop in now.stops if stop >= expected]
        seen = Observation(
            predicted=Bill(expected, 0, 0, now.total - expected, hit),
            reported=self._usage,
            age_s=now.at - self._old.at,
            life_s=self._life(self._old),
            distance=min(distances, default=0),
        )
        return replace(whole, kind=lost_kind(seen, profile))

    def priced(self, culprit: Break, price: Price | None) -> Break:
        """The break with what it cost."""
        actual, found = self._actual(), self._found
        whole = alone = self._held(self._old)
        grown = first_grown = 0
        if found is not None:
            changes = [sum(new.tokens - old.tokens for old, new in gap.versions()) for gap in found.gaps]
            gone = [self._gone(index) for index in range(len(found.gaps))]
            grown, first_grown = sum(changes), changes[0]
            whole = alone = min(whole, found.end)
            if (following := found.next_gap) is not None:
                alone = self._floor(min(whole, following.start)) - gone[0]
            whole -= sum(gone)
        frozen, single = self._frozen(actual, whole, grown), self._frozen(actual, alone, first_grown)
        lost = max(0, frozen.read - actual.read)
        if price is None:
            return replace(culprit, lost=lost)
        cost = input_cost(actual, price)
        usd, alone_usd = cost - input_cost(frozen, price), cost - input_cost(single, price)
        return replace(culprit, lost=lost, usd=max(0.0, usd), alone_usd=min(max(0.0, alone_usd), max(0.0, usd)))

    def _gone(self, index: int) -> int:
        """Tokens of a gap that the later prompt has no version of."""
        assert self._found is not None
        gap = self._found.gaps[index]
        versions = {id(old) for old, _ in gap.versions()}
        return tokens_of([p for p in gap.old if id(p) not in versions and p.digest not in self._found.moved])

    def _life(self, record: PromptRecord) -> float:
        return (record.life_s or self._profile.life_s) + self._profile.slack_s

    def is_alive(self, record: PromptRecord) -> bool:
        """Whether what an earlier request has left is still there, by its age."""
        return self._now.at - record.at <= self._life(record)

    def _held(self, record: PromptRecord) -> int:
        """How much of a prompt the provider holds after its request, in our tokens."""
        profile = self._profile
        stored = record.stored
        if stored < 0:
            is_marked = profile.family is Family.MARKER and not profile.implicit_marks
            stored = max(record.stops, default=0) if is_marked else record.total
        return stored if profile.family is not Family.NONE and stored >= profile.min_tokens else 0

    def _floor(self, tokens: int) -> int:
        """How much of so many tokens can be read: up to an entry."""
        if self._profile.family is Family.MARKER:
            found = {end for record in self._before if self.is_alive(record) for end in record.stops if end <= tokens}
            return next((end for end in sorted(found, reverse=True) if self._is_in_reach(end)), 0)
        return tokens if tokens >= self._profile.min_tokens else 0

    def _steps(self, tokens: float) -> int:
        """Tokens in whole steps of a grid."""
        step = self._profile.step if self._profile.family is Family.GRID else 1
        return round(tokens) // step * step

    def _is_in_reach(self, end: int) -> bool:
        """Whether a marker of this request, or the provider's own boundary, finds an entry that ends there."""
        now, place = self._now, bisect_left(self._now.ends, end)
        marks = now.stops or now.ends[-1:]
        return any(0 <= bisect_left(now.ends, mark) - place < self._profile.lookback for mark in marks)

    def _actual(self) -> Bill:
        """The bill as reported; else as the rules of the cache have it."""
        usage, now = self._usage, self._now
        if usage is not None:
            return Bill(usage.read, usage.write_5m, usage.write_1h, usage.plain)
        read = 0
        for record in self._before:
            if self.is_alive(record) and (record.model, record.route) == (now.model, now.route):
                count = shared_front(record, now)
                shared = record.end(count)
                if record is self._old and self._found is not None:
                    shared = self._found.common
                read = max(read, self._steps(self._floor(min(shared, self._held(record)))))
        end = max(now.stops, default=0) if self._profile.family is Family.MARKER else 0
        write = max(0, end - read) if end >= self._profile.min_tokens else 0
        return Bill(read, write, 0, now.total - read - write)

    def _frozen(self, actual: Bill, readable: int, grown: int) -> Bill:
        """The bill if so much had been read; ``grown`` tokens less would then have been sent."""
        total = actual.total - round(grown * self._ratio)
        read = max(actual.read, min(total, self._steps(readable * self._ratio)))
        left = total - read
        plain = min(actual.plain, left)
        short = min(actual.write_5m, left - plain)
        return Bill(read, short, min(actual.write_1h, left - plain - short), plain)
