"""Deployments that refuse a question of the proxy's: for usage in streams, or for the cause of a miss. Times are the
process's own."""

from collections.abc import Callable
from time import perf_counter

from proxy.core.lru import LastUsed
from proxy.ports import Deployment

# Names behind a wildcard are the clients' choice: the memory of them is bounded.
_MOST = 2048
# Servers are updated. To find out again costs one refused call.
_FOR_S = 3600.0


class QuestionOptOut:
    """For each such deployment: until when it is not asked."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._until: LastUsed[str, float] = LastUsed(_MOST)

    def add(self, deployment: Deployment) -> None:
        """It has refused the question, and taken the same request without."""
        self._until.put(deployment.id, self._now() + _FOR_S)

    def __contains__(self, deployment: Deployment) -> bool:
        until = self._until.get(deployment.id)
        return until is not None and self._now() < until
