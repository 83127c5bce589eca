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
from tests.e2e.fleet import KEY, MODEL, Crowd, Provider, configuration
from tests.e2e.provider import DONE, chunk, usage_chunk
from tests.e2e.test_ledger import read
from tests.receiver import Received, head, part
from tests.redis_server import redis_server
from tests.waiting import until

pytestmark = pytest.mark.slow
WAIT_S = 180.0
HELD_TOKENS = 77


def is_whole(made: Cluster) -> bool:
    return len(made.service.ready) == len(made.service.pods) >= piece("Deployment")["spec"]["replicas"]


class Held(Provider):
    """The provider that keeps its own bill; a stream of so many tokens waits behind its first word until it may go."""

    def __init__(self) -> None:
        super().__init__(delay_s=0.02)
        self.begun = 0
        self.go = threading.Event()

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        if orjson.loads(request.body)["max_tokens"] != HELD_TOKENS:
            await super().answer(request, send, receive)
            return
        await send(head(200, [("content-type", "text/event-stream")]))
        await send(part(chunk("one")))
        self.begun += 1
        await asyncio.to_thread(self.go.wait, WAIT_S)
        await send(part(chunk("two") + usage_chunk() + DONE, more=False))


async def stream(url: str, output: int = HELD_TOKENS) -> bytes:
    body = {"model": MODEL, "stream": True, "max_tokens": output, "messages": [{"role": "user", "content": "hi"}]}
    timeout = aiohttp.ClientTimeout(total=WAIT_S * 2)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers={"authorization": f"Bearer {KEY}"}) as session,
        session.post(f"{url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200
        return await answer.read()


def test_an_update_breaks_no_stream_and_a_pod_that_is_killed_costs_its_own_requests_alone(tmp_path: Path) -> None:
    held = Held()
    with redis_server(tmp_path / "redis") as redis, serving(held) as upstream:
        # However long new pods take to start on a busy machine, the old ones wait for their streams.
        config = configuration(upstream, redis.url, budgets=[{"usd": 1000}], limits={"drain_s": WAIT_S})
        with cluster(tmp_path / "pods", config) as made:
            until(lambda: is_whole(made))
            asyncio.run(update(made, held))
            clients = kill(made, held)
        # What the dead pod had reserved is booked by the others once its leases have run out.
        entries, spent, reserved = read(redis.url, at=time.time() + 600)
    booked = {entry.exchange_id for entry in entries}
    assert booked >= set(clients), "nothing is lost"
    assert len(booked) == len(entries), "nothing is booked twice"
    assert spent == sum(entry.cost for entry in entries) >= held.nanos
    assert reserved == 0


async def update(made: Cluster, held: Held) -> None:
    """Each pod has streams under way while all pods are replaced: none breaks, and nobody is refused."""
    streams, meanwhile = 12, 0
    open_streams = [asyncio.create_task(stream(made.service.url)) for _ in range(streams)]
    await asyncio.to_thread(until, lambda: held.begun >= streams)
    assert sorted(made.service.connections.values()) == [4, 4, 4], "each pod has some of the streams"
    renewing = asyncio.create_task(asyncio.to_thread(renew, made))
    while not renewing.done():
        assert b"Yes." in await stream(made.service.url, 1)
        meanwhile += 1
    await renewing
    held.go.set()
    received = await asyncio.gather(*open_streams)
    assert all(text.count(b"two") == 1 and text.endswith(b"data: [DONE]\n\n") for text in received)
    assert meanwhile > 5


def kill(made: Cluster, provider: Provider) -> list[str]:
    """A pod dies under load; the exchanges whose answer was complete."""
    clients, calls, served = 30, 12, provider.served
    crowd, doomed, lost = Crowd(), made.service.pods[0], list[int]()
    before = made.service.opened[doomed.url]

    def strike() -> None:
        until(lambda: provider.served - served > clients * calls // 4)
        lost.append(made.service.connections[doomed.url])
        made.kill(doomed)

    killer = threading.Thread(target=strike)
    killer.start()
    asyncio.run(crowd.send(made.service.url, clients, calls))
    killer.join()
    alone = Crowd()
    asyncio.run(alone.send(made.service.url, 1, 6))
    assert lost[0] > 0, "the pod that was killed had work"
    assert crowd.statuses.keys() == {200}
    # A connection to the pod breaks once, if at all; nobody else notices.
    assert crowd.broken <= made.service.opened[doomed.url] - before
    assert len(crowd.complete) + crowd.broken == clients * calls
    assert (len(alone.complete), alone.broken) == (6, 0)
    return [*crowd.complete, *alone.complete]


def renew(made: Cluster) -> None:
    """A new pod in the place of each old one: at no time are fewer ready than the deployment has."""
    for old in list(made.service.pods):
        new = made.add()
        until(lambda new=new: new in made.service.ready)
        made.end(old)
