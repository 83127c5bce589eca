"""How far what requests say of their files can be relied on, as a cohort has shown.

Some clients' prompts name a file in passing; others are instructions that name each file to be edited and no other.
They are told apart by what followed: the files that the next request shows changed. Some clients' answers always edit,
others only explain.
"""

import math

from msgspec import Struct, field

from proxy.core.stability.edit_signals import EditSignals

_DECAY = 0.95
# How much the general estimate weighs, in files seen.
_PRIOR_WEIGHT = 6.0
_MOST = 0.95


class CalibrationCounter(Struct, array_like=True):
    """Of files of which the like was said: how many there were, how many were expected to change, how many did. Older
    ones count less."""

    seen: float = 0.0
    expected: float = 0.0
    changed: float = 0.0

    def add(self, chance: float, *, is_changed: bool) -> None:
        """One file more."""
        self.seen = self.seen * _DECAY + 1.0
        self.expected = self.expected * _DECAY + chance
        self.changed = self.changed * _DECAY + is_changed

    def odds(self) -> float:
        """By how much the log odds of a change are larger here than expected in general."""
        if not self.seen:
            return 0.0
        usual = self.expected / self.seen
        return _log_odds((_PRIOR_WEIGHT * usual + self.changed) / (_PRIOR_WEIGHT + self.seen)) - _log_odds(usual)

    def shifted(self, chance: float) -> float:
        """A chance that is expected in general, by what was seen here."""
        return 1.0 / (1.0 + math.exp(-_log_odds(chance) - self.odds()))


class Reliance(Struct, array_like=True):
    """Files that a request told of, and files beside those; and whether answers edited ``any``."""

    told: CalibrationCounter = field(default_factory=CalibrationCounter)
    beside: CalibrationCounter = field(default_factory=CalibrationCounter)
    any: CalibrationCounter = field(default_factory=CalibrationCounter)

    def add(self, said: float, *, is_changed: bool) -> None:
        """One file, as ``said_of`` has it, and what followed."""
        if said:
            (self.told if said > 0 else self.beside).add(abs(said), is_changed=is_changed)

    def edits(self, usual: float) -> float:
        """P(an answer edits any file), where that is ``usual`` in general."""
        return self.any.shifted(usual)

    def hazard(self, hazard: float, sign: EditSignals) -> float:
        """-ln P(unchanged) of a file, by what such signs have meant here."""
        tally = self.told if sign.is_told else self.beside
        if not tally.seen or not (sign.is_told or sign.is_beside):
            return hazard
        return -math.log1p(-min(tally.shifted(_chance(hazard)), _MOST))


def said_of(hazard: float, sign: EditSignals) -> float:
    """P(changed) of a file by what is said of it in general; negative where others are told of, 0 where none is."""
    return _chance(hazard) if sign.is_told else -_chance(hazard) if sign.is_beside else 0.0


def _chance(hazard: float) -> float:
    return 1.0 - math.exp(-hazard)


def _log_odds(chance: float) -> float:
    return math.log(max(chance, 1e-4) / max(1.0 - chance, 1e-4))
