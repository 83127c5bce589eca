"""Where a provider's report departs from what the shadow cache expected: what kind it is, and what it teaches.

Each answer says how much of the prompt was read and written. One that differs says that an entry is gone, or that a
rule of this route is not as its page has it. ``ProviderObservations`` keeps what was seen of one route and
turns it into the profile that the planner works with. Every lesson needs several observations that no other one
contradicts, is bounded, and is forgotten when it was not confirmed for an hour: the next request then tries again.
Only the tokens' scale and the place of system messages are kept: they belong to the route, and each answer tells them.

The kinds follow the providers' own diagnostics (Anthropic ``diagnostics``, OpenAI ``prompt_cache_diagnostics``), which
compare requests and say nothing of entries that expired or were evicted.
"""

from bisect import bisect_right
from collections import deque
from enum import StrEnum
from typing import Any

from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile, Family
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass, field, replace


class Deviation(StrEnum):
    """How a report differs from what was expected."""

    AS_EXPECTED = "as-expected"
    MORE_READ = "more-read"
    """Read beyond what we knew to be stored."""
    EVICTED = "evicted"
    """An entry was gone well before its life was over."""
    EXPIRED = "expired"
    """An entry was gone in the last fifth of its life."""
    PARTITIONED = "partitioned"
    """An entry that was used a moment ago was not found: another machine, store or provider has answered."""
    OUT_OF_REACH = "out-of-reach"
    """An entry was not found whose distance from the marker is within the look-back only where runs count once."""
    COUNTED_DIFFERENTLY = "counted-differently"
    """The same prompt, in another number of tokens than was expected."""
    MARKERS_IGNORED = "markers-ignored"
    """Nothing is ever read or written, at any size."""
    HIGHER_MINIMUM = "higher-minimum"
    """Nothing was read or written of a prefix that is long enough by the provider's page."""
    LIFE_DOWNGRADED = "life-downgraded"
    """Written for an hour, and billed or gone as for five minutes."""
    MOVED_SYSTEM = "moved-system"
    """A system message within the conversation stood elsewhere than was thought: at the front, or in its place."""


LOST = frozenset(
    {
        Deviation.EVICTED, Deviation.EXPIRED, Deviation.PARTITIONED, Deviation.OUT_OF_REACH,
        Deviation.MARKERS_IGNORED, Deviation.HIGHER_MINIMUM, Deviation.LIFE_DOWNGRADED,
    }
)  # fmt: skip
"""The provider does not hold what was expected of it."""

_LESSON_S = 3600.0
_PAUSE_S = 600.0
_WINDOW = 16
_ENOUGH = 3
_ENOUGH_PLACES = 2
# Differences below these are rounding and framing, not news.
_TOLERANCE_TOKENS = 192
_TOLERANCE_SHARE = 0.03
# Two bills must be so many tolerances apart before a report tells which of them holds.
_APART = 2
# It must be so many times nearer to one of them than to the other.
_NEARER = 2
_SCALE_SHARE = 0.1
_SCALE_TOKENS = 256
_SCALE_STEP = 0.2
_SCALES = (0.5, 2.0)
# The largest minimum of any page is 6144 (``proxy.core.providers.models``): what is longer than this and not stored is
# no minimum.
_NO_MINIMUM_TOKENS = 8192
_SHORTEST_LIFE_S = 60.0
_MOMENT_S = 30.0
_LATE_SHARE = 0.8
_LEAST_CHANCE = 0.25


@dataclass(frozen=True, slots=True)
class Observation:
    """One answered request: what the shadow expected of it, and what the provider reported.

    ``marked`` are the tokens, by our count, up to the last marker or boundary (0: none). Of the entry that was expected
    to be read, ``age_s`` are the seconds since its last use, ``life_s`` its life; ``distance`` counts positions singly
    from the nearest marker to it. ``elsewhere`` is the bill if system messages within the conversation are put
    elsewhere than is believed (None: there are none).
    """

    predicted: Bill
    reported: Usage
    marked: int = 0
    age_s: float | None = None
    life_s: float = 0.0
    distance: int = 0
    elsewhere: Bill | None = None


@dataclass(slots=True)
class _Minimum:
    """Prefixes that were not stored, by the provider's count, and the shortest that was."""

    largest_unstored: int = 0
    unstored: int = 0
    smallest_stored: int = 0

    def stored(self, tokens: int) -> None:
        self.smallest_stored = min(self.smallest_stored or tokens, tokens)
        if tokens <= self.largest_unstored:
            self.largest_unstored = self.unstored = 0

    def not_stored(self, tokens: int) -> None:
        self.unstored += 1
        self.largest_unstored = max(self.largest_unstored, tokens)

    @property
    def is_ignored(self) -> bool:
        """Nothing was ever stored, however long."""
        return not self.smallest_stored and self.largest_unstored >= _NO_MINIMUM_TOKENS

    @property
    def raised(self) -> int:
        """The shortest prefix that may be stored, where enough shorter ones were not; 0: as the page says."""
        is_apart = not self.smallest_stored or self.largest_unstored < self.smallest_stored
        if self.unstored < _ENOUGH or not is_apart or self.largest_unstored >= _NO_MINIMUM_TOKENS:
            return 0
        return self.largest_unstored + 1


@dataclass(slots=True)
class _SystemPlace:
    """How often a report said where system messages within the conversation are put, since one last said otherwise."""

    hoisted: int = 0
    kept: int = 0

    def saw(self, *, is_hoisted: bool) -> None:
        self.hoisted, self.kept = (self.hoisted + 1, 0) if is_hoisted else (0, self.kept + 1)

    def is_hoisted(self, base: CacheProfile) -> bool:
        """What is believed: as the profile has it, until reports say otherwise; once more where a page says so."""
        if base.hoists_system:
            return self.kept < _ENOUGH_PLACES
        return self.hoisted >= _ENOUGH_PLACES + base.mid_system


@dataclass(slots=True)
class ProviderObservations:
    """What one route's provider was seen to do, beside what its profile says. ``_ages`` are the ages of entries in
    seconds, and whether such an entry was still there."""

    scale: float = 1.0
    _scaled: int = 0
    _minimum: _Minimum = field(default_factory=_Minimum)
    _ages: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _downgrades: int = 0
    _misses_afar: int = 0
    _system: _SystemPlace = field(default_factory=_SystemPlace)
    _refused_keys: int = 0
    _lesson_at: float = 0.0
    _ignored_until: float = 0.0
    _base: CacheProfile | None = None
    _believed: CacheProfile | None = None
    _learnt: dict[str, Any] = field(default_factory=dict)

    def profile(self, base: CacheProfile, now: float) -> CacheProfile:
        """The profile with what was learnt; the same object until something else is learnt."""
        if self._lesson_at and now - self._lesson_at > _LESSON_S:
            self._forget()
        lessons = self._lessons(base)
        if self._base is not base or self._believed is None or lessons != self._learnt:
            self._base, self._learnt = base, lessons
            self._believed = replace(base, **lessons) if lessons else base
        return self._believed

    @property
    def takes_keys(self) -> bool:
        """Whether routing keys are sent: not once two requests with one were refused and none was accepted."""
        return self._refused_keys < 2

    def key_was(self, *, accepted: bool) -> None:
        """A request with a routing key was answered, or refused."""
        if accepted:
            self._refused_keys = -1_000_000
        else:
            self._refused_keys += 1

    def ignores_markers(self, now: float) -> bool:
        """Whether the provider is left alone for now: it stores nothing of what is marked."""
        return now < self._ignored_until

    def observe(self, seen: Observation, profile: CacheProfile, now: float) -> Deviation:
        """Take one report into account; what kind it is."""
        kind = self._kind(seen, profile)
        self._count(seen, profile)
        if kind in LOST:
            self._lesson_at = now
        self._learn_place(seen, profile)
        if kind is not Deviation.MOVED_SYSTEM:
            self._learn(kind, seen, profile, now)
        return kind

    def _kind(self, seen: Observation, profile: CacheProfile) -> Deviation:
        predicted, reported = seen.predicted, seen.reported
        if predicted.total <= 0 or reported.prompt <= 0:
            return Deviation.AS_EXPECTED
        if _is_downgraded(seen):
            return Deviation.LIFE_DOWNGRADED
        ratio = reported.prompt / predicted.total
        expected = predicted.read * ratio / (profile.hit_chance or 1.0)
        slack = tolerance(reported, profile)
        if _is_elsewhere(seen, profile):
            return Deviation.MOVED_SYSTEM
        if self._is_unstored(seen, profile):
            return Deviation.MARKERS_IGNORED if self._minimum.is_ignored else Deviation.HIGHER_MINIMUM
        if reported.read < expected - slack:
            return lost_kind(seen, profile)
        if reported.read > expected + slack:
            return Deviation.MORE_READ
        if predicted.total >= _SCALE_TOKENS and abs(ratio / self.scale - 1.0) > _SCALE_SHARE:
            return Deviation.COUNTED_DIFFERENTLY
        return Deviation.AS_EXPECTED

    def _is_unstored(self, seen: Observation, profile: CacheProfile) -> bool:
        """Neither read nor written, where a marker stood behind enough. Where an answer says nothing of writes, only a
        read that was due and did not come proves it."""
        reported, predicted = seen.reported, seen.predicted
        if profile.family is not Family.MARKER or not seen.marked or reported.read or reported.write:
            return False
        if not (predicted.read or (predicted.write and reported.writes_told)):
            return False
        size = seen.marked * reported.prompt / predicted.total
        return not self._minimum.smallest_stored or size < self._minimum.smallest_stored

    def _count(self, seen: Observation, profile: CacheProfile) -> None:
        """The tokens' scale: a slow mean, from the third report on."""
        predicted, reported = seen.predicted, seen.reported
        if predicted.total < _SCALE_TOKENS or reported.prompt <= 0:
            return
        ratio = min(_SCALES[1], max(_SCALES[0], reported.prompt / predicted.total))
        self._scaled += 1
        step = max(_SCALE_STEP, 1.0 / self._scaled)
        self.scale += step * (ratio - self.scale)
        if profile.family is Family.MARKER and (reported.read or reported.write):
            self._minimum.stored(reported.read + reported.write)

    def _learn_place(self, seen: Observation, profile: CacheProfile) -> None:
        is_moved = _is_elsewhere(seen, profile)
        if is_moved is not None:
            self._system.saw(is_hoisted=profile.hoists_system is not is_moved)

    def _learn(self, kind: Deviation, seen: Observation, profile: CacheProfile, now: float) -> None:
        if kind in (Deviation.HIGHER_MINIMUM, Deviation.MARKERS_IGNORED):
            ratio = seen.reported.prompt / seen.predicted.total
            self._minimum.not_stored(int(seen.marked * ratio))
            if self._minimum.is_ignored and self._minimum.unstored > _ENOUGH:
                self._ignored_until = now + _PAUSE_S
            return
        if seen.reported.read or seen.reported.write:
            self._ignored_until = 0.0
        if kind is Deviation.LIFE_DOWNGRADED:
            self._downgrades += 1
        elif kind is Deviation.OUT_OF_REACH:
            self._misses_afar += 1
        elif kind in LOST:
            self._saw(seen, was_held=False)
        elif seen.predicted.read and seen.reported.read:
            self._saw(seen, was_held=True)
            if seen.distance >= profile.lookback:
                self._misses_afar = 0
            if seen.age_s is not None and self._downgrades and seen.age_s > profile.life_s:
                self._downgrades = 0
        elif kind is Deviation.MORE_READ and self._lost_life():
            # What was thought to have expired was still there: the lesson was wrong.
            self._ages.clear()

    def _saw(self, seen: Observation, *, was_held: bool) -> None:
        if seen.age_s is not None:
            self._ages.append((seen.age_s, was_held))

    def _lost_life(self) -> float:
        """The age from which on entries are gone, where every younger one was there; 0: no such age."""
        gone = [age_s for age_s, was_held in self._ages if not was_held]
        held = [age_s for age_s, was_held in self._ages if was_held]
        if len(gone) < _ENOUGH or min(gone) <= max(held, default=0.0):
            return 0.0
        return max(_SHORTEST_LIFE_S, min(gone))

    def _chance(self) -> float:
        """The share of expected reads that came, where age does not explain which."""
        gone = sum(not was_held for _, was_held in self._ages)
        if gone < _ENOUGH or self._lost_life():
            return 1.0
        return max(_LEAST_CHANCE, 1.0 - gone / len(self._ages))

    def _lessons(self, base: CacheProfile) -> dict[str, Any]:
        """What is believed otherwise than the profile says."""
        changed: dict[str, Any] = {}
        if self._scaled >= _ENOUGH and abs(self.scale - 1.0) > _SCALE_SHARE or self._minimum.raised:
            # In steps: a minimum that moved with every answer would be news each time.
            scale = round(self.scale * 20) / 20 if self._scaled >= _ENOUGH else 1.0
            least = max(base.min_tokens, self._minimum.raised if base.family is Family.MARKER else 0)
            changed.update(min_tokens=max(1, round(least / scale)))
        life_s = self._lost_life()
        if 0 < life_s < base.life_s:
            changed.update(life_s=life_s)
        if base.family is Family.GRID and (chance := self._chance()) < 1.0:
            changed.update(hit_chance=base.hit_chance * chance)
        if base.long_life_s > base.life_s and self._downgrades >= 2:
            changed.update(long_life_s=changed.get("life_s", base.life_s), write_long=base.write)
        if base.collapses_runs and self._misses_afar >= 2:
            changed.update(collapses_runs=False)
        if (is_hoisted := self._system.is_hoisted(base)) is not base.hoists_system:
            changed.update(hoists_system=is_hoisted)
        return changed

    def _forget(self) -> None:
        """Nothing has confirmed the lessons for an hour. The tokens' scale stays, and where system messages are put:
        every answer confirms the one, and one answer can contradict the other."""
        self._minimum = _Minimum(smallest_stored=self._minimum.smallest_stored)
        self._ages.clear()
        self._downgrades = self._misses_afar = 0
        self._lesson_at = self._ignored_until = 0.0


def observed(
    prompt: Prompt,
    predicted: Bill,
    reported: Usage,
    last_use: tuple[float, float] | None,
    elsewhere: Bill | None = None,
) -> Observation:
    """One answered request; ``last_use`` is the entry's at the position that was expected to be read, ``elsewhere`` the
    bill if system messages within the conversation are put elsewhere."""
    hit, stops = predicted.hit, [*prompt.marks, *prompt.endings[-1:]]
    age_s, life_s = last_use or (None, 0.0)
    return Observation(
        predicted=predicted,
        reported=reported,
        marked=prompt.ends[max(stops)] if stops else 0,
        age_s=age_s,
        life_s=life_s,
        distance=min((p - hit for p in stops if p >= hit >= 0), default=0),
        elsewhere=elsewhere,
    )


def missing(prompt: Prompt, predicted: Bill, reported: Usage) -> list[int]:
    """The positions whose entries the provider evidently does not hold, after a read that did not come: those behind
    what was read, up to what should have been, but for those that this request has written; where it has written
    nothing, those, too."""
    ratio = reported.prompt / predicted.total if predicted.total else 1.0
    first = bisect_right(prompt.ends, (reported.read + _TOLERANCE_TOKENS) / ratio)
    written = {*prompt.marks, *prompt.endings[-1:]} if reported.write else set()
    last = predicted.hit if reported.write else len(prompt.ends) - 1
    return [position for position in range(first, last + 1) if position not in written]


def tolerance(reported: Usage, profile: CacheProfile) -> float:
    """How far a report may be from what was expected."""
    return max(_TOLERANCE_TOKENS, 2 * profile.step, _TOLERANCE_SHARE * reported.prompt)


def _is_elsewhere(seen: Observation, profile: CacheProfile) -> bool | None:
    """Whether system messages within the conversation were put elsewhere than is believed; None where the report fits
    both places, or neither. What is stored tells first: unlike what is read, it follows from the markers alone,
    whatever the provider still held."""
    reported, predicted, other = seen.reported, seen.predicted, seen.elsewhere
    is_short = seen.marked * reported.prompt < profile.min_tokens * predicted.total
    if other is None or (is_short and not reported.read + reported.write):
        # A prefix that is too short is stored at neither place.
        return None
    is_moved = None
    if reported.writes_told:
        here, there = predicted.read + predicted.write, other.read + other.write
        is_moved = _is_nearer(reported.read + reported.write, here, there, seen, profile)
    return is_moved if is_moved is not None else _is_nearer(reported.read, predicted.read, other.read, seen, profile)


def _is_nearer(told: int, here: int, there: int, seen: Observation, profile: CacheProfile) -> bool | None:
    """Whether the tokens that were told are nearer to ``there`` than to ``here``; None where the two are too near to
    each other, or it lies between them. Tokens of tools, texts and framing are not all counted by one scale: a report
    is rarely what was expected, and yet much nearer to one of the two."""
    ratio = seen.reported.prompt / max(1, seen.predicted.total)
    if abs(here - there) * ratio <= _APART * tolerance(seen.reported, profile):
        return None
    from_here, from_there = abs(told - here * ratio), abs(told - there * ratio)
    near, far = sorted((from_here, from_there))
    return from_there < from_here if far > _NEARER * near else None


def _is_downgraded(seen: Observation) -> bool:
    """By the bill: the split by life is told, and what should be an hour's is all five minutes'."""
    predicted, reported = seen.predicted, seen.reported
    if not reported.lives_told or reported.write_1h or predicted.write_1h <= _TOLERANCE_TOKENS:
        return False
    ratio = reported.prompt / predicted.total
    return reported.write_5m >= 0.5 * (predicted.write_1h + predicted.write_5m) * ratio


def lost_kind(seen: Observation, profile: CacheProfile) -> Deviation:
    """Why a read that was due did not come, from the entry's age and place."""
    age_s, life_s = seen.age_s, seen.life_s
    if profile.family is Family.MARKER and profile.collapses_runs and seen.distance >= profile.lookback > 1:
        return Deviation.OUT_OF_REACH
    if age_s is None:
        return Deviation.EVICTED
    if life_s >= profile.long_life_s > profile.life_s and age_s > profile.life_s:
        return Deviation.LIFE_DOWNGRADED
    if age_s >= _LATE_SHARE * life_s:
        return Deviation.EXPIRED
    return Deviation.PARTITIONED if age_s < _MOMENT_S else Deviation.EVICTED
