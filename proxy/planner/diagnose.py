"""The diagnosis of one request: whether its prompt broke the cache, which piece did, and what that cost.

Two prompts are compared first: where they differ, how, and which pieces they have in common behind that place. Only
requests are compared, as in the providers' own diagnostics. A miss that no difference explains is the provider's side;
its kinds are those of ``proxy.planner.shadow``.

On paths where the planner sees no requests and keeps no sessions, ``Conversations`` finds the conversation that a
request continues by its prompt alone. A conversation is identified by its turns. Each turn counts together with the
turn in front of it, because the turn "yes" occurs in many conversations. The newest known turn decides, because many
conversations begin alike.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import sub

from msgspec import Struct

from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.value import dataclass, digest, replace
from proxy.planner.record import (
    IMAGES,
    SYSTEM,
    TOOL,
    TURN,
    Break,
    BreakKind,
    PromptPiece,
    PromptRecord,
    shared_front,
    spread,
)
from proxy.planner.shadow import LOST, Deviation, Observation, lost_kind, tolerance
from proxy.protocol.caches import Bill
from proxy.protocol.prices import Price, input_cost
from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.recognition import PieceKind
from proxy.protocol.recognition.lines import in_order
from proxy.protocol.response.usage import Usage

# The pieces that both have behind the first difference must be at least this share of what either has there. Otherwise
# the two are different conversations in which the same words occur.
_CONTINUED_SHARE = 0.1
# If they have no answer in common, at least this share of the instructions of either must be the same.
_SAME_HEAD_SHARE = 0.5
# If turns were replaced by less than this share of their tokens, they were summarised or cleared.
_SHRUNK_SHARE = 0.5
_ANSWER = "assistant"

_Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Gap:
    """The pieces between two neighbouring pieces that both prompts have: ``old`` in the earlier prompt, ``new`` in the
    later one. ``following`` is the piece behind the gap."""

    old: tuple[PromptPiece, ...]
    new: tuple[PromptPiece, ...]
    following: PromptPiece

    def versions(self) -> Iterator[tuple[PromptPiece, PromptPiece]]:
        """The pieces that have another text now, each with its new version. Turns have no names: a turn is a version of
        another one only if it is in the same place."""
        if [piece.key for piece in self.old] == [piece.key for piece in self.new]:
            yield from zip(self.old, self.new, strict=True)
            return
        newer = {(piece.kind, piece.key): piece for piece in reversed(self.new) if piece.kind != TURN}
        for piece in self.old:
            found = newer.pop((piece.kind, piece.key), None)
            if found is not None:
                yield piece, found


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between a later prompt and an earlier one, behind the ``first`` pieces, which are the same in
    both. ``gaps`` are the places, from the front, where they differ and behind which they have something in common.
    Each line of the first text that differs counts as a piece. ``line`` is the first line that differs (0: the text has
    not several lines). ``common`` is the number of equal tokens in front. ``end`` is the end of the last equal piece in
    the earlier prompt, in tokens. ``grown`` is the number of tokens by which pieces are longer now. ``gone`` are the
    tokens of pieces of which the later prompt has nothing. ``moved`` are the digests of pieces that both have in
    another order."""

    first: int
    gaps: tuple[Gap, ...]
    line: int
    common: int
    end: int
    grown: int
    gone: int
    moved: frozenset[bytes]

    def cut_by(self, cuts: "Cuts") -> "Difference":
        """The same difference, with the first differing pieces divided into their parts: a message of files into its
        files. Equal parts in front of the first differing part count as ``common``."""
        first = self.gaps[0]
        old, new, (following, *_) = (_parts(some, cuts) for some in (first.old, first.new, (first.following,)))
        pairs = _pairs(old, new)
        gaps = (*_gaps(old, [*new, following], [*pairs, (len(old), len(new))]), *self.gaps[1:])
        if len(gaps) < len(self.gaps):
            return self
        same = next((i for i, pair in enumerate(pairs) if pair != (i, i)), len(pairs))
        earlier = {piece.digest for gap in gaps for piece in gap.old}
        later = {piece.digest for gap in gaps for piece in gap.new}
        return replace(
            self, gaps=gaps, common=self.common + tokens_of(new[:same]), moved=self.moved | (earlier & later)
        )


Cuts = Mapping[bytes, Sequence[PromptPiece]]
"""The parts of some pieces, by the digests of the pieces."""


def tokens_of(pieces: Sequence[PromptPiece]) -> int:
    """The tokens of some pieces."""
    return sum([piece.tokens for piece in pieces])


def _parts(pieces: Sequence[PromptPiece], cuts: Cuts) -> list[PromptPiece]:
    return [part for piece in pieces for part in cuts.get(piece.digest) or (piece,)]


def most_like(before: Sequence[PromptRecord], new: PromptRecord) -> PromptRecord:
    """The record that has the most tokens of the new prompt, in any place; of equal ones the newest."""
    sizes = [*zip(new.each(), map(sub, new.ends, (0, *new.ends)), strict=True)]

    def shared_tokens(old: PromptRecord) -> int:
        known = set(old.each())
        return sum([tokens for digest, tokens in sizes if digest in known])

    return max(reversed(before), key=shared_tokens)


def difference(old: PromptRecord, new: PromptRecord, first: int) -> Difference | None:
    """The difference of two prompts behind the ``first`` pieces that they share. None if the later one does not
    continue the earlier one, or has nothing in common with it behind that place."""
    before, after = old.pieces(first), new.pieces(first)
    one, other = (some[0].lines if some else () for some in (before, after))
    # If the lines are the same, what differs is beside the text.
    is_opened = bool(one and other) and one != other and before[0].key == after[0].key
    if is_opened:
        before, after = [*_by_line(before[0]), *before[1:]], [*_by_line(after[0]), *after[1:]]
    pairs = _pairs(before, after)
    front = next((i for i, pair in enumerate(pairs) if pair != (i, i)), len(pairs))
    behind = pairs[front:]
    if not _is_continued(before, after, behind, has_answer=(TURN, _ANSWER) in islice(new.named(), first)):
        return None
    start, (old_end, new_end) = new.end(first), behind[-1]
    gaps = tuple(_gaps(before, after, pairs))
    versions = [pair for gap in gaps for pair in gap.versions()]
    replaced = {id(old) for old, _ in versions}
    earlier = {piece.digest for some in (*(gap.old for gap in gaps), before[old_end + 1 :]) for piece in some}
    later = {piece.digest for some in (*(gap.new for gap in gaps), after[new_end + 1 :]) for piece in some}
    moved = frozenset(earlier & later)
    missing = [piece for gap in gaps for piece in gap.old if id(piece) not in replaced and piece.digest not in moved]
    return Difference(
        first=first,
        gaps=gaps,
        line=front + 1 if is_opened else 0,
        common=start + tokens_of(after[:front]),
        end=start + tokens_of(before[: old_end + 1]),
        grown=sum(new.tokens - old.tokens for old, new in versions),
        gone=tokens_of(missing),
        moved=moved,
    )


def _by_line(piece: PromptPiece) -> list[PromptPiece]:
    """The lines of a text as pieces. The tokens of the text are divided by the lengths of the lines."""
    sizes = zip(piece.lines, spread(piece.tokens, (length + 1 for _, length in piece.lines)), strict=True)
    return [PromptPiece(piece.key, piece.kind, line.to_bytes(4), tokens, piece.place) for (line, _), tokens in sizes]


def _pairs(before: Sequence[PromptPiece], after: Sequence[PromptPiece]) -> list[tuple[int, int]]:
    """The longest list of pieces that both have in the same order, as pairs of indexes. Of equal pieces, the first one
    matches the first one, and so on. The time is n log n."""
    places = {name: index for index, name in enumerate(_numbered(before))}
    both = ((index, places[name]) for index, name in enumerate(_numbered(after)) if name in places)
    return [(place, index) for index, place in in_order(both)]


def _numbered(pieces: Sequence[PromptPiece]) -> Iterator[tuple[bytes, int]]:
    """The digest of each piece, with the number of equal pieces in front of it."""
    seen: dict[bytes, int] = {}
    for piece in pieces:
        number = seen.get(piece.digest, 0)
        yield piece.digest, number
        seen[piece.digest] = number + 1


def _is_continued(
    before: Sequence[PromptPiece], after: Sequence[PromptPiece], behind: _Pairs, *, has_answer: bool
) -> bool:
    """Whether the later request continues the earlier one. They must share enough of what either has behind the first
    difference. They must also share an answer, or most of their instructions."""
    shared = [after[j] for _, j in behind if after[j].tokens]
    if not shared:
        return False
    first, second = behind[0]
    rest = min(tokens_of(before[first:]), tokens_of(after[second:]))
    if tokens_of(shared) < _CONTINUED_SHARE * rest:
        return False
    if has_answer or any(piece.key == _ANSWER for piece in shared) or shared[0].kind == SYSTEM:
        return True
    # There is no common answer yet. They must share more than a question, because a side call asks the same question.
    heads = [tokens_of([piece for piece in some if piece.kind == SYSTEM]) for some in (before, after, shared)]
    return shared[-1].kind not in (TOOL, SYSTEM) and heads[2] >= _SAME_HEAD_SHARE * min(heads[:2])


def _gaps(before: Sequence[PromptPiece], after: Sequence[PromptPiece], pairs: _Pairs) -> Iterator[Gap]:
    old = new = 0
    for one, other in pairs:
        if one > old or other > new:
            yield Gap(tuple(before[old:one]), tuple(after[new:other]), after[other])
        old, new = one + 1, other + 1


PARAMETER = "parameter"
MODEL = "model"
ROUTE = "route"
"""The kinds of culprits that are no pieces of the prompt."""
MARKERS = "cache_control"
"""The culprit if markers are missing; its kind is ``PARAMETER``."""

CONTENT: frozenset[str] = frozenset({PieceKind.FILE, PieceKind.SYMBOL, PieceKind.DOCUMENT})
"""Kinds of pieces that a client shows because they are new: changing them is no waste."""
_NO_WASTE = frozenset({BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM})


class Comparison(Struct, frozen=True):
    """A request and the earlier one of its session that it continues (``old``). ``found`` is the difference between
    them (None: the request repeats all of the earlier one). ``cuts`` are
    parts of pieces that may be named as the culprit. They change neither whether a break is found nor its cost.
    ``marks_own``: the markers are the client's, and so are missing ones."""

    before: Sequence[PromptRecord]
    now: PromptRecord
    old: PromptRecord
    found: Difference | None
    cuts: Cuts = {}
    marks_own: bool = False

    def diagnosed(
        self, usage: Usage | None, profile: CacheProfile, price: Price | None = None, deviation: str = ""
    ) -> Break | None:
        """The reason why less of the request was read than possible; None if all that was possible was read. ``usage``
        is the provider's report (None: there is no report). ``deviation`` says how the report departs from the expected
        one (empty: they were not compared). ``price`` is the model's price in USD per token; None: it is unknown, and
        the break has no USD."""
        accounts, old, now = _Accounts(self, usage, profile), self.old, self.now
        is_same_call = (old.model, old.route, old.parameters) == (now.model, now.route, now.parameters)
        culprit = None if is_same_call else _outside(self, profile)
        if culprit is None and self.found is not None:
            culprit = _culprit(self, self.found)
        if culprit is None and self.marks_own:
            culprit = accounts.unmarked()
        if culprit is None:
            kind = accounts.unexplained(deviation)
            culprit = None if kind is None else Break(kind, before=now.total)
        elif now.at - old.at > profile.life_s + profile.slack_s and accounts.held(old) <= culprit.before:
            culprit = replace(culprit, kind=Deviation.EXPIRED, is_waste=False)
        return None if culprit is None else accounts.priced(culprit, price)


def compared(
    before: Sequence[PromptRecord], now: PromptRecord, cuts: Cuts | None = None, *, marks_own: bool = True
) -> Comparison | None:
    """The comparison of a request with the earlier ones of its session, the newest last; None if it continues none of
    them."""
    if not before or not now.digests:
        return None
    old = before[-1]
    if not now.digests.startswith(old.digests) or any(record.total > old.total for record in before[:-1]):
        old = most_like(before, now)
    if now.digests.startswith(old.digests):
        return Comparison(before, now, old, None, cuts or {}, marks_own)
    found = difference(old, now, shared_front(old, now))
    return Comparison(before, now, old, found, cuts or {}, marks_own) if found is not None else None


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
    if old.model != now.model:
        return Break(BreakKind.MODEL_SWITCHED, now.model or MODEL, MODEL, behind=now.total)
    common, breaking = found.common if found is not None else now.total, profile.breaking
    settings = (*breaking.before_messages, *((IMAGES,) if breaking.images else ()))
    for fronts, names in ((), breaking.before_tools), ((TOOL,), breaking.before_system), ((TOOL, SYSTEM), settings):
        before = now.end(next((i for i, (kind, _) in enumerate(now.named()) if kind not in fronts), now.count))
        changed = next((name for name in names if old.parameters.get(name) != now.parameters.get(name)), None)
        if changed is not None and before <= common:
            behind, is_waste = now.total - before, changed != IMAGES
            return Break(BreakKind.PARAMETERS, changed, PARAMETER, before=before, behind=behind, is_waste=is_waste)
    if found is None and old.route != now.route:
        return Break(BreakKind.ROUTE_SWITCHED, now.route or ROUTE, ROUTE, behind=now.total, is_waste=True)
    return None


def _culprit(comparison: Comparison, found: Difference) -> Break:
    """The break of the first piece that differs, with its kind."""
    now = comparison.now
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
        place=now.places[found.first] if found.first < now.count else -1,
        line=found.line,
        before=found.common,
        tokens=tokens,
        behind=now.total - found.common - tokens,
        is_waste=kind not in _NO_WASTE and not is_content,
    )


def _kind(found: Difference) -> tuple[BreakKind, PromptPiece]:
    """The kind of the first difference, and its piece."""
    gap = found.gaps[0]
    are_turns = bool(gap.old) and all(piece.kind == TURN for piece in gap.old)
    if are_turns and gap.new and tokens_of(gap.new) < _SHRUNK_SHARE * tokens_of(gap.old):
        # Turns were replaced by a much shorter text: a summary, or a note that they were cleared.
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
        self._profile, self._is_marked = profile, profile.family is Family.MARKER and not profile.implicit_marks
        self._usage = None if usage is None or usage.estimated or usage.prompt <= 0 else usage
        total = self._now.total
        self._ratio = self._usage.prompt / total if self._usage is not None and total else 1.0
        # What was stored is best compared by the scale of the request that has stored it.
        self._old_ratio = (self._old.scale or self._ratio) if self._usage is not None else 1.0

    def unmarked(self) -> Break | None:
        """The break if the markers of this request end in front of what the earlier one has stored."""
        now, old, usage = self._now, self._old, self._usage
        is_shorter = self._is_marked and max(now.stops, default=0) < max(old.stops, default=0)
        # If more was written than the markers explain, there is one that we do not know.
        if not is_shorter or self._covers(usage.read + usage.write if usage is not None else 0, self.held(old)):
            return None
        return Break(BreakKind.PARAMETERS, MARKERS, PARAMETER, before=now.total, is_waste=True)

    def _covers(self, told: int, expected: int) -> bool:
        """Whether as many tokens are told as are expected by our count."""
        usage, profile = self._usage, self._profile
        slack = tolerance(usage, profile) if usage is not None else 0
        return told >= expected * self._old_ratio * profile.hit_chance - slack

    def unexplained(self, deviation: str) -> BreakKind | Deviation | None:
        """The provider's deviation if no piece differs; None if all that was possible was read."""
        now, profile = self._now, self._profile
        if deviation and self._usage is not None:
            return Deviation(deviation) if deviation in LOST else None
        stored, expected = self.held(self._old, has_expired=True), self.held(self._old)
        if self._usage is None:
            return Deviation.EXPIRED if expected < stored else None
        if not stored and not self._usage.read and profile.family is not Family.NONE:
            return BreakKind.BELOW_MINIMUM if self._usage.prompt < profile.min_tokens else None
        if self._covers(self._usage.read, stored):
            return None
        if self._covers(self._usage.read, expected):
            return Deviation.EXPIRED
        hit = bisect_left(now.ends, expected)
        distances = [bisect_left(now.ends, stop) - hit for stop in now.stops if stop >= expected]
        seen = Observation(
            predicted=Bill(expected, 0, 0, now.total - expected, hit),
            reported=self._usage,
            age_s=now.at - self._old.at,
            life_s=profile.long_life_s if 0 < expected <= self._old.long else profile.life_s,
            distance=min(distances, default=0),
        )
        return lost_kind(seen, profile)

    def priced(self, culprit: Break, price: Price | None) -> Break:
        """The break with its loss: the bill, less the bill as it would be if the readable tokens had been read and no
        piece had grown."""
        actual, found, readable, grown = self._actual(culprit), self._compared.found, self.held(self._old), 0
        if culprit.kind is Deviation.EXPIRED:
            readable = self.held(self._old, has_expired=True)
        if found is not None:
            readable, grown = min(readable, found.end) - found.gone, found.grown
        total = max(actual.read, actual.total - round(grown * self._ratio))
        read = max(actual.read, min(total, self._steps(readable * self._old_ratio)))
        plain = min(actual.plain, total - read)
        short = min(actual.write_5m, total - read - plain)
        frozen = Bill(read, short, min(actual.write_1h, total - read - plain - short), plain)
        usd = input_cost(actual, price) - input_cost(frozen, price) if price is not None else 0.0
        return replace(culprit, lost=max(0, read - actual.read), usd=max(0.0, usd))

    def held(self, record: PromptRecord, *, has_expired: bool = False) -> int:
        """How many tokens of an earlier prompt the provider still holds, by our count; ``has_expired``: with those
        whose life is over."""
        profile, age_s = self._profile, self._now.at - record.at - self._profile.slack_s
        stored = record.stored
        if stored < 0:
            stored = max(record.stops, default=0) if self._is_marked else record.total
        if age_s > profile.life_s and not has_expired:
            stored = min(stored, record.long) if age_s <= profile.long_life_s else 0
        is_stored = profile.family is not Family.NONE and stored * (record.scale or self._ratio) >= profile.min_tokens
        return stored if is_stored else 0

    def _floor(self, tokens: int) -> int:
        """How many of the first ``tokens`` tokens can be read: up to the end of an entry that a marker of this request,
        or the provider's own boundary, finds."""
        if self._profile.family is not Family.MARKER:
            return tokens if tokens * self._ratio >= self._profile.min_tokens else 0
        before, ends = self._compared.before, self._now.ends
        own = self._now.stops if self._is_marked else self._now.stops or ends[-1:]
        marks = [bisect_left(ends, mark) for mark in own]
        least = self._profile.min_tokens / self._ratio
        alive = {end for record in before for end in record.stops if least <= end <= min(tokens, self.held(record))}
        for end in sorted(alive, reverse=True):
            place = bisect_left(ends, end)
            if any(0 <= mark - place < self._profile.lookback for mark in marks):
                return end
        return 0

    def _steps(self, tokens: float) -> int:
        """The tokens, rounded down to whole steps of a grid."""
        step = self._profile.step if self._profile.family is Family.GRID else 1
        return round(tokens) // step * step

    def _actual(self, culprit: Break) -> Bill:
        """The bill as reported; without a report, the bill by the rules of the cache, with this break."""
        usage, now = self._usage, self._now
        if usage is not None:
            return Bill(usage.read, usage.write_5m, usage.write_1h, usage.plain)
        read = 0
        for record in self._compared.before:
            if (record.model, record.route) == (now.model, now.route):
                shared = record.end(shared_front(record, now))
                if record is self._old and self._compared.found is not None:
                    shared = self._compared.found.common
                name = culprit.culprit
                if culprit.culprit_kind == PARAMETER and record.parameters.get(name) != now.parameters.get(name):
                    shared = min(shared, culprit.before)
                read = max(read, self._steps(self._floor(min(shared, self.held(record)))))
        end = max(now.stops, default=0) if self._profile.family is Family.MARKER else 0
        write = max(0, end - read) if end >= self._profile.min_tokens else 0
        long = min(write, max(0, now.long - read))
        return Bill(read, write - long, long, now.total - read - write)


_MOST_RECORDS = 3
_MOST_TURNS = 64
_NAME_BYTES = 300


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An earlier request: its prompt, the id of its answer, and the account that gave the answer."""

    record: PromptRecord
    answer: str
    account: str


@dataclass(frozen=True, slots=True)
class Continued:
    """A request with its conversation. ``names`` are the names by which the conversation is found. ``before`` are its
    earlier requests, the newest last. ``comparison`` compares the request with the earlier one that it continues (None:
    it continues none)."""

    record: PromptRecord
    names: Sequence[bytes]
    before: Sequence[Exchanged]
    comparison: Comparison | None

    def previous(self, account: str) -> str:
        """The id of the answer to the request that this one continues; if it continues none, to the conversation's last
        request. Empty if there is no such answer, or if another account gave it."""
        old = self.comparison.old if self.comparison is not None else self.before[-1].record if self.before else None
        return next((one.answer for one in self.before if one.record is old and one.account == account), "")


class Conversations:
    """The last requests of conversations, in memory only, in about ``capacity_bytes``."""

    def __init__(self, capacity_bytes: int) -> None:
        self._held: Bounded[int, Sequence[Exchanged]] = Bounded(capacity_bytes // 2, _weight)
        self._last: LastUsed[bytes, int] = LastUsed(capacity_bytes // 2 // _NAME_BYTES)
        self._count = 0

    def find(self, scope: str, record: PromptRecord, parent: str = "") -> Continued:
        """A request with its conversation. Nothing is changed. ``scope`` keeps the conversations of different clients
        apart. ``parent`` is the id of the answer that the request continues, if the provider keeps the conversation up
        to there."""
        names = [_conversation_name(scope, parent)] if parent else list(_turns(scope, record))
        before = next((some for name in names if (some := self._held.get(self._last.get(name, 0)))), ())
        kept = next((one.record for one in reversed(before) if parent and one.answer == parent), None)
        if kept is not None:
            record = record.continuing(kept)
        return Continued(record, names, before, compared([one.record for one in before], record))

    def add(self, scope: str, found: Continued, exchanged: Exchanged) -> None:
        """Record that the request was answered."""
        self._count += 1
        self._held.put(self._count, [*found.before, exchanged][-_MOST_RECORDS:])
        for name in (*found.names, *([_conversation_name(scope, exchanged.answer)] if exchanged.answer else [])):
            self._last.put(name, self._count)


def _turns(scope: str, record: PromptRecord) -> Iterator[bytes]:
    """The names of a conversation, the newest first: its last turns, each with the one in front of it."""
    turns = [one for one, (kind, _) in zip(record.each(), record.named(), strict=True) if kind == TURN]
    for number in range(len(turns) - 1, max(-1, len(turns) - 1 - _MOST_TURNS), -1):
        yield digest(scope.encode(), turns[number - 1] if number else b"", turns[number])


def _conversation_name(scope: str, answer: str) -> bytes:
    return digest(scope.encode(), answer.encode("utf-8", "surrogatepass"))


def _weight(some: Sequence[Exchanged]) -> int:
    return sum(one.record.about_bytes for one in some)
