"""Combines several followers of exchanges into one."""

from collections.abc import Sequence

from proxy.engine.exchange import Exchange
from proxy.engine.ports import Follower
from proxy.engine.suppress import suppress_and_log


class Followers:
    """Implements ``proxy.engine.ports.Follower``. If one follower fails, the others still do their work."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self._followers = tuple(followers)

    def lead(self, follower: Follower) -> None:
        """Add a follower that is told of each exchange before the others."""
        self._followers = (follower, *self._followers)

    def returned(self, session: str) -> None:
        for follower in self._followers:
            with suppress_and_log("follower.returned"):
                follower.returned(session)

    def ended(self, exchange: Exchange) -> None:
        for follower in self._followers:
            with suppress_and_log("follower.ended"):
                follower.ended(exchange)

    async def aclose(self) -> None:
        for follower in self._followers:
            with suppress_and_log("follower.aclose"):
                await follower.aclose()
