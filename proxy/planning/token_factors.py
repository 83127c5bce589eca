"""The token factors of models at their upstreams, in memory and in the store that lasts.

Each principal's scope has a factor of its own for each model, so that the texts of one client do not change how much
the requests of another client may hold. A scope without a factor begins with the model's factor, which learns from all
scopes.
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
"""The scope of the factors that learn from all scopes. The scopes of principals are digests."""


class TokenFactors:
    """The known factors of how models count tokens. ``shared`` holds the factors for other workers and the next start;
    None: they are not shared."""

    def __init__(self, shared: SharedLayoutStore | None = None, now: Callable[[], float] = float) -> None:
        self._shared = shared
        self._now = now
        self._factors: LastUsed[tuple[str, str], TokenFactor] = LastUsed(_MOST_FACTORS)

    async def known(self, deployment: Deployment, scope: str, size: int = 0) -> TokenFactor:
        """The factor by which the proxy's count is multiplied. If a ``size`` is given, the store is read first.
        ``size`` is the request's size in bytes, which decides how long it waits."""
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
        """The factor of this scope and the factor of all scopes, by scope."""
        name = "f" + digest(f"{deployment.id or deployment.name}/{deployment.model}".encode()).hex()
        keys = [(scope, name), (_ALL, name)]
        for key in keys:
            self._factors.put(key, self._factors.get(key) or TokenFactor(name))
        return {key[0]: self._factors[key] for key in keys}
