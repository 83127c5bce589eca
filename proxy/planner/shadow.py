"""Tracks the entries that the provider's cache is believed to hold.

Two models of the cache are kept: one after the requests that were really sent, one after the client's own requests. The
difference between their costs is the realised regret, which bounds the risk that the next plan may take. The costs of
other processes count, too. Nothing is decided here.

Each answer says how much of the prompt was read and written. An answer that differs from the expectation (a deviation)
shows that an entry is gone, or that a rule of this route differs from the provider's page. ``ProviderObservations``
keeps the observations of one route and turns them into the profile that the planner works with. Every lesson needs
several observations that no other one contradicts, and every lesson is bounded. A lesson is forgotten if it was not
confirmed for an hour; the next request then tries again. Only the tokens' scale and the place of system messages are
kept: they belong to the route, and each answer shows them.

The kinds of deviations follow the providers' own diagnostics (Anthropic ``diagnostics``, OpenAI
``prompt_cache_diagnostics``). Those compare requests and say nothing about entries that expired or were evicted.
"""

import math
from bisect import bisect_right
from collections import deque
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import DecodeError, msgpack

from proxy.kit.value import dataclass, field, replace
from proxy.protocol.caches import Bill, Cache, PromptPositions, make_cache
from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.response.usage import BillSum, Parts, Usage
from proxy.protocol.wire.json_body import Unreadable


class Deviation(StrEnum):
    """How a report differs from the expectation. What each one means stands in ``proxy/app/settings/LOGS.md``."""

    AS_EXPECTED = "as-expected"
    MORE_READ = "more-read"
    EVICTED = "evicted"
    EXPIRED = "expired"
    PARTITIONED = "partitioned"
    OUT_OF_REACH = "out-of-reach"
    COUNTED_DIFFERENTLY = "counted-differently"
    MARKERS_IGNORED = "markers-ignored"
    HIGHER_MINIMUM = "higher-minimum"
    LIFE_DOWNGRADED = "life-downgraded"
    MOVED_SYSTEM = "moved-system"


LOST = frozenset(
    {
        Deviation.EVICTED, Deviation.EXPIRED, Deviation.PARTITIONED, Deviation.OUT_OF_REACH,
        Deviation.MARKERS_IGNORED, Deviation.HIGHER_MINIMUM, Deviation.LIFE_DOWNGRADED,
    }
)  # fmt: skip
"""The kinds in which the provider does not hold an entry that it was expected to hold."""

_LESSON_S = 3600.0
_PAUSE_S = 600.0
_WINDOW = 16
_ENOUGH = 3
_ENOUGH_PLACES = 2
# Smaller differences come from rounding and framing and teach nothing.
_TOLERANCE_TOKENS = 192
_TOLERANCE_SHARE = 0.03
# Two bills must be this many tolerances apart before a report shows which of them applies.
_APART = 2
# The report must be this many times nearer to one of the bills than to the other.
_NEARER = 2
_SCALE_SHARE = 0.1
_SCALE_TOKENS = 256
_SCALE_STEP = 0.2
_SCALES = (0.5, 2.0)
# The largest minimum on any page is 6144 (``proxy.protocol.providers.profile``). If a prefix of ``_NO_MINIMUM_TOKENS``
# or more is not stored, the reason is not a minimum.
_NO_MINIMUM_TOKENS = 8192
_SHORTEST_LIFE_S = 60.0
_MOMENT_S = 30.0
_LATE_SHARE = 0.8
_LEAST_CHANCE = 0.25


@dataclass(frozen=True, slots=True)
class Observation:
    """One answered request: the bill that the shadow predicted, and the usage that the provider reported.

    ``marked`` are the tokens, by our count, up to the last marker or boundary (0: none). ``age_s``, ``life_s`` and
    ``distance`` belong to the entry that was expected to be read: the seconds since its last use, its life, and the
    number of single positions from the nearest marker to it. ``elsewhere`` is the bill if system messages within the
    conversation are put elsewhere than is believed (None: there are no such messages). ``scale`` is how many tokens
    the provider counted for one of ours in the request before (0: unknown): it counts images in other ways than texts.
    """

    predicted: Bill
    reported: Usage
    marked: int = 0
    age_s: float | None = None
    life_s: float = 0.0
    distance: int = 0
    elsewhere: Bill | None = None
    scale: float = 0.0


@dataclass(slots=True)
class ProviderObservations:
    """The observed behaviour of one route's provider, in addition to its profile. ``_ages`` are the ages of entries in
    seconds, each with whether the entry was still there. ``_hoisted`` and ``_kept`` count the reports in a row that
    showed system messages within the conversation at the front, and in their place. ``_unstored`` prefixes were not
    stored, of which the longest has ``_largest_unstored`` tokens, and the shortest that was stored has
    ``_smallest_stored``, by the provider's count. Before ``ignored_until`` the planner stands down, because the
    provider was seen to store nothing of what is marked."""

    scale: float = 1.0
    _scaled: int = 0
    _largest_unstored: int = 0
    _unstored: int = 0
    _smallest_stored: int = 0
    _ages: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _downgrades: int = 0
    _misses_afar: int = 0
    _hoisted: int = 0
    _kept: int = 0
    _refused_keys: int = 0
    _lesson_at: float = 0.0
    ignored_until: float = 0.0
    _base: CacheProfile | None = None
    _believed: CacheProfile | None = None
    _learnt: dict[str, Any] = field(default_factory=dict)

    def profile(self, base: CacheProfile, now: float) -> CacheProfile:
        """The profile with the lessons applied. It is the same object until something else is learnt."""
        if self._lesson_at and now - self._lesson_at > _LESSON_S:
            # Nothing has confirmed the lessons for an hour. Two are kept: the tokens' scale, because every answer
            # confirms it, and the place of system messages, because one answer can contradict it.
            self._ages.clear()
            self._unstored = self._largest_unstored = self._downgrades = self._misses_afar = 0
            self._lesson_at = self.ignored_until = 0.0
        lessons = self._lessons(base)
        if self._base is not base or self._believed is None or lessons != self._learnt:
            self._base, self._learnt = base, lessons
            self._believed = replace(base, **lessons) if lessons else base
        return self._believed

    @property
    def takes_keys(self) -> bool:
        """Whether routing keys are sent. They are no longer sent after two requests with a key were refused and none
        was accepted."""
        return self._refused_keys < 2

    def key_was(self, *, accepted: bool) -> None:
        """Record that a request with a routing key was answered, or refused."""
        if accepted:
            self._refused_keys = -1_000_000
        else:
            self._refused_keys += 1

    def observe(self, seen: Observation, profile: CacheProfile, now: float) -> Deviation:
        """Take one report into account, and return its kind."""
        is_moved = _is_elsewhere(seen, seen.elsewhere, profile) if seen.elsewhere is not None else None
        kind = self._kind(seen, profile, is_moved=bool(is_moved))
        self._count(seen, profile)
        if kind in LOST:
            self._lesson_at = now
        if is_moved is not None:
            is_hoisted = profile.hoists_system is not is_moved
            self._hoisted, self._kept = (self._hoisted + 1, 0) if is_hoisted else (0, self._kept + 1)
        if kind is not Deviation.MOVED_SYSTEM:
            self._learn(kind, seen, profile, now)
        return kind

    def _kind(self, seen: Observation, profile: CacheProfile, *, is_moved: bool) -> Deviation:
        predicted, reported = seen.predicted, seen.reported
        total = predicted.total
        if total <= 0 or reported.prompt <= 0:
            return Deviation.AS_EXPECTED
        ratio = reported.prompt / total
        has_hours = reported.write_1h or predicted.write_1h <= _TOLERANCE_TOKENS
        if reported.lives_told and not has_hours and reported.write_5m >= 0.5 * predicted.write * ratio:
            # The tokens that should be written for an hour are all written for five minutes.
            return Deviation.LIFE_DOWNGRADED
        # What is stored and what is new may be counted differently, so either request's scale may hold.
        scales = sorted((ratio, seen.scale or ratio))
        least, most = (predicted.read * scale / (profile.hit_chance or 1.0) for scale in scales)
        slack = tolerance(reported, profile)
        if is_moved:
            return Deviation.MOVED_SYSTEM
        if self._is_unstored(seen, profile):
            return Deviation.MARKERS_IGNORED if self._stores_nothing else Deviation.HIGHER_MINIMUM
        if reported.read < least - slack:
            return lost_kind(seen, profile)
        if reported.read > most + slack:
            return Deviation.MORE_READ
        if total >= _SCALE_TOKENS and abs(ratio / self.scale - 1.0) > _SCALE_SHARE:
            return Deviation.COUNTED_DIFFERENTLY
        return Deviation.AS_EXPECTED

    def _is_unstored(self, seen: Observation, profile: CacheProfile) -> bool:
        """Whether nothing was read or written, although a marker stood behind a long enough prefix. If an answer says
        nothing about writes, only an expected read that did not come proves it."""
        reported, predicted = seen.reported, seen.predicted
        if profile.family is not Family.MARKER or not seen.marked or reported.read or reported.write:
            return False
        if not (predicted.read or (predicted.write and reported.writes_told)):
            return False
        size = seen.marked * reported.prompt / predicted.total
        return not self._smallest_stored or size < self._smallest_stored

    @property
    def _stores_nothing(self) -> bool:
        """Whether nothing was ever stored, however long."""
        return not self._smallest_stored and self._largest_unstored >= _NO_MINIMUM_TOKENS

    def _count(self, seen: Observation, profile: CacheProfile) -> None:
        """Update the tokens' scale, a slow mean that is used from the third report on."""
        total, reported = seen.predicted.total, seen.reported
        if total < _SCALE_TOKENS or reported.prompt <= 0:
            return
        ratio = min(_SCALES[1], max(_SCALES[0], reported.prompt / total))
        self._scaled += 1
        step = max(_SCALE_STEP, 1.0 / self._scaled)
        self.scale += step * (ratio - self.scale)
        if profile.family is Family.MARKER and (reported.read or reported.write):
            tokens = reported.read + reported.write
            self._smallest_stored = min(self._smallest_stored or tokens, tokens)
            if tokens <= self._largest_unstored:
                self._largest_unstored = self._unstored = 0

    def _learn(self, kind: Deviation, seen: Observation, profile: CacheProfile, now: float) -> None:
        if kind in (Deviation.HIGHER_MINIMUM, Deviation.MARKERS_IGNORED):
            ratio = seen.reported.prompt / seen.predicted.total
            self._unstored += 1
            self._largest_unstored = max(self._largest_unstored, int(seen.marked * ratio))
            if self._stores_nothing and self._unstored > _ENOUGH:
                self.ignored_until = now + _PAUSE_S
            return
        if seen.reported.read or seen.reported.write:
            self.ignored_until = 0.0
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
            # An entry that was believed to have expired was still there, so the lesson was wrong.
            self._ages.clear()

    def _saw(self, seen: Observation, *, was_held: bool) -> None:
        if seen.age_s is not None:
            self._ages.append((seen.age_s, was_held))

    def _lost_life(self) -> float:
        """The age from which on entries are gone, if every younger entry was still there. 0: there is no such age."""
        gone = [age_s for age_s, was_held in self._ages if not was_held]
        held = [age_s for age_s, was_held in self._ages if was_held]
        if len(gone) < _ENOUGH or min(gone) <= max(held, default=0.0):
            return 0.0
        return max(_SHORTEST_LIFE_S, min(gone))

    def _chance(self) -> float:
        """The share of expected reads that came, if the entries' age does not explain which ones came."""
        gone = sum(not was_held for _, was_held in self._ages)
        if gone < _ENOUGH or self._lost_life():
            return 1.0
        return max(_LEAST_CHANCE, 1.0 - gone / len(self._ages))

    def _lessons(self, base: CacheProfile) -> dict[str, Any]:
        """The fields in which the believed rules differ from the profile."""
        changed: dict[str, Any] = {}
        # Enough prefixes were not stored, and all of them are shorter than the shortest that was.
        raised, is_apart = self._largest_unstored + 1, self._largest_unstored < (self._smallest_stored or math.inf)
        if self._unstored < _ENOUGH or not is_apart or raised > _NO_MINIMUM_TOKENS:
            raised = 0
        if self._scaled >= _ENOUGH and abs(self.scale - 1.0) > _SCALE_SHARE or raised:
            # The scale is rounded to steps: a minimum that moved with every answer would be a new lesson each time.
            scale = round(self.scale * 20) / 20 if self._scaled >= _ENOUGH else 1.0
            least = max(base.min_tokens, raised if base.family is Family.MARKER else 0)
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
        # The profile's place of system messages is believed until enough reports contradict it. One more is needed if a
        # page says that they keep their place.
        against = self._kept if base.hoists_system else self._hoisted - base.mid_system
        if against >= _ENOUGH_PLACES:
            changed.update(hoists_system=not base.hoists_system)
        return changed


def missing(prompt: PromptPositions, predicted: Bill, reported: Usage) -> list[int]:
    """The positions whose entries the provider evidently does not hold, after an expected read that did not come: the
    positions behind the part that was read, up to the one that should have been read, except those that this request
    has written. If it has written nothing, all positions behind the part that was read."""
    ratio = reported.prompt / predicted.total if predicted.total else 1.0
    first = bisect_right(prompt.ends, (reported.read + _TOLERANCE_TOKENS) / ratio)
    written = {*prompt.marks, *prompt.endings[-1:]} if reported.write else set()
    last = predicted.hit if reported.write else len(prompt.ends) - 1
    return [position for position in range(first, last + 1) if position not in written]


def tolerance(reported: Usage, profile: CacheProfile) -> float:
    """How far a report may be from the expectation, in tokens."""
    return max(_TOLERANCE_TOKENS, 2 * profile.step, _TOLERANCE_SHARE * reported.prompt)


def _is_elsewhere(seen: Observation, other: Bill, profile: CacheProfile) -> bool | None:
    """Whether system messages within the conversation were put elsewhere than is believed, so that the ``other`` bill
    holds. None if the report fits both places, or neither. The sum of reads and writes is checked first: unlike the
    read alone, it follows from the markers only, whatever the provider still held."""
    reported, predicted = seen.reported, seen.predicted
    is_short = seen.marked * reported.prompt < profile.min_tokens * predicted.total
    if is_short and not reported.read + reported.write:
        # A prefix that is too short is stored at neither place.
        return None
    is_moved = None
    if reported.writes_told:
        here, there = predicted.read + predicted.write, other.read + other.write
        is_moved = _is_nearer(reported.read + reported.write, here, there, seen, profile)
    return is_moved if is_moved is not None else _is_nearer(reported.read, predicted.read, other.read, seen, profile)


def _is_nearer(told: int, here: int, there: int, seen: Observation, profile: CacheProfile) -> bool | None:
    """Whether the reported tokens are nearer to ``there`` than to ``here``. None if the two are too near to each other,
    or if the report lies between them. No single scale fits the tokens of tools, texts and framing, so a report is
    rarely equal to an expectation, and yet it is much nearer to one of the two."""
    ratio = seen.reported.prompt / max(1, seen.predicted.total)
    if abs(here - there) * ratio <= _APART * tolerance(seen.reported, profile):
        return None
    from_here, from_there = abs(told - here * ratio), abs(told - there * ratio)
    near, far = sorted((from_here, from_there))
    return from_there < from_here if far > _NEARER * near else None


def lost_kind(seen: Observation, profile: CacheProfile) -> Deviation:
    """The reason why an expected read did not come, judged by the entry's age and place."""
    age_s, life_s = seen.age_s, seen.life_s
    if profile.family is Family.MARKER and seen.distance >= profile.lookback > 1:
        return Deviation.OUT_OF_REACH
    if age_s is None:
        return Deviation.EVICTED
    if life_s >= profile.long_life_s > profile.life_s and profile.life_s < age_s <= life_s:
        return Deviation.LIFE_DOWNGRADED
    if age_s >= _LATE_SHARE * life_s:
        return Deviation.EXPIRED
    return Deviation.PARTITIONED if age_s < _MOMENT_S else Deviation.EVICTED


_MOST_PROCESSES = 16


@dataclass(slots=True)
class Costs:
    """The costs of the requests that other processes sent, and what these requests would have cost as their clients
    wrote them. Only the latest sums of each process are kept. If there are too many processes, the oldest sums are
    forgotten."""

    by_process: dict[str, tuple[float, float]] = field(default_factory=dict)

    def sums(self) -> tuple[float, float]:
        """The costs of all requests, and what they would have cost as their clients wrote them."""
        pairs = self.by_process.values()
        return sum(sent for sent, _ in pairs), sum(own for _, own in pairs)

    def packed(self, process: str, sent: float, own: float) -> bytes:
        """The sums of all processes, with this process's own sums, as bytes."""
        return msgpack.encode({**self.by_process, process: (sent, own)})

    def adopt(self, blob: bytes, process: str) -> None:
        """Take over the sums that are later than the known ones. Raises Unreadable."""
        try:
            found = msgpack.decode(blob, type=dict[str, tuple[float, float]])
        except (DecodeError, UnicodeDecodeError) as error:
            raise Unreadable("no sums") from error
        for name, sums in found.items():
            if name != process and sums[1] > self.by_process.get(name, (0.0, 0.0))[1]:
                self.by_process.pop(name, None)
                self.by_process[name] = sums
        while len(self.by_process) > _MOST_PROCESSES:
            del self.by_process[next(iter(self.by_process))]


_REGRET_SHARE = 0.005
# The part of one request that a policy may lose to learning, and how many times this part is added if the client is
# sure to come back in time. The classic policy orders by age alone and wins back less.
_REGRET_REQUESTS = MappingProxyType({"economic": 0.3, "classic": 0.27})
_RETURN_BONUS = MappingProxyType({"economic": 4.8, "classic": 0.0})
# Up to this P(the client comes back in time) there is no bonus. From here to 1 the bonus grows linearly.
_BONUS_FROM = 0.6


@dataclass(slots=True)
class ShadowCaches:
    """Models of the provider's cache. ``sent`` is what we believe the provider holds. ``own`` is what it would hold if
    the client's own requests had been sent, ``marked`` if these had been sent with markers (empty if this is not asked
    for). ``sent_cost`` and ``own_cost`` are the input costs of the first two so far, in tokens at the plain price."""

    sent: Cache
    own: Cache
    marked: Cache
    profile: CacheProfile
    observations: ProviderObservations = field(default_factory=ProviderObservations)
    sent_cost: float = 0.0
    own_cost: float = 0.0
    others: Costs = field(default_factory=Costs)

    def believed(self, base: CacheProfile, now: float) -> CacheProfile:
        """The provider's rules, corrected by the lessons from its reports. All models follow these rules."""
        profile = self.observations.profile(base, now)
        if profile is not self.profile:
            self.profile = profile
            for cache in (self.sent, self.own, self.marked):
                cache.follow(profile)
        return profile

    def regret_budget(self, own_now: float, policy: str, returns: float) -> float:
        """How much more the next request may cost than the client's own request. Realised regret is bounded by a share
        of the cost and a part of one request. That part is the cost of learning a new session."""
        bonus = _RETURN_BONUS[policy] * max(0.0, returns - _BONUS_FROM) / (1 - _BONUS_FROM)
        sent, own = self.others.sums()
        bound = _REGRET_SHARE * (self.own_cost + own) + _REGRET_REQUESTS[policy] * (1 + bonus) * own_now
        return bound - (self.sent_cost + sent - self.own_cost - own)

    @classmethod
    def of(cls, profile: CacheProfile) -> "ShadowCaches":
        sent, own, marked = (make_cache(profile, is_forecast=True) for _ in range(3))
        return cls(sent, own, marked, profile)

    def about_bytes(self) -> int:
        """About how many bytes of memory the entries take."""
        return 6_000 + 400 * (len(self.sent.table) + len(self.own.table) + len(self.marked.table))


def most_regret(policy: str) -> float:
    """The most that a policy may lose to learning, as a multiple of one request without a cache. The share of the cost
    (``_REGRET_SHARE``) comes in addition."""
    return _REGRET_REQUESTS[policy] * (1 + _RETURN_BONUS[policy])


def cost_of(profile: CacheProfile, bill: Parts | BillSum) -> float:
    """A bill, a reported usage, or a sum of bills, in tokens at the plain price."""
    return bill.read * profile.read + bill.write_5m * profile.write + bill.write_1h * profile.write_long + bill.plain


def unpredicted_cost(profile: CacheProfile, predicted: Bill, usage: Usage) -> float:
    """The cost of the request beyond the shadow's bill, by the provider's own report. With it, regret is bounded as it
    is realised, even if entries were lost early or markers are ignored. The cost is in our tokens, because the provider
    counts tokens in another way."""
    if usage.estimated or usage.prompt <= 0:
        return 0.0
    return cost_of(profile, usage) * predicted.total / usage.prompt - cost_of(profile, predicted)
