"""What ``deploy/README.md`` promises of a cluster, with processes in the place of pods."""

import asyncio
import threading
import time
from pathlib import Path

import aiohttp
import orjson
import pytest
from starlette.types import Receive, Send

from tests.doubles import serving
from tests.e2e.cluster import Cluster, cluster, piece
from tests.e2e.fleet import KEY, MODEL, Crowd, Provider, configuration, until
from tests.e2e.provider import DONE, chunk, usage_chunk
from tests.e2e.test_ledger import read
from tests.receiver import Received, Receiver, head, part
from tests.redis_server import redis_server

pytestmark = pytest.mark.slow
WAIT_S = 60.0


def is_whole(made: Cluster) -> bool:
    return len(made.service.ready) == len(made.service.pods) >= piece("Deployment")["spec"]["replicas"]


def test_a_pod_that_is_killed_under_load_costs_its_own_requests_alone(tmp_path: Path) -> None:
    provider = Provider(delay_s=0.02)
    clients, calls = 30, 12
    with redis_server(tmp_path / "redis") as redis, serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": 1000}])
        with cluster(tmp_path / "pods", config) as made:
            until(lambda: is_whole(made))
            crowd, doomed, held = Crowd(), made.service.pods[0], list[int]()

            def kill() -> None:
                until(lambda: provider.served > clients * calls // 4)
                held.append(made.service.connections[doomed.url])
                made.kill(doomed)

            killer = threading.Thread(target=kill)
            killer.start()
            asyncio.run(crowd.send(made.service.url, clients, calls))
            killer.join()
            alone = Crowd()
            asyncio.run(alone.send(made.service.url, 1, 6))
        # What the dead pod had reserved is booked by the others once its leases have run out.
        entries, spent, reserved = read(redis.url, at=time.time() + 600)
    assert held[0] > 0, "the pod that was killed had work"
    assert crowd.statuses.keys() == {200}
    # Connections that a client had open to the pod break once; nobody else notices.
    assert crowd.broken <= held[0]
    assert len(crowd.complete) + crowd.broken == clients * calls
    assert (len(alone.complete), alone.broken) == (6, 0)
    booked = {entry.exchange_id for entry in entries}
    assert booked >= {*crowd.complete, *alone.complete}, "nothing is lost"
    assert len(booked) == len(entries), "nothing is booked twice"
    assert spent == sum(entry.cost for entry in entries) >= provider.nanos
    assert reserved == 0


class Held(Receiver):
    """Streams a word, and the rest when it is told to; answers at once where no stream is asked for."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = threading.Event()

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        await send(head(200, [("content-type", "text/event-stream")]))
        await send(part(chunk("one")))
        self.begun += 1
        if orjson.loads(request.body).get("max_tokens") == 77:
            await asyncio.to_thread(self.go.wait, WAIT_S)
        await send(part(chunk("two") + usage_chunk() + DONE, more=False))


async def stream(url: str, output: int) -> bytes:
    body = {"model": MODEL, "stream": True, "max_tokens": output, "messages": [{"role": "user", "content": "hi"}]}
    timeout = aiohttp.ClientTimeout(total=WAIT_S * 2)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers={"authorization": f"Bearer {KEY}"}) as session,
        session.post(f"{url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200
        return await answer.read()


def test_an_update_of_all_pods_breaks_no_stream_and_refuses_nobody(tmp_path: Path) -> None:
    held, streams = Held(), 12
    with redis_server(tmp_path / "redis") as redis, serving(held) as upstream:
        config = configuration(upstream, redis.url)
        with cluster(tmp_path / "pods", config) as made:
            until(lambda: is_whole(made))

            async def main() -> tuple[list[bytes], int]:
                open_streams = [asyncio.create_task(stream(made.service.url, 77)) for _ in range(streams)]
                await asyncio.to_thread(until, lambda: held.begun >= streams)
                assert sorted(made.service.connections.values()) == [4, 4, 4], "each pod has some of the streams"
                update = asyncio.create_task(asyncio.to_thread(renew, made))
                meanwhile = 0
                while not update.done():
                    assert b"two" in await stream(made.service.url, 1)
                    meanwhile += 1
                await update
                held.go.set()
                return await asyncio.gather(*open_streams), meanwhile

            received, meanwhile = asyncio.run(main())
    assert all(text.count(b"two") == 1 and text.endswith(b"data: [DONE]\n\n") for text in received)
    assert meanwhile > 5


def renew(made: Cluster) -> None:
    """A new pod in the place of each old one: at no time are fewer ready than the deployment has."""
    for old in list(made.service.pods):
        new = made.add()
        until(lambda new=new: new in made.service.ready)
        made.end(old)
