"""What limits cost: ``python -m tests.bench.budgets [--other FOLDER] [--rounds 12]``.

The CPU of a request of an appending chat of 50 kB, for a key without any limit and for a key with a hard budget that is
far from spent, on a store in memory and in SQLite. ``--other`` is another checkout with an environment of its own: its
proxy is measured in turn with this one's, and the ratio is that of the medians of pairs.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import orjson

from tests.bench import bodies, load
from tests.bench.bodies import Session
from tests.bench.provider import MODEL
from tests.bench.servers import ROOT, Server, running
from tests.services import free_port

_SIZE, _REQUESTS, _SESSIONS = 50_000, 10, 3
_PRICE = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}


def config(upstream: str, store: str, usd: float | None) -> str:
    """A team with one key, and a budget where one is given."""
    team: dict[str, object] = {"name": "bench", "keys": ["sk-bench"]}
    if usd is not None:
        team["budget"] = {"usd": usd}
    model = {
        "model_name": MODEL,
        "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{upstream}/v1", "api_key": "sk-upstream"},
        "model_info": {"transport": "http", "cache_profile": "anthropic"},
    }
    ours = {"store": store, "teams": [team], "prices": {MODEL: _PRICE}}
    return orjson.dumps({"model_list": [model], "stratiform": ours}).decode()


async def cpu_ms(client: aiohttp.ClientSession, server: Server, sessions: Sequence[Session]) -> float:
    """CPU of a request, once the sessions have begun."""
    await load.run(client, server.url, [one.bodies[: one.warm] for one in sessions], False, 1)
    before = server.cpu_s()
    timings = await load.run(client, server.url, [one.bodies[one.warm :] for one in sessions], False, 1)
    return (server.cpu_s() - before) * 1000 / sum(map(len, timings))


async def measured(servers: dict[str, Server], rounds: int) -> dict[str, list[float]]:
    """The figures of each server, one a round."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    async with aiohttp.ClientSession() as client:
        for turn in range(rounds):
            sessions = [bodies.agent(turn * 100 + n, _SIZE, _REQUESTS, False) for n in range(_SESSIONS)]
            names = list(servers)
            for name in names if turn % 2 else reversed(names):
                found[name].append(await cpu_ms(client, servers[name], sessions))
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    checkouts = {"here": ROOT, **({"other": args.other.resolve()} if args.other else {})}
    print(f"{'store':8}{'limit':14}" + "".join(f"{name + ' ms':>10}" for name in checkouts) + f"{'ratio':>8}")
    for store in ("memory", "sqlite"):
        for limit, usd in (("none", None), ("hard budget", 1e6)):
            with contextlib.ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                port = free_port()
                command = [sys.executable, "-m", "tests.bench.provider", "--port", str(port)]
                provider = stack.enter_context(running("provider", command, port, folder))
                servers: dict[str, Server] = {}
                for name, root in checkouts.items():
                    file = folder / f"{name}.yaml"
                    path = "memory" if store == "memory" else f"sqlite:///{folder / name}.db"
                    file.write_text(config(provider.url, path, usd))
                    port = free_port()
                    command = [str(root / ".venv/bin/stratiform"), "serve", "--config", str(file), "--port", str(port)]
                    servers[name] = stack.enter_context(running(name, command, port, folder))
                found = asyncio.run(measured(servers, args.rounds))
            pairs = list(zip(*found.values(), strict=True))
            ratio = f"{statistics.median(a / b for a, b in pairs):8.3f}" if args.other else ""
            print(f"{store:8}{limit:14}" + "".join(f"{statistics.median(one):10.2f}" for one in found.values()) + ratio)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
