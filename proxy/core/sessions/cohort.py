"""The facts that the sessions of one client have in common: whether they go on, when, and where they break."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeVar

from msgspec import Meta, Struct, field

from proxy.core.stability.change_rates import (
    FIRST_RATE,
    RATE_STEP,
    CalibrationCounter,
    DecayedRate,
    HistoryDivergence,
    turn_survival,
)
from proxy.core.stability.document_retention import DocumentOdds

_REMEMBERED_GAPS = 64
# People work in bursts: the newest gaps say more than those of an hour ago.
_GAP_DECAY = 0.8
# P(a gap is shorter than a life), before any gap was seen. This prior weighs as much as _PRIOR_WEIGHT gaps; each gap
# that was seen lowers its weight. Most pauses come singly: fitted on recorded sessions (log loss of people's gaps 0.346
# with 1, 0.326 with these).
_USUALLY_WITHIN = 0.9
_PRIOR_WEIGHT = 4.0
_PRIOR_DECAY = 0.9
# The same probability for a gap between any two requests of the cohort.
_ARRIVES_WITHIN = DecayedRate(prior=0.75, weight=2.0)
_ONE_SHOT = 0.3
# One conversation alone can send more than 15 requests a minute for a while; twice as many come from several.
_BUSY_ARRIVALS = 32
_BUSY_PER_S = 0.5
_REMEMBERED_LAYOUTS = 4
_REMEMBERED_BREAKS = 32
MAX_ITEMS = 2000
_MAX_KEY_CHARS = 512
# A client that declares tools works in a loop: its conversation goes on more often than not.
_PRIOR_APPEND_TOOLS = 0.9
_PRIOR_APPEND_PLAIN = 0.6
# P(a session without tools goes on), before any session of its kind was seen.
_FIRST_GOES_ON = 0.75
GOES_ON = 0.95
"""The probability that a session goes on, if it has tools or sessions of its kind have gone on before."""


T = TypeVar("T")


class ItemRecord(NamedTuple):
    """A context piece over time. ``age`` is the number of requests since its last change (or since it was first seen).
    ``rate`` is the share of recent requests that changed it."""

    digest: bytes
    age: int = 0
    rate: float = FIRST_RATE

    def next_rate(self, *, is_changed: bool) -> float:
        """The rate after one more request."""
        return self.rate + RATE_STEP * (float(is_changed) - self.rate)


ItemRecords = Annotated[dict[str, ItemRecord], Meta(max_length=MAX_ITEMS)]
"""Context pieces by key, at most ``MAX_ITEMS``."""


def record_item(records: ItemRecords, key: str, seen: ItemRecord, *, is_rewrapped: bool = False) -> None:
    """Remember a piece as it was in a request that counts. The rate of a new piece begins with ``seen.rate``.
    ``is_rewrapped``: another digest does not mean that the content changed. A new piece is not recorded beyond the
    bound, or if its key is too long to be a name."""
    before = records.get(key)
    if before is not None:
        rate = before.next_rate(is_changed=seen.digest != before.digest and not is_rewrapped)
        records[key] = seen._replace(rate=rate)
    elif len(records) < MAX_ITEMS and len(key) <= _MAX_KEY_CHARS:
        records[key] = seen


def remember(values: list[T], newest: T, most: int) -> None:
    """Add the newest value, and drop the oldest ones until there are at most ``most`` values."""
    values.append(newest)
    del values[:-most]


class SessionCohort(Struct, array_like=True):
    """Requests with the same model, tools and fixed system text of one scope; they share the head of the prompt.

    ``started`` and ``continued`` count sessions; a session that has had one request only is not counted as ended until
    the next one of the cohort starts. ``layouts`` and ``items`` are those that its sessions last sent: a new session of
    the cohort may begin with the same context. ``edits`` says how often answers edited any file, ``documents`` how long
    retrieved documents stay. ``breaks`` say where its conversations broke. ``gaps`` are the seconds between requests of
    a session, ``arrivals`` those between requests of the cohort, the oldest first. ``key`` identifies the beginning of
    the prompt: the tools, which stand in front of all else, or the whole head.
    """

    has_tools: bool
    key: bytes = b""
    started: int = 0
    continued: int = 0
    last_at: float = 0.0
    breaks: Annotated[list[HistoryDivergence], Meta(max_length=_REMEMBERED_BREAKS)] = []
    layouts: Annotated[list[tuple[bytes, ...]], Meta(max_length=_REMEMBERED_LAYOUTS)] = []
    items: ItemRecords = {}
    edits: CalibrationCounter = field(default_factory=CalibrationCounter)
    documents: DocumentOdds = field(default_factory=DocumentOdds)
    gaps: Annotated[list[float], Meta(max_length=_REMEMBERED_GAPS)] = []
    arrivals: Annotated[list[float], Meta(max_length=_REMEMBERED_GAPS)] = []

    def request(self, now: float, session_gap: float | None) -> None:
        """Record a request. It came ``session_gap`` seconds after the previous request of its session (None: it is the
        first one)."""
        if self.last_at:
            remember(self.arrivals, now - self.last_at, _REMEMBERED_GAPS)
        if session_gap is None:
            self.started += 1
        else:
            remember(self.gaps, session_gap, _REMEMBERED_GAPS)
        self.last_at = now

    def broke(self, newest: HistoryDivergence) -> None:
        remember(self.breaks, newest, _REMEMBERED_BREAKS)

    def laid_out(self, layout: tuple[bytes, ...]) -> None:
        if layout not in self.layouts:
            remember(self.layouts, layout, _REMEMBERED_LAYOUTS)

    def continues(self) -> float:
        """P(a session of this cohort has another request), given that it has just had one.

        The session at hand is not counted. Before any session has ended, this one is assumed to go on: not marking a
        session's first request costs more than a wasted cache write. A client with tools works in a loop.
        """
        if self.has_tools or self.continued:
            return GOES_ON
        return _FIRST_GOES_ON / (1 + self.started)

    @property
    def is_one_shot(self) -> bool:
        """Whether the client's own past says that such conversations have only one request."""
        return self.continues() < _ONE_SHOT

    def has_cleared(self, newest: HistoryDivergence | None) -> bool:
        """Whether any break shows that tool results were cleared. ``newest`` is a break that is not added yet."""
        return any(one.results > 0 for one in (*self.breaks, newest) if one is not None)

    def turn_survival(self, turns: int, newest: HistoryDivergence | None, results: Sequence[int]) -> list[float]:
        """P(the next request repeats everything up to a message), for each of ``turns`` messages. ``newest`` is a break
        that was just seen and is not added yet; ``results`` are as in ``proxy.core.stability.change_rates``."""
        seen = [*self.breaks] if newest is None else [*self.breaks, newest]
        return turn_survival(seen, _PRIOR_APPEND_TOOLS if self.has_tools else _PRIOR_APPEND_PLAIN, turns, results)

    def returns_within(self, life_s: float, newest: float | None = None) -> float:
        """P(the next request of the session comes within ``life_s`` seconds), given that one comes. ``newest`` is a gap
        that has just ended and is not added yet."""
        gaps = [*self.gaps] if newest is None else [*self.gaps, newest]
        rate = DecayedRate(_USUALLY_WITHIN, _PRIOR_WEIGHT * _PRIOR_DECAY ** len(gaps), _GAP_DECAY)
        return rate.of(gap < life_s for gap in gaps)

    def shares_within(self, life_s: float) -> float:
        """P(any request of the cohort, of this session or another, comes within ``life_s`` seconds)."""
        return _ARRIVES_WITHIN.of(gap < life_s for gap in self.arrivals)

    def is_busy(self) -> bool:
        """Whether more requests come than one machine serves under one routing key: according to OpenAI, about 15 a
        minute."""
        recent = self.arrivals[-_BUSY_ARRIVALS:]
        return len(recent) == _BUSY_ARRIVALS and sum(recent) < _BUSY_ARRIVALS / _BUSY_PER_S
