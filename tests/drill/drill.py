"""What a drill is, and what it finds."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.drill.money import Comparison
from tests.drill.world import World


@dataclass(frozen=True, slots=True)
class Check:
    """A goal, and what was found. A shortened drill reports a goal that goes by seconds, and does not fail by it."""

    goal: str
    figure: str
    is_ok: bool
    is_timed: bool = False


@dataclass(slots=True)
class Findings:
    """What came of a drill."""

    money: Comparison | None = None
    checks: list[Check] = field(default_factory=list)

    def expect(self, goal: str, figure: object, is_ok: bool, *, is_timed: bool = False) -> None:
        """Note a goal and what was found."""
        self.checks.append(Check(goal, str(figure), is_ok, is_timed))

    def within(self, what: str, seconds: float | None, most_s: float) -> None:
        """Note a goal in seconds; None: it did not happen at all."""
        figure = "never" if seconds is None else f"{seconds:.1f} s"
        self.expect(f"{what} <= {most_s:g} s", figure, seconds is not None and seconds <= most_s, is_timed=True)

    def settle(self, found: Comparison, *, goal: str = "served, ledger and budget agree to the cent") -> None:
        """Note the comparison of the money."""
        self.money = found
        self.expect(goal, "; ".join(found.faults) or "equal", found.is_exact)

    def failures(self, *, by_the_clock: bool) -> list[Check]:
        """What was not reached; goals in seconds count only ``by_the_clock``."""
        return [one for one in self.checks if not one.is_ok and (by_the_clock or not one.is_timed)]


@dataclass(frozen=True, slots=True)
class Drill:
    """``done`` says what is done; ``run`` does it. ``is_short``: the shortened form runs it, too."""

    name: str
    done: str
    run: Callable[[World, Findings], None]
    needs_redis: bool = False
    is_short: bool = False
