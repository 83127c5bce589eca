"""What a request costs beside the version of the committed revision, or any other one:
``python -m tests.bench.ratios [REVISION]``.

Short blocks of requests go to both versions in turn, many times over: the median of their ratios hardly depends on how
fast the machine happens to be.
"""

import argparse
import http.client
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from tests.bench import bodies, servers
from tests.bench.bodies import Session
from tests.bench.load import HEADERS
from tests.bench.servers import Server

TABLE = Path(__file__).with_name("ratios.json")
MOST_GROWTH = 1.10
"""A case that costs this multiple of what it cost in the committed revision is worse."""
_CASES: Sequence[tuple[str, Callable[[int, int, int, bool], Session], int, int]] = (
    ("appending", bodies.agent, 1_000, 20),
    ("appending", bodies.agent, 50_000, 20),
    ("appending", bodies.agent, 400_000, 8),
    ("edited files", bodies.files, 50_000, 20),
    ("edited files", bodies.files, 400_000, 8),
)
"""The kind of a session, what makes it, the bytes of a request, and the requests of a block."""
_WARM_BLOCKS = 3


def growth(revision: str, seconds: float) -> dict[str, float]:
    """Measure now, for so many seconds in each case: the CPU in mode ``tier`` as a multiple of that revision's."""
    with servers.versions(revision) as (_, targets):
        return {
            case: statistics.median(one["now"] / one["then"] for one in rounds)
            for case, rounds in _cases(targets, seconds)
        }


def _cases(targets: Mapping[str, Server], seconds: float) -> Iterator[tuple[str, list[dict[str, float]]]]:
    for number, (name, make, size, count) in enumerate(_CASES):
        rounds = _rounds(targets, lambda seed: make(seed, size, count, False), number << 20, seconds)  # noqa: B023
        yield f"{name}, {size // 1000} kB", rounds


def _rounds(
    targets: Mapping[str, Server], session: Callable[[int], Session], seed: int, seconds: float
) -> list[dict[str, float]]:
    """The CPU seconds of a block at each target, round after round. Each block is a session of its own."""
    clients = {name: http.client.HTTPConnection("127.0.0.1", target.port) for name, target in targets.items()}
    found: list[dict[str, float]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(found) <= _WARM_BLOCKS:
        order = list(targets) if len(found) % 2 else list(reversed(targets))
        found.append({})
        for name in order:
            seed += 1
            found[-1][name] = _block(clients[name], targets[name], session(seed))
    for client in clients.values():
        client.close()
    return found[_WARM_BLOCKS:]


def _block(client: http.client.HTTPConnection, target: Server, session: Session) -> float:
    before = 0.0
    for number, body in enumerate(session.bodies):
        if number == session.warm:
            before = target.cpu_s()
        client.request("POST", "/v1/chat/completions", body, HEADERS)
        answer = client.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{target.name} answered {answer.status}")
    return target.cpu_s() - before


def committed() -> str:
    """The revision with which a test compares."""
    revision: str = orjson.loads(TABLE.read_bytes())["revision"]
    return revision


def worse(found: Mapping[str, float]) -> list[str]:
    """The cases that have grown by more than a tenth."""
    return sorted(key for key, grown in found.items() if grown > MOST_GROWTH)


def main() -> int:
    """Measure, and show what each case costs as a multiple of that version's."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ratios", description=__doc__)
    parser.add_argument("revision", nargs="?", help="the version to compare with (the committed one)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to measure each case (30)")
    arguments = parser.parse_args()
    for case, grown in growth(arguments.revision or committed(), arguments.seconds).items():
        print(f"{case:24}{grown:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
