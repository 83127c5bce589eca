"""Five minutes or an hour: the value of the longer life of a cache entry, estimated from the client's own pauses.

After a pause longer than the short life, the prefix must be written again. The longer life prevents that for pauses up
to its own end, but its write costs more (Anthropic: 2.0 against 1.25 of the input price). Two facts make it cheap if a
conversation goes on (``proxy.core.caches.marker``, from Anthropic's billing formula). The higher price is paid only for
the tokens between the deepest entry that is read and the last 1-hour marker, however long the prefix in front of them
is. And a read renews every entry on the prefix for the entry's own life. So one 1-hour marker directly behind the part
that is read protects everything in front of it, until the client changes something there.

Nothing is ever marked for an hour before the client has paused that long itself.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from proxy.core.caches import Cache
from proxy.core.caches.prompt import Life
from proxy.core.forecast.forecast import Candidate, Forecast, PauseValue
from proxy.core.layout.breakpoints import place
from proxy.core.layout.layout import Layout
from proxy.core.providers import CacheProfile, Family
from proxy.core.sessions.session import Session
from proxy.core.stability.change_rates import DecayedRate
from proxy.core.value import dataclass, replace

# The prior: one gap in a hundred is a pause. It weighs as much as ``weight`` gaps that were seen. A part of one pause
# counts as chance, in all sessions and in this one. (Measured: otherwise a client that pauses once pays for a second
# pause that does not come.)
_PAUSES = DecayedRate(prior=0.01, weight=4.0)
_CHANCE_SEEN = 0.8
_CHANCE_SEEN_HERE = 0.3
# The client's other sessions weigh as much as this number of gaps in this session.
_COHORT_WEIGHT = 8.0
# The largest chance that is used: no finite record gives more certainty.
_MOST = 0.95
# The estimate promises more of an expected pause than comes true. Without this factor, sessions with a few pauses in a
# row and then none pay up to 13 % more than five minutes alone would have cost (measured). A client that always pauses
# loses nothing.
_CAUTION = 0.8


@dataclass(frozen=True, slots=True)
class PauseForecast:
    """The forecast for requests that only the longer life serves. ``pause`` is P(the session's next request comes after
    the short life and within the long one). ``forecast`` has the other expectations about that request."""

    pause: float
    forecast: Forecast
    profile: CacheProfile

    def worth(self, layout: Layout, cache: Cache, now: float, *, is_natural: bool) -> PauseValue:
        """The value of reading this layout after a pause."""
        after = replace(self.forecast, body=self.pause, opened=self.pause).positions(layout, is_natural=is_natural)
        # If the prefix is not protected now, the next request can protect it at a low cost, unless another pause comes
        # first.
        chances = [_CAUTION * chance / (1.0 - min(chance, _MOST)) for chance in after]
        later = now + self.profile.life_s + self.profile.slack_s + 1.0
        held = cache.held(layout.prompt({}), later)
        spans = tuple(map(_span, layout.ends, (0, *layout.ends), chances))
        return PauseValue(layout, tuple(accumulate(spans)), held)

    def hours(self, standing: Candidate, marks: Iterable[int], hit: int, slots: int) -> Iterator[dict[int, Life]]:
        """Sets of markers that include one-hour markers and may be worth their price. ``marks`` are the markers that
        pay for five minutes, ``hit`` is the deepest position that they read."""
        layout, profile = standing.layout, self.profile
        yield from _longer(marks, hit)
        behind = _nearest(layout, hit, profile)
        if behind is not None and slots > 1:
            others = place(layout, standing.survival, standing.held, profile, slots - 1).positions
            yield {p: "1h" if p <= behind else "5m" for p in sorted({*others, behind})}
        survival = self._in_an_hour().positions(layout, is_natural=standing.is_natural)
        dear = replace(profile, write=profile.write_long)
        yield from _longer(place(layout, survival, standing.held, dear, slots).positions, hit)

    def _in_an_hour(self) -> Forecast:
        """The forecast if every entry were written for the longer life."""
        forecast = self.forecast
        return replace(
            forecast, body=min(1.0, forecast.body + self.pause), opened=min(1.0, forecast.opened + self.pause)
        )


def _span(end: int, before: int, chance: float) -> float:
    return (end - before) * chance


def outlook(session: Session, newest: float | None, forecast: Forecast, profile: CacheProfile) -> PauseForecast | None:
    """The forecast from the client's own pauses. None if there is no longer life, or if the client has not paused.
    ``newest`` is the gap that has just ended."""
    if profile.family is not Family.MARKER or not profile.long_life_s:
        return None
    pause = _pause(session, newest, forecast, profile)
    return PauseForecast(pause, forecast, profile) if pause else None


def _pause(session: Session, newest: float | None, forecast: Forecast, profile: CacheProfile) -> float:
    """P(the session's next request comes after the short life and within the long one)."""
    just = [] if newest is None else [newest]
    own, cohort = [*session.gaps, *just], [*session.cohort.gaps, *just]
    seen = _pauses(cohort, profile)
    if not seen:
        return 0.0
    in_cohort = _PAUSES.share(seen - _CHANCE_SEEN, len(cohort))
    here = max(0.0, _pauses(own, profile) - _CHANCE_SEEN_HERE)
    share = DecayedRate(in_cohort, _COHORT_WEIGHT).share(here, len(own))
    returns = session.cohort.returns_within(profile.life_s, newest)
    goes_on = min(1.0, forecast.body / returns) if returns > 0 else 1.0
    return share * goes_on


def _pauses(gaps: Sequence[float], profile: CacheProfile) -> int:
    return sum(1 for gap in gaps if profile.life_s <= gap < profile.long_life_s)


def _longer(marks: Iterable[int], hit: int) -> list[dict[int, Life]]:
    """The same markers with the first ones for an hour: one set for each marker behind the part that is read, in which
    the hour goes up to that marker. No one-hour marker stands behind a five-minute marker."""
    places = sorted(marks)
    return [{p: "1h" if p <= last else "5m" for p in places} for last in places[bisect_right(places, hit) :]]


def _nearest(layout: Layout, hit: int, profile: CacheProfile) -> int | None:
    """The first place for a marker behind the part that is read: the cheapest place that protects all of that part."""
    if hit < 0:
        return None
    last = min(hit + profile.lookback, len(layout.parts))
    return next((p for p in range(hit + 1, last) if layout.markable[p]), None)
