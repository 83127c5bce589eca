"""Fixtures of the contracts: a check is run on each engine of the store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_calls import OnEach
from tests.contract.stores import ENGINES, Check, on_cluster
from tests.redis_server import RedisServer, redis_cluster, redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(params=[*ENGINES, pytest.param("redis-cluster", marks=pytest.mark.slow)])
def on_each(request: pytest.FixtureRequest, tmp_path: Path) -> OnEach:
    opener = ENGINES.get(request.param) or (lambda folder: on_cluster(request.getfixturevalue("cluster")))

    async def main(check: Check) -> None:
        async with opener(tmp_path) as store:
            await check(store)

    return lambda check: asyncio.run(main(check))
