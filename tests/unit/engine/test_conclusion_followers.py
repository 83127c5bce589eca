"""Several followers are told everything, whatever becomes of one of them."""

import asyncio

from proxy.engine.conclusion import Followers
from proxy.engine.exchange import Arrival, Exchange


class Follower:
    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[object] = []
        self._fails = fails

    def _hear(self, what: object) -> None:
        self.heard.append(what)
        if self._fails:
            raise RuntimeError("away")

    def returned(self, session: str) -> None:
        self._hear(session)

    def ended(self, exchange: Exchange) -> None:
        self._hear(exchange)

    async def aclose(self) -> None:
        self._hear("closed")


def test_all_hear_everything_although_one_fails() -> None:
    first, second = Follower(fails=True), Follower()
    both, exchange = Followers([first, second]), Exchange(Arrival("POST", "/chat/completions", 0.0))
    both.returned("s1")
    both.ended(exchange)
    asyncio.run(both.aclose())
    assert first.heard == second.heard == ["s1", exchange, "closed"]


def test_without_followers_nothing_happens() -> None:
    nobody = Followers([])
    nobody.returned("s1")
    asyncio.run(nobody.aclose())
