"""What the sessions of one client have in common: whether they go on, when, and where they break."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from proxy.core.stability.change_rates import BreakRanks
from proxy.core.stability.document_retention import DocumentOdds
from proxy.core.stability.mention_calibration import Reliance
from proxy.core.stability.rates import FIRST_RATE, RATE_STEP, DecayedRate

_REMEMBERED_GAPS = 64
# People work in bursts: the gaps before this one say more than those of an hour ago.
_GAP_DECAY = 0.8
# P(a gap is shorter than a life), before any was seen; it weighs as much as so many gaps, and less after each that was.
# Most pauses come singly: fitted on recorded sessions (log loss of people's gaps 0.346 with 1, 0.326 with these).
_USUALLY_WITHIN = 0.9
_PRIOR_WEIGHT = 4.0
_PRIOR_DECAY = 0.9
# The same of a gap between any two requests of the cohort.
_ARRIVES_WITHIN = DecayedRate(prior=0.75, weight=2.0)
_ONE_SHOT = 0.3
# One conversation alone can pass 15 a minute for a while; twice that are several.
_BUSY_ARRIVALS = 32
_BUSY_PER_S = 0.5
_REMEMBERED_LAYOUTS = 4
_MAX_ITEMS = 2000
_MAX_KEY_CHARS = 512
# A client that declares tools works in a loop: its conversation goes on more often than not.
_PRIOR_APPEND_TOOLS = 0.9
_PRIOR_APPEND_PLAIN = 0.6
# P(a session goes on), without tools: of a kind of which none was seen, and of one that was seen to.
_FIRST_GOES_ON = 0.75
_GOES_ON = 0.95


@dataclass(slots=True)
class ItemRecord:
    """A context piece over time. ``age`` is requests since it was last seen to change (or first seen); ``rate`` the
    share of recent requests that changed it. ``said`` is what the latest request said of it
    (``proxy.core.stability.mention_calibration``)."""

    digest: bytes
    age: int = 0
    rate: float = FIRST_RATE
    said: float = 0.0

    def next_rate(self, *, is_changed: bool) -> float:
        """The rate with one request more."""
        return self.rate + RATE_STEP * (float(is_changed) - self.rate)


class ItemRecords:
    """Context pieces by key, at most ``_MAX_ITEMS``. A new one beyond that is not followed, nor one whose key is too
    long to be a name."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[str, ItemRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> ItemRecord | None:
        """What is known of a piece."""
        return self._records.get(key)

    def state(self) -> dict[str, tuple[bytes, int, float, float]]:
        """All records by key, their fields in order."""
        return {key: (one.digest, one.age, one.rate, one.said) for key, one in self._records.items()}

    def restore(self, state: Mapping[str, tuple[bytes, int, float, float]]) -> None:
        """Remember these, and no others."""
        self._records = {key: ItemRecord(*record) for key, record in islice(state.items(), _MAX_ITEMS)}

    def add(
        self,
        key: str,
        digest: bytes,
        age: int,
        rate: float = FIRST_RATE,
        said: float = 0.0,
        *,
        is_rewrapped: bool = False,
    ) -> None:
        """The piece as it stood in a request that counts; ``rate`` is where the rate of a new one begins.
        ``is_rewrapped``: another digest is no change of its content."""
        record = self._records.get(key)
        if record is None:
            if len(self._records) < _MAX_ITEMS and len(key) <= _MAX_KEY_CHARS:
                self._records[key] = ItemRecord(digest, age, rate, said)
            return
        record.rate = record.next_rate(is_changed=digest != record.digest and not is_rewrapped)
        record.age = age
        record.digest = digest
        record.said = said


class SessionCohort:
    """Requests with the same model, tools and fixed system text of one scope; they share the head of the prompt.

    ``started`` and ``continued`` count sessions; a session that has had one request only is not counted as ended until
    the next one of the cohort starts. ``layouts`` and ``items`` are what its sessions last sent: a new session of the
    cohort may begin with the same context. ``reliance`` is what their words about files were worth, ``documents`` what
    is known of how long retrieved ones stay. ``key`` names what the prompt begins with: the tools, which stand in front
    of all else, or the whole head. ``opening`` are the turns that all its sessions begin with (examples).
    """

    __slots__ = (
        "_arrivals",
        "_gaps",
        "breaks",
        "continued",
        "documents",
        "has_tools",
        "items",
        "key",
        "last_at",
        "layouts",
        "opening",
        "reliance",
        "started",
    )

    def __init__(self, has_tools: bool, key: bytes = b"") -> None:
        self.has_tools = has_tools
        self.key = key
        self.started = 0
        self.continued = 0
        self.last_at = 0.0
        self.breaks = BreakRanks(_PRIOR_APPEND_TOOLS if has_tools else _PRIOR_APPEND_PLAIN)
        self.layouts: deque[tuple[bytes, ...]] = deque(maxlen=_REMEMBERED_LAYOUTS)
        self.items = ItemRecords()
        self.reliance = Reliance()
        self.documents = DocumentOdds()
        self.opening: tuple[bytes, ...] | None = None
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED_GAPS)
        self._arrivals: deque[float] = deque(maxlen=_REMEMBERED_GAPS)

    def request(self, now: float, session_gap: float | None) -> None:
        """A request arrived; ``session_gap`` seconds after the one before it of its session (None: the first)."""
        if self.last_at:
            self._arrivals.append(now - self.last_at)
        if session_gap is None:
            self.started += 1
        else:
            self._gaps.append(session_gap)
        self.last_at = now

    def begins(self, turns: tuple[bytes, ...]) -> None:
        """A session began with these turns; what it shares with those before it is the cohort's opening."""
        if self.opening is None:
            self.opening = turns
            return
        shared = 0
        for one, other in zip(self.opening, turns, strict=False):
            if one != other:
                break
            shared += 1
        self.opening = self.opening[:shared]

    def shared_turns(self, turns: tuple[bytes, ...]) -> int:
        """How many of a session's first turns other sessions of the cohort have in common, as far as is known."""
        if self.opening is None or self.started < 2:
            return 0
        return len(self.opening) if turns[: len(self.opening)] == self.opening else 0

    def continues(self) -> float:
        """P(a session of this cohort has another request), given that it has just had one.

        The session at hand is not counted. Before anything has ended it is taken to go on: not marking a session's
        first request costs more than a wasted write. With tools it works in a loop.
        """
        if self.has_tools or self.continued:
            return _GOES_ON
        return _FIRST_GOES_ON / max(1, self.started)

    @property
    def is_one_shot(self) -> bool:
        """Whether the client's own past says that such conversations have one request and no more."""
        return self.continues() < _ONE_SHOT

    def returns_within(self, life_s: float, newest: float | None = None) -> float:
        """P(the next request of the session comes within ``life_s`` seconds), given that one comes. ``newest`` is a gap
        that has just ended and is not added yet."""
        gaps = [*self._gaps] if newest is None else [*self._gaps, newest]
        rate = DecayedRate(_USUALLY_WITHIN, _PRIOR_WEIGHT * _PRIOR_DECAY ** len(gaps), _GAP_DECAY)
        return rate.of(gap < life_s for gap in gaps)

    def shares_within(self, life_s: float) -> float:
        """P(any request of the cohort, of this session or another, comes within ``life_s`` seconds)."""
        return _ARRIVES_WITHIN.of(gap < life_s for gap in self._arrivals)

    def arrivals(self) -> list[float]:
        """Seconds between requests of the cohort, oldest first."""
        return list(self._arrivals)

    def restore(self, gaps: Iterable[float], arrivals: Iterable[float]) -> None:
        """Remember these, and no others."""
        self._gaps = deque(gaps, maxlen=_REMEMBERED_GAPS)
        self._arrivals = deque(arrivals, maxlen=_REMEMBERED_GAPS)

    def is_busy(self) -> bool:
        """Whether more requests come than one machine serves under one key: OpenAI has it that about 15 a minute do."""
        recent = list(self._arrivals)[-_BUSY_ARRIVALS:]
        return len(recent) == _BUSY_ARRIVALS and sum(recent) < _BUSY_ARRIVALS / _BUSY_PER_S

    def gaps(self) -> list[float]:
        """Seconds between requests of a session, oldest first."""
        return list(self._gaps)
