"""A circuit breaker: an upstream that fails gets no calls for a while, and is then tried with one call.

    closed ──(more than ``allowed_fails`` in ``window_s``, and at least half of the calls)──▶ open
    open ──(``cooldown_s`` later)──▶ half-open: one call is let through
    half-open ──(it succeeds)──▶ closed          half-open ──(it fails)──▶ open

A call asks again (``began``) at the moment when it is sent: many calls may have been admitted before the probing call
was sent. The number that a call gets tells the end of the probe from the end of calls that began earlier.

Half of the calls must fail, not only some in a row: otherwise one client whose requests crash the provider could block
it for all others. If an upstream asks for time (``rest``, from its ``retry-after``), its breaker is open for that long
and then closed. Such an upstream works, and has said when to call it again.

This is a pure state machine: times are seconds of any clock, and come from outside.
"""

from enum import StrEnum

from proxy.core.value import dataclass

FAILED_SHARE = 0.5


class BreakerState(StrEnum):
    """Whether calls are let through."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens, and for how long. The defaults are LiteLLM's (``allowed_fails``, ``cooldown_time``)."""

    allowed_fails: int = 3
    cooldown_s: float = 5.0
    window_s: float = 60.0
    most_rest_s: float = 60.0


ORDINARY = 0
"""The number of every call that is not a probe."""


class Breaker:
    """The breaker of one upstream. If ``began`` lets a call go, either ``ended`` or ``abandoned`` follows once, with
    the number that ``began`` returned."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._calls = 0
        self._failed = 0
        self._window_from = 0.0
        self._until: float | None = None
        self.is_resting = False
        self._probe = ORDINARY  # the number of the probe that is under way
        self._last_probe = ORDINARY

    def state(self, now: float) -> BreakerState:
        """The state at the time ``now``."""
        if self._until is None:
            return BreakerState.CLOSED
        if now < self._until:
            return BreakerState.OPEN
        return BreakerState.CLOSED if self.is_resting else BreakerState.HALF_OPEN

    def admits(self, now: float) -> bool:
        """Whether a call may be sent. A half-open breaker lets one call through at a time."""
        state = self.state(now)
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self._probe == ORDINARY)

    def waits_s(self, now: float) -> float:
        """How long until it is worth asking again."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def began(self, now: float) -> int | None:
        """Begin a call that is about to be sent. Returns its number, or None if it must not be sent. If the upstream
        has asked for time, a call that has no other upstream may still be sent."""
        match self.state(now):
            case BreakerState.HALF_OPEN if self._probe == ORDINARY:
                self._last_probe += 1
                self._probe = self._last_probe
                return self._probe
            case BreakerState.CLOSED if self._until is not None:
                self._close()
            case BreakerState.HALF_OPEN | BreakerState.OPEN if not self.is_resting:
                return None
            case _:
                pass
        return ORDINARY

    def ended(self, now: float, call: int, *, is_failure: bool) -> None:
        """Record that the call with this number was answered, or failed."""
        if self._until is not None:
            self._judge(now, call, is_failure=is_failure)
            return
        if now - self._window_from >= self._policy.window_s:
            self._calls = self._failed = 0
            self._window_from = now
        self._calls += 1
        self._failed += is_failure
        if self._failed > self._policy.allowed_fails and self._failed >= FAILED_SHARE * self._calls:
            self._open(now, self._policy.cooldown_s)

    def abandoned(self, call: int) -> None:
        """Record that the client left before the result of the call was known. If the call was the probe, the next call
        may be the probe."""
        if call == self._probe:
            self._probe = ORDINARY

    def rest(self, now: float, seconds: float) -> None:
        """Record that the upstream has said when to call it again."""
        until = now + min(seconds, self._policy.most_rest_s)
        if self._until is None or (self.is_resting and until > self._until):
            self._open(now, until - now)
            self.is_resting = True

    def _judge(self, now: float, call: int, *, is_failure: bool) -> None:
        """Judge the end of a call while the breaker is not closed. The end of the probe decides. Of calls that began
        earlier, only a success counts."""
        is_probe = call != ORDINARY and call == self._probe
        if not is_failure and not self.is_resting:
            self._close()
        elif is_failure and is_probe:
            self._open(now, self._policy.cooldown_s)

    def _open(self, now: float, seconds: float) -> None:
        self._until = now + seconds
        self.is_resting = False
        self._probe = ORDINARY

    def _close(self) -> None:
        self._until = None
        self.is_resting = False
        self._probe = ORDINARY
        self._calls = self._failed = 0
