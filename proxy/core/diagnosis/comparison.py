"""Compares two prompts: where they first differ, how, and which pieces they have in common behind that place."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, PromptPiece, PromptRecord, spread
from proxy.core.recognition.line_diff import in_order
from proxy.core.value import dataclass, replace

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

    @property
    def is_shorter(self) -> bool:
        """Whether turns were replaced by a much shorter text: a summary, or a note that they were cleared."""
        turns = bool(self.old) and all(piece.kind == TURN for piece in self.old)
        return turns and bool(self.new) and tokens_of(self.new) < _SHRUNK_SHARE * tokens_of(self.old)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between a later prompt and an earlier one. ``gaps`` are the places, from the front, where they
    differ and behind which they have something in common. Each line of the first text that differs counts as a piece.
    ``line`` is the first line that differs (0: the text has not several lines). ``common`` is the number of equal
    tokens in front. ``end`` is the end of the last equal piece in the earlier prompt, in tokens. ``grown`` is the
    number of tokens by which pieces are longer now. ``gone`` are the tokens of pieces of which the later prompt has
    nothing. ``moved`` are the digests of pieces that both have in another order."""

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


def likeness(old: PromptRecord, new: PromptRecord) -> int:
    """How many tokens of the later prompt are in pieces that the earlier one has, too, in any place."""
    known, ends = set(old.each()), [0, *new.ends]
    return sum([ends[i + 1] - ends[i] for i, digest in enumerate(new.each()) if digest in known])


def difference(old: PromptRecord, new: PromptRecord, first: int) -> Difference | None:
    """The difference of two prompts behind the ``first`` pieces that they share. None if the later one does not
    continue the earlier one, or has nothing in common with it behind that place."""
    before, after = old.pieces(first), new.pieces(first)
    is_opened = bool(before and after and before[0].lines and after[0].lines and before[0].key == after[0].key)
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
    seen: Counter[bytes] = Counter()
    for piece in pieces:
        yield piece.digest, seen[piece.digest]
        seen[piece.digest] += 1


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
