"""Attempts that are under way: LiteLLM has called a deployment, and has not reported the end of the call yet.

A client's call is one or more attempts (retries, fallbacks). LiteLLM reports the end of most attempts by one of several
hooks, and the end of some by none. Attempts without a reported end are dropped after some time, or when all attempts
together take too much room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core.lru import Bounded
from proxy.engine.exchange import Exchange
from proxy.inside.rewriting import Rewriting
from proxy.ports import Plan

LONGEST_S = 7200.0
"""An attempt without any report for this long counts as over: LiteLLM's own time-out is 6,000 s by default."""
_MOST_CALLS = 10_000
# There are fewer retries and fallbacks than this. A client may use the same id for many calls.
_MOST_OF_A_CALL = 100
_MOST_BYTES = 256 << 20


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of a deployment. ``call`` identifies the client's call (``incoming.call_of``). ``came`` are the
    arguments as they came. ``rewritten`` is the change that was made to them; None if the request is sent as it
    came."""

    call: str
    model_id: str
    exchange: Exchange
    plan: Plan = field(repr=False)
    is_stream: bool = False
    came: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rewritten: Rewriting | None = field(default=None, repr=False)

    @property
    def _laid_out(self) -> Any:
        """The messages that were sent in place of those that came; None if these were sent."""
        return self.rewritten.changed.get("messages") if self.rewritten is not None else None

    def is_shown_by(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments contain the messages that were sent for this attempt."""
        mine, theirs = self._laid_out or self.came.get("messages"), arguments.get("messages")
        return mine is not None and (theirs is mine or theirs == mine)

    def is_continued_by(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments' messages begin with the layout that was sent for this attempt. A call that begins with
        the messages as they came is a call of its own, such as the one that goes on with a stream that broke off."""
        mine, theirs = self._laid_out, arguments.get("messages")
        return isinstance(mine, list) and isinstance(theirs, list) and theirs[: len(mine)] == mine


class OpenAttempts:
    """The attempts that are under way, by their calls."""

    def __init__(self) -> None:
        self._calls: Bounded[str, Sequence[Attempt]] = Bounded(_MOST_BYTES, _weight, _MOST_CALLS)

    def __contains__(self, attempt: Attempt) -> bool:
        return attempt in self._calls.get(attempt.call, ())

    def begin(self, attempt: Attempt, now: float) -> None:
        """Add an attempt that begins at ``now``, in unix seconds."""
        self._calls.put(attempt.call, (*self._calls.get(attempt.call, ())[-_MOST_OF_A_CALL:], attempt))
        while now - next(iter(self._calls.values()))[-1].exchange.arrival.now > LONGEST_S:
            self._calls.drop_oldest()

    def end(self, attempt: Attempt) -> bool:
        """Remove an attempt that is over. Returns False if it was already over before."""
        if attempt not in self:
            return False
        left = [one for one in self._calls[attempt.call] if one is not attempt]
        self._calls.drop(attempt.call)
        if left:
            self._calls.put(attempt.call, left)
        return True

    def of(self, call: str, arguments: Mapping[str, Any] | None = None, model_id: str = "") -> Attempt | None:
        """The attempt of a call to which a report belongs: the attempt whose messages are in the ``arguments``, or the
        attempt at that deployment, or else the last attempt."""
        found = self._calls.get(call, ())
        if len(found) > 1 and arguments is not None:
            found = [one for one in found if one.is_shown_by(arguments)] or found
        if len(found) > 1 and model_id:
            found = [one for one in found if one.model_id == model_id] or found
        return found[-1] if found else None


def _weight(attempts: Sequence[Attempt]) -> int:
    """The approximate size in bytes."""
    return sum(len(one.plan.body) + len(one.plan.original) for one in attempts)
