"""The facts that an answer states about itself: its usage and price, why it ended, the objects that it names. Pure.

A JSON body and the events of a stream have these facts in the same members, so both are read here.
"""

from collections.abc import Mapping

from proxy.core.account.said import Said
from proxy.core.response.miss_diagnostics import UNTOLD, cause_of
from proxy.core.response.received import Received
from proxy.core.response.reported import NOTHING_REPORTED, Reported, reported_in
from proxy.core.response.usage import Counts, Usage, counts_of, mapping
from proxy.core.value import dataclass

_EMPTY_FINISHES = frozenset({"", "stop", "end_turn"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The facts of one answer. ``error`` is the provider's error object, from a stream that broke off."""

    usage: Usage | None = None
    reported: Reported = NOTHING_REPORTED
    saw_content: bool = False
    finish_reason: str = ""
    error: Mapping[str, object] | None = None
    events: int = 0
    tokens: int = 0
    """About how many tokens of text came, by the proxy's own count. 0 if the usage says how many."""
    is_open: bool = False
    """Whether more of the answer could follow. Then the usage so far may be only the first part of its usage."""
    cache_cause: str = UNTOLD
    said: Said | None = None
    """The answer's statements about the objects of the provider's account."""

    @property
    def is_empty(self) -> bool:
        """Whether the model said nothing, and gave no reason for that (a length limit, a filter)."""
        return not self.saw_content and self.error is None and self.finish_reason in _EMPTY_FINISHES


class AnswerFacts:
    """Collects what an answer states about itself, payload by payload."""

    def __init__(self) -> None:
        self._counts: Counts | None = None
        self._reported = NOTHING_REPORTED
        self._finish = ""
        self._cause = UNTOLD
        self._said = Said()

    def learn(self, payload: Mapping[str, object]) -> None:
        """Read a body, or one event of a stream."""
        self._counts = counts_of(payload, self._counts)
        self._reported = self._reported.merged(reported_in(payload))
        self._said.learn(payload)
        cause = cause_of(payload)
        self._cause = cause if cause != UNTOLD else self._cause
        choices = payload.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            finish = mapping(choice).get("finish_reason")
            if isinstance(finish, str) and finish:
                self._finish = finish

    def outcome(
        self,
        *,
        saw_content: bool = False,
        error: Mapping[str, object] | None = None,
        events: int = 0,
        received: Received | None = None,
        is_open: bool = False,
    ) -> Outcome:
        """The outcome up to now, together with what a fold knows about the bytes."""
        usage = None if self._counts is None else self._counts.usage()
        is_told = usage is not None and usage.is_whole and not is_open
        return Outcome(
            usage=usage,
            reported=self._reported,
            saw_content=saw_content,
            finish_reason=self._finish,
            error=error,
            events=events,
            tokens=received.tokens() if received is not None and not is_told else 0,
            is_open=is_open,
            cache_cause=self._cause,
            said=self._said,
        )
