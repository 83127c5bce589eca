"""Where a drill takes place: a folder, the recording provider, a Redis, and proxies in front of them."""

import contextlib
import functools
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.drill.clients import key_of
from tests.drill.upstream import Upstream, upstream
from tests.e2e.fleet import Fleet, configuration, fleet, metric
from tests.redis_server import RedisServer, redis_server

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Size:
    """How large a drill is."""

    workers: int
    clients: int
    kills: int
    restarts: int
    sessions: int
    outage_s: float
    patience_s: float

    def share(self, percent: int) -> int:
        """So many of the clients, at least one."""
        return max(1, self.clients * percent // 100)


FULL = Size(workers=4, clients=100, kills=10, restarts=5, sessions=30, outage_s=5.0, patience_s=30.0)
SHORT = Size(workers=2, clients=16, kills=3, restarts=1, sessions=8, outage_s=1.0, patience_s=30.0)


class Impossible(Exception):
    """The drill cannot take place on this machine; the text says why."""


class World:
    """What a drill has at hand. Everything in it ends with the drill."""

    def __init__(self, folder: Path, size: Size, stack: ExitStack) -> None:
        self.folder = folder
        self.size = size
        self.stack = stack
        self._count = 0

    @functools.cached_property
    def upstream(self) -> Upstream:
        """The recording provider, from the first use on."""
        return self.stack.enter_context(upstream(self.folder / "upstream"))

    def redis(self, *options: str) -> RedisServer:
        """A Redis with the settings that the documentation recommends."""
        self._count += 1
        folder = self.folder / f"redis-{self._count}"
        return self.stack.enter_context(redis_server(folder, "--appendfsync", "everysec", *options))

    def config(
        self,
        store: str,
        teams: Mapping[str, float | None],
        policy: Literal["allow", "deny"] = "allow",
        window: str = "total",
        **ours: object,
    ) -> dict[str, Any]:
        """A configuration: teams with the limit of their budget in USD, or None where there is no budget; what happens
        while the store is away; and what else the ``stratiform`` section has."""
        made: dict[str, Any] = configuration(self.upstream.url, store, **ours)
        made["stratiform"]["budgets"] = {"on_store_error": policy}
        made["router_settings"] = {"num_retries": 0, "disable_cooldowns": True}
        made["stratiform"]["teams"] = [
            {
                "name": name,
                "keys": [key_of(name)],
                **({"budgets": [{"usd": usd, "window": window}]} if usd is not None else {}),
            }
            for name, usd in teams.items()
        ]
        return made

    def proxy(self, config: dict[str, Any], workers: int = 1, *, name: str = "proxy") -> AbstractContextManager[Fleet]:
        """Serve it. One that is started under the same name finds the state of the one before."""
        return fleet(self.folder / name, config, workers)


@contextlib.contextmanager
def world(folder: Path, size: Size) -> Iterator[World]:
    """A world, until the block ends."""
    with ExitStack() as stack:
        yield World(folder, size, stack)


def gauge(url: str, name: str) -> float | None:
    """A metric of the proxy; None where it does not answer."""
    try:
        return metric(url, name)
    except (urllib.error.URLError, OSError):
        return None


def wait_for(found: Callable[[], object], patience_s: float) -> bool:
    """Wait for something; whether it happened within this time."""
    deadline = time.monotonic() + patience_s
    while not found():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
