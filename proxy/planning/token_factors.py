"""The token factors of models at their upstreams, in memory and in the store that lasts.

Each principal's scope has a factor of its own for each model, so that no client's texts change what another one's
requests may hold. A scope that has not learnt one begins with the model's, which all scopes teach. What a refusal says
of the window's size is kept in memory, for a time: a server may be started again with another window.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.core.digest import digest
from proxy.core.lru import LastUsed
from proxy.core.response.context_refusal import NamedSizes
from proxy.core.window.fitted import Fitted
from proxy.core.window.token_factor import TokenFactor
from proxy.planning.layout_state import SharedLayoutStore
from proxy.ports import Deployment

_MOST_FACTORS = 4_096
_ALL = "models"
"""The scope of what all scopes have taught; the scopes of principals are digests."""
_SAVE_EVERY_S = 3_600.0
_LIMIT_S = 3_600.0
_LEAST_LIMIT = 256
_Key = tuple[str, str]


class TokenFactors:
    """What is known of how models count. ``shared`` is what other workers and the next start know; None: nothing."""

    def __init__(self, shared: SharedLayoutStore | None = None, now: Callable[[], float] = float) -> None:
        self._shared = shared
        self._now = now
        self._factors: LastUsed[_Key, TokenFactor] = LastUsed(_MOST_FACTORS)
        self._limits: LastUsed[_Key, tuple[int, float]] = LastUsed(_MOST_FACTORS)

    async def recall(self, deployment: Deployment, scope: str, size: int) -> None:
        """Learn what the store knows; ``size`` is the request's, in bytes, which decides how long it waits."""
        if self._shared is not None:
            now, lookups = self._now(), [_Lookup(self, key) for key in _keys(deployment, scope)]
            await asyncio.gather(*(self._shared.recall(one.key[0], one, now, size) for one in lookups))

    def known(self, deployment: Deployment, scope: str) -> TokenFactor:
        """The factor by which the proxy's count is multiplied."""
        known = (self._factors.find(key) for key in _keys(deployment, scope))
        return next((factor for factor in known if factor is not None and factor.version), TokenFactor())

    def limit(self, deployment: Deployment, scope: str) -> int | None:
        """The most tokens that the model takes, as its last refusal has named them; None: it has named none lately."""
        tokens, until = self._limits.find(_keys(deployment, scope)[0]) or (0, 0.0)
        return tokens if self._now() < until else None

    def settled(self, deployment: Deployment, scope: str, fitted: Fitted, reported_tokens: int) -> None:
        """The provider has counted a request that was ``fitted``."""
        counted, fills = fitted.counted_tokens, fitted.fills_half
        self._teach(deployment, scope, lambda factor: factor.learn(counted, reported_tokens, fills=fills))

    def refused(self, deployment: Deployment, scope: str, fitted: Fitted, named: NamedSizes) -> None:
        """The provider has refused a request that was ``fitted`` as too large."""
        if named.limit is not None and named.limit >= _LEAST_LIMIT:
            self._limits.put(_keys(deployment, scope)[0], (named.limit, self._now() + _LIMIT_S))
        self._teach(deployment, scope, lambda factor: factor.refused(fitted.counted_tokens, named.prompt))

    def taken(self, key: _Key, blob: bytes) -> None:
        """The store knows this."""
        factor = self._factors.find(key) or TokenFactor()
        factor.adopt(blob)
        self._factors.put(key, factor)

    def is_known(self, key: _Key) -> bool:
        """Whether this process knows it itself."""
        return self._factors.find(key) is not None

    def _teach(self, deployment: Deployment, scope: str, lesson: Callable[[TokenFactor], None]) -> None:
        for key in _keys(deployment, scope):
            factor, now = self._factors.find(key) or TokenFactor(), self._now()
            before = factor.version
            lesson(factor)
            if not factor.version:
                continue
            self._factors.put(key, factor)
            if self._shared is not None and (factor.version > before or now - factor.saved_at > _SAVE_EVERY_S):
                factor.saved_at = now
                self._shared.keep(key[0], {key[1]: factor.packed()}, now)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What the store is asked for: one factor."""

    factors: TokenFactors
    key: _Key

    def names(self) -> list[str]:
        return [self.key[1]]

    def is_known(self) -> bool:
        return self.factors.is_known(self.key)

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        for blob in blobs.values():
            self.factors.taken(self.key, blob)


def _keys(deployment: Deployment, scope: str) -> tuple[_Key, _Key]:
    name = "f" + digest(f"{deployment.id or deployment.name}/{deployment.model}".encode()).hex()
    return (scope, name), (_ALL, name)
