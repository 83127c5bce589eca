"""The token factors of models at their upstreams, in memory and in the store that lasts.

Each principal's scope has a factor of its own for each model, so that no client's texts change what another one's
requests may hold. A scope that has not learnt one begins with the model's, which all scopes teach.
"""

import asyncio
from collections.abc import Callable

from proxy.core.digest import digest
from proxy.core.lru import LastUsed
from proxy.core.window.token_factor import TokenFactor
from proxy.planning.layout_state import SharedLayoutStore
from proxy.ports import Deployment

_MOST_FACTORS = 4_096
_ALL = "models"
"""The scope of what all scopes have taught; the scopes of principals are digests."""


class TokenFactors:
    """What is known of how models count. ``shared`` is what other workers and the next start know; None: nothing."""

    def __init__(self, shared: SharedLayoutStore | None = None, now: Callable[[], float] = float) -> None:
        self._shared = shared
        self._now = now
        self._factors: LastUsed[tuple[str, str], TokenFactor] = LastUsed(_MOST_FACTORS)

    async def known(self, deployment: Deployment, scope: str, size: int = 0) -> TokenFactor:
        """The factor by which the proxy's count is multiplied, as the store knows it where a ``size`` is given: the
        request's in bytes, which decides how long it waits."""
        both = self._both(deployment, scope)
        if self._shared is not None and size:
            now = self._now()
            await asyncio.gather(*(self._shared.recall(name, one, now, size) for name, one in both.items()))
        own, shared = both.values()
        return own if own.is_known() else shared

    def teach(self, deployment: Deployment, scope: str, lesson: Callable[[TokenFactor], None]) -> None:
        """Have the factors learn from an answer or a refusal."""
        for name, factor in self._both(deployment, scope).items():
            lesson(factor)
            if self._shared is not None and factor.is_known():
                self._shared.keep(name, factor.packed(), self._now())

    def _both(self, deployment: Deployment, scope: str) -> dict[str, TokenFactor]:
        """The scope's factor, and that of all, by their scopes."""
        name = "f" + digest(f"{deployment.id or deployment.name}/{deployment.model}".encode()).hex()
        keys = [(scope, name), (_ALL, name)]
        for key in keys:
            self._factors.put(key, self._factors.get(key) or TokenFactor(name))
        return {key[0]: self._factors[key] for key in keys}
