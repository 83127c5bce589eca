"""Several followers of exchanges as one."""

from collections.abc import Sequence

from proxy.engine.exchange import Exchange
from proxy.engine.ports import Follower
from proxy.engine.suppress import suppress_and_log


class Followers:
    """Implements ``proxy.engine.ports.Follower``. A failure of one does not keep another from its work."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self._followers = tuple(followers)

    def lead(self, follower: Follower) -> None:
        """Add one that hears of each exchange before the others do."""
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
