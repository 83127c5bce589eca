"""What the callback costs inside LiteLLM: ``python -m tests.bench.inside [--rounds N]``.

A real LiteLLM proxy in an environment of its own (``tests.gateway``), in front of the bench's provider. The same
sessions go, round by round, to a deployment that the callback lays out and to one for which it is switched off
(``model_info.stratiform: false``). Printed are medians of the rounds, of which each is about a second long: processor
time a request from outside the process, and requests a second with four clients side by side. What is added and the
share of requests a second are told of the two halves of one round, because a shared machine changes its speed.
"""

import argparse
import concurrent.futures
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import bodies
from tests.bench.bodies import Session
from tests.bench.servers import cpu_of, running
from tests.gateway import KEY, Gateway, gateway, gateway_place
from tests.services import free_port

_SIZE = 50_000
_REQUESTS = 12
_AT_ONCE = 4
_KINDS: dict[str, Callable[[int, int, int, bool], Session]] = {"appending": bodies.agent, "re-laid": bodies.files}


def _send(server: Gateway, model: str, session: Session) -> None:
    """All requests of a session, one after the other."""
    host = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=120)
    head = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    for body in session.bodies:
        named = json.dumps({**json.loads(body), "model": model})
        connection.request("POST", "/v1/chat/completions", named, head)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
    connection.close()


def _measured(server: Gateway, model: str, kind: str, seed: int) -> tuple[float, float]:
    """Processor time a request in ms, and requests a second."""
    sessions = [_KINDS[kind](seed * _AT_ONCE + n, _SIZE, _REQUESTS, False) for n in range(_AT_ONCE)]
    before, began = cpu_of(server.pid), time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda session: _send(server, model, session), sessions))
    took, cpu_s = time.perf_counter() - began, cpu_of(server.pid) - before
    count = sum(len(session.bodies) for session in sessions)
    return cpu_s / count * 1000, count / took


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.inside", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    port, command = free_port(), [sys.executable, "-m", "tests.bench.provider", "--port"]
    with (
        tempfile.TemporaryDirectory() as folder,
        running("provider", [*command, str(port)], port, Path(folder)) as provider,
    ):
        entry = {"model": "openai/claude", "api_base": f"{provider.url}/v1", "api_key": "sk-upstream"}
        models = [
            {
                "model_name": name,
                "litellm_params": entry,
                "model_info": {"id": name, "cache_profile": "anthropic", **info},
            }
            for name, info in (("with", {}), ("without", {"stratiform": False}))
        ]
        config = {"model_list": models, "stratiform": {"store": "memory"}}
        with gateway(gateway_place(Path(folder)), config) as server:
            for kind in _KINDS:
                found: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
                for turn in range(rounds + 1):
                    for name in sorted(found, reverse=bool(turn % 2)):
                        sample = _measured(server, name, kind, turn)
                        found[name] += [sample] if turn else []  # the first round warms up
                cpu = {name: statistics.median(one for one, _ in samples) for name, samples in found.items()}
                rate = {name: statistics.median(one for _, one in samples) for name, samples in found.items()}
                pairs = list(zip(found["with"], found["without"], strict=True))
                added = statistics.median(ours[0] - bare[0] for ours, bare in pairs)
                share = statistics.median(ours[1] / bare[1] for ours, bare in pairs)
                print(
                    f"{kind}: {cpu['without']:.1f} ms of CPU a request without, {cpu['with']:.1f} with; added "
                    f"{added:.2f} ms; {rate['without']:.1f} requests/s without, {rate['with']:.1f} with: "
                    f"{share:.0%}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
