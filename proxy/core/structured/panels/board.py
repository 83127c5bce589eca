"""What a session remembers of its panels: what they showed last, since when, and where they stand.

A board is a value. Each request makes a new one of the one before; the caller keeps it when the request counts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from sys import getsizeof

from proxy.core.structured.panels.costs import EmittedPanel, PanelCosts, counted
from proxy.core.structured.panels.panel import CONVERSATION, Panel
from proxy.core.structured.panels.progress import Progress

MOST_PROMPTS = 4_096
"""The times of so many prompts are remembered; beyond, only the newer half stays, so that it seldom happens: prompts
whose time is forgotten are sent without it, which rewrites everything behind them."""
_SLOT_BYTES = 300


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the client's conversation, counted without system messages: so many messages stand in front of it
    (``index``), and ``before`` is the digest of the last of them, by which it is checked; empty for index 0."""

    index: int
    before: bytes = b""


@dataclass(frozen=True, slots=True)
class PanelMemory:
    """What a session remembers of one panel: the digest of what it shows, when that last changed, in seconds since
    1970, and its place; None: in front of the conversation."""

    digest: bytes
    stamp_s: float
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """``panels`` are by id. ``prompts`` are, by the index of the user message, the digest of the message and when it
    was first sent, in seconds since 1970. ``is_begun``: the session has had a request. ``costs`` are those of all
    requests that have counted."""

    panels: Mapping[str, PanelMemory] = field(default_factory=dict)
    prompts: Mapping[int, tuple[bytes, float]] = field(default_factory=dict)
    is_begun: bool = False
    costs: PanelCosts = PanelCosts()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        names = sum(map(getsizeof, self.panels))
        return names + _SLOT_BYTES * (len(self.panels) + len(self.prompts)) + self.costs.size_bytes

    def memory(self, panel: Panel) -> PanelMemory:
        """What is remembered of the panel; of one that the board has never seen, that it stands in front, since an
        unknown time."""
        return self.panels.get(panel.id) or PanelMemory(b"", 0.0)

    def charged(self, order: Iterable[Panel], tokens: Mapping[str, int], hit_usd: float, miss_usd: float) -> "Board":
        """The board after a request that was settled: ``order`` are its panels in sending order, ``tokens`` theirs by
        id. Prices are USD per million tokens."""
        emitted = [EmittedPanel(p.id, self.memory(p).digest or p.digest, tokens.get(p.id, 0)) for p in order]
        return replace(self, costs=counted(self.costs, emitted, hit_usd, miss_usd))


def refreshed(board: Board, panels: Sequence[Panel], progress: Progress, now_s: float) -> Board:
    """The board of a request, from that of the request before, at the time ``now_s`` in seconds since 1970.

    A panel whose content is new gets this time, and the place where the conversation stands now; in the session's first
    request it stands in front of the conversation, as frozen parts of the conversation always do. Equal content touches
    nothing. A place that cannot be found again becomes the front. Panels that the request does not have are forgotten.

    The new time lies behind that of every other panel: where the clock has stood still or gone backwards, it is that of
    the panel that changed last, and the least bit more, so that nothing is reordered.
    """
    known = _Whereabouts(progress)
    shown = [panel for panel in panels if panel.id != CONVERSATION]
    last_s = max((board.panels[panel.id].stamp_s for panel in shown if panel.id in board.panels), default=-inf)
    stamp_s = now_s if now_s > last_s else nextafter(last_s, inf)
    here = _place(progress, progress.now_at) if board.is_begun else None
    memories: dict[str, PanelMemory] = {}
    for panel in shown:
        digest, before = panel.digest, board.panels.get(panel.id)
        if before is None or before.digest != digest:
            memories[panel.id] = PanelMemory(digest, stamp_s, None if panel.is_frozen else here)
        else:
            memories[panel.id] = replace(before, place=known.place(before.place))
    prompts = known.prompts(board.prompts)
    _remember_prompt(prompts, board, panels, progress, now_s)
    return Board(memories, prompts, is_begun=True, costs=board.costs)


def _remember_prompt(
    prompts: dict[int, tuple[bytes, float]], board: Board, panels: Iterable[Panel], progress: Progress, now_s: float
) -> None:
    """A prompt that was sent before without its time stays without it: to put it in would rewrite what follows."""
    at = progress.prompt_at
    is_new = progress.is_prompt_last or not board.is_begun
    if at is None or at in prompts or not is_new or not any(panel.is_shown for panel in panels):
        return
    prompts[at] = (progress.digests[at], now_s)
    if len(prompts) > MOST_PROMPTS:
        for index in sorted(prompts)[: -MOST_PROMPTS // 2]:
            del prompts[index]


def _place(progress: Progress, index: int) -> Place:
    return Place(index, progress.digests[index - 1] if index else b"")


class _Whereabouts:
    """Finds messages of earlier requests in the conversation as it is now."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._by_digest: dict[bytes, list[int]] | None = None

    def place(self, place: Place | None) -> Place | None:
        """Where the place is now: behind the message that it stood behind; None where there is no such message."""
        if place is None or place.index == 0:
            return place
        before = self._nearest(place.index - 1, place.before)
        if before is None:
            return None
        at = self._progress.outside[before + 1]
        return place if at == place.index else _place(self._progress, at)

    def prompts(self, prompts: Mapping[int, tuple[bytes, float]]) -> dict[int, tuple[bytes, float]]:
        """The times of the prompts that are there still, where they stand now, in the order of the conversation."""
        found: dict[int, tuple[bytes, float]] = {}
        moved: list[tuple[int, tuple[bytes, float]]] = []
        for index, prompt in prompts.items():
            at = self._nearest(index, prompt[0])
            if at == index:
                found[at] = prompt
            elif at is not None:
                moved.append((at, prompt))
        for at, prompt in moved:
            found.setdefault(at, prompt)
        return dict(sorted(found.items())) if moved else found

    def _nearest(self, index: int, digest: bytes) -> int | None:
        """The message of this digest that is nearest to the index; of two, the one in front."""
        digests = self._progress.digests
        if index < len(digests) and digests[index] == digest:
            return index
        if self._by_digest is None:
            self._by_digest = {}
            for at, each in enumerate(digests):
                self._by_digest.setdefault(each, []).append(at)
        places = self._by_digest.get(digest)
        if places is None:
            return None
        behind = bisect_left(places, index)
        near = places[max(0, behind - 1) : behind + 1]
        return min(near, key=lambda at: abs(at - index))
