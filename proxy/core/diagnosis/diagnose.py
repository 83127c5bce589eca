"""The diagnosis of one request: whether its prompt broke the cache, which piece did, and what that cost.

Only requests are compared, as in the providers' own diagnostics. A miss that no difference explains is the provider's
side; its kinds are those of ``proxy.core.shadow.deviations``.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct

from proxy.core.caches.prompt import Bill
from proxy.core.diagnosis.breaks import Break, BreakKind
from proxy.core.diagnosis.comparison import Cuts, Difference, difference, likeness
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, PromptPiece, PromptRecord, shared_front
from proxy.core.money.prices import Price, input_cost
from proxy.core.providers import CacheProfile, Family
from proxy.core.recognition.pieces import PieceKind
from proxy.core.response.usage import Usage
from proxy.core.shadow.deviations import LOST, Deviation, Observation, lost_kind, tolerance

PARAMETER = "parameter"
MODEL = "model"
ROUTE = "route"
"""The kinds of culprits that are no pieces of the prompt."""

CONTENT: frozenset[str] = frozenset({PieceKind.FILE, PieceKind.SYMBOL, PieceKind.DOCUMENT})
"""Kinds of pieces that a client shows because they are new: changing them is no waste."""
_NO_WASTE = frozenset({BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM})


class Comparison(Struct, frozen=True):
    """A request and the earlier one of its session that it continues (``old``). The ``first`` pieces are the same in
    both, and ``found`` is the difference behind them (None: the request repeats all of the earlier one). ``cuts`` are
    parts of pieces that may be named as the culprit. They change neither whether a break is found nor its cost."""

    before: Sequence[PromptRecord]
    now: PromptRecord
    old: PromptRecord
    first: int
    found: Difference | None
    cuts: Cuts = {}

    def diagnosed(
        self, usage: Usage | None, profile: CacheProfile, price: Price | None = None, deviation: str = ""
    ) -> Break | None:
        """The reason why less of the request was read than possible; None if all that was possible was read. ``usage``
        is the provider's report (None: there is no report). ``deviation`` says how the report departs from the expected
        one (empty: they were not compared). ``price`` is the model's price in USD per token; None: it is unknown, and
        the break has no USD."""
        accounts = _Accounts(self, usage, profile)
        culprit = _outside(self, profile) or _culprit(self)
        if culprit is None:
            kind = accounts.unexplained(deviation)
            culprit = None if kind is None else Break(kind, before=self.now.total)
        elif not accounts.is_alive(self.old):
            culprit = replace(culprit, kind=Deviation.EXPIRED, is_waste=False)
        return None if culprit is None else accounts.priced(culprit, price)


def compared(before: Sequence[PromptRecord], now: PromptRecord, cuts: Cuts | None = None) -> Comparison | None:
    """The comparison of a request with the earlier ones of its session, the newest last; None if it continues none of
    them."""
    if not before or not now.digests:
        return None
    old = before[-1]
    first = shared_front(old, now)
    if first < old.count or any(record.total > old.total for record in before[:-1]):
        # The record that is most alike; of equal ones the newest.
        old = max(reversed(before), key=lambda record: likeness(record, now))
        first = shared_front(old, now)
    found = difference(old, now, first) if first < old.count else None
    return Comparison(before, now, old, first, found, cuts or {}) if found is not None or first == old.count else None


def diagnose(
    before: Sequence[PromptRecord],
    now: PromptRecord,
    usage: Usage | None,
    profile: CacheProfile,
    price: Price | None = None,
    cuts: Cuts | None = None,
) -> Break | None:
    """The reason why less of the request was read than possible; None if all that was possible was read. ``before`` are
    the records of the session, the newest last. The other arguments are those of ``Comparison`` and its
    ``diagnosed``."""
    comparison = compared(before, now, cuts)
    return None if comparison is None else comparison.diagnosed(usage, profile, price)


def _outside(comparison: Comparison, profile: CacheProfile) -> Break | None:
    """A difference outside of the pieces: in the model, the route or a parameter, which count in front of the pieces or
    between them."""
    old, now, found = comparison.old, comparison.now, comparison.found
    if (old.model, old.route, old.parameters) == (now.model, now.route, now.parameters):
        return None
    if old.model != now.model:
        return Break(BreakKind.MODEL_SWITCHED, now.model or MODEL, MODEL, behind=now.total)
    common, breaking = found.common if found is not None else now.total, profile.breaking
    places = ((), breaking.before_tools), ((TOOL,), breaking.before_system), ((TOOL, SYSTEM), breaking.before_messages)
    for fronts, names in places:
        before = now.end(next((i for i, (kind, _) in enumerate(now.named()) if kind not in fronts), now.count))
        changed = next((name for name in names if old.parameters.get(name) != now.parameters.get(name)), None)
        if changed is not None and before <= common:
            return Break(
                BreakKind.PARAMETERS, changed, PARAMETER, before=before, behind=now.total - before, is_waste=True
            )
    if found is None and old.route != now.route:
        return Break(BreakKind.ROUTE_SWITCHED, now.route or ROUTE, ROUTE, behind=now.total, is_waste=True)
    return None


def _culprit(comparison: Comparison) -> Break | None:
    """The break of the first piece that differs, with its kind."""
    now, first, found = comparison.now, comparison.first, comparison.found
    if found is None:
        return None
    found = found.cut_by(comparison.cuts) if comparison.cuts else found
    kind, piece = _kind(found)
    if piece.kind == TOOL:
        kind = BreakKind.TOOLS
    tokens = piece.tokens if piece in found.gaps[0].new else 0
    is_content = piece.kind in CONTENT and kind is not BreakKind.REORDERED
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
    """The kind of the first difference, and its piece."""
    gap = found.gaps[0]
    if gap.is_shorter:
        return BreakKind.COMPACTED, gap.new[0]
    for piece in (*gap.old[:1], *gap.new[:1]):
        if piece.digest in found.moved:
            return BreakKind.REORDERED, piece
    if not gap.old:
        # A turn is always new. So the culprit is the context behind it, which does not keep its place.
        stays_last = gap.new[0].kind == TURN and gap.following.kind != TURN
        return (BreakKind.REORDERED, gap.following) if stays_last else (BreakKind.APPEARED, gap.new[0])
    theirs = gap.old[0]
    if not gap.new:
        newer = {_name(piece) for later in found.gaps for piece in later.new}
        is_elsewhere = theirs.kind in CONTENT and _name(theirs) in newer
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
    """The tokens of a request that were read, and those that could have been."""

    def __init__(self, comparison: Comparison, usage: Usage | None, profile: CacheProfile) -> None:
        self._compared, self._now, self._old = comparison, comparison.now, comparison.old
        self._profile = profile
        self._usage = None if usage is None or usage.estimated or usage.prompt <= 0 else usage
        total = self._now.total
        self._ratio = self._usage.prompt / total if self._usage is not None and total else 1.0

    def unexplained(self, deviation: str) -> BreakKind | Deviation | None:
        """The provider's deviation if no piece differs; None if all that was possible was read."""
        now, profile = self._now, self._profile
        if deviation and self._usage is not None:
            return Deviation(deviation) if deviation in LOST else None
        expected = self._held(self._old)
        if self._usage is None:
            return Deviation.EXPIRED if not self.is_alive(self._old) and expected else None
        if not expected and not self._usage.read and profile.family is not Family.NONE:
            return BreakKind.BELOW_MINIMUM if now.total < profile.min_tokens else None
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
        return lost_kind(seen, profile)

    def priced(self, culprit: Break, price: Price | None) -> Break:
        """The break with its loss: the bill, less the bill as it would be if the readable tokens had been read and no
        piece had grown."""
        actual, found, readable, grown = self._actual(), self._compared.found, self._held(self._old), 0
        if found is not None:
            readable, grown = min(readable, found.end) - found.gone, found.grown
        total = max(actual.read, actual.total - round(grown * self._ratio))
        read = max(actual.read, min(total, self._steps(readable * self._ratio)))
        plain = min(actual.plain, total - read)
        short = min(actual.write_5m, total - read - plain)
        frozen = Bill(read, short, min(actual.write_1h, total - read - plain - short), plain)
        usd = input_cost(actual, price) - input_cost(frozen, price) if price is not None else 0.0
        return replace(culprit, lost=max(0, read - actual.read), usd=max(0.0, usd))

    def _life(self, record: PromptRecord) -> float:
        profile = self._profile
        return (record.is_long and profile.long_life_s or profile.life_s) + profile.slack_s

    def is_alive(self, record: PromptRecord) -> bool:
        """Whether the entries of an earlier request are still in the cache, by their age."""
        return self._now.at - record.at <= self._life(record)

    def _held(self, record: PromptRecord) -> int:
        """How many tokens of a prompt the provider holds after its request, by our count."""
        profile = self._profile
        stored = record.stored
        if stored < 0:
            is_marked = profile.family is Family.MARKER and not profile.implicit_marks
            stored = max(record.stops, default=0) if is_marked else record.total
        return stored if profile.family is not Family.NONE and stored >= profile.min_tokens else 0

    def _floor(self, tokens: int) -> int:
        """How many of the first ``tokens`` tokens can be read: up to the end of an entry."""
        if self._profile.family is Family.MARKER:
            found = {
                end
                for record in self._compared.before
                if self.is_alive(record)
                for end in record.stops
                if end <= tokens
            }
            return next((end for end in sorted(found, reverse=True) if self._is_in_reach(end)), 0)
        return tokens if tokens >= self._profile.min_tokens else 0

    def _steps(self, tokens: float) -> int:
        """The tokens, rounded down to whole steps of a grid."""
        step = self._profile.step if self._profile.family is Family.GRID else 1
        return round(tokens) // step * step

    def _is_in_reach(self, end: int) -> bool:
        """Whether a marker of this request, or the provider's own boundary, finds an entry that ends there."""
        now, place = self._now, bisect_left(self._now.ends, end)
        marks = now.stops or now.ends[-1:]
        return any(0 <= bisect_left(now.ends, mark) - place < self._profile.lookback for mark in marks)

    def _actual(self) -> Bill:
        """The bill as reported; without a report, the bill by the rules of the cache."""
        usage, now = self._usage, self._now
        if usage is not None:
            return Bill(usage.read, usage.write_5m, usage.write_1h, usage.plain)
        read = 0
        for record in self._compared.before:
            if self.is_alive(record) and (record.model, record.route) == (now.model, now.route):
                count = shared_front(record, now)
                shared = record.end(count)
                if record is self._old and self._compared.found is not None:
                    shared = self._compared.found.common
                read = max(read, self._steps(self._floor(min(shared, self._held(record)))))
        end = max(now.stops, default=0) if self._profile.family is Family.MARKER else 0
        write = max(0, end - read) if end >= self._profile.min_tokens else 0
        return Bill(read, write, 0, now.total - read - write)
