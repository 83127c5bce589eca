"""What a request costs beside a bare forwarder, and beside the version of the committed table:
``python -m tests.bench.ratios [--write]``.

Short blocks of requests go to all servers in turn, many times over: the median of their ratios hardly depends on how
fast the machine happens to be. How a ratio to the forwarder changes with the processor is not known, so that table is
for people; what fails a test is the ratio to the proxy's own former version, which runs beside the new one.
"""

import argparse
import http.client
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from tests.bench import bodies, servers
from tests.bench.bodies import Session
from tests.bench.load import HEADERS
from tests.bench.servers import Server

TABLE = Path(__file__).with_name("ratios.json")
MOST_GROWTH = 1.10
"""A case that costs this multiple of what it cost in the version of the table is worse."""
_MODES = ("passthrough", "tier")
_CASES: Sequence[tuple[str, Callable[[int, int, int, bool], Session], int, int]] = (
    ("appending", bodies.agent, 1_000, 20),
    ("appending", bodies.agent, 50_000, 20),
    ("appending", bodies.agent, 400_000, 8),
    ("edited files", bodies.files, 50_000, 20),
    ("edited files", bodies.files, 400_000, 8),
)
"""The kind of a session, what makes it, the bytes of a request, and the requests of a block."""
_WARM_BLOCKS = 3


def machine() -> str:
    """The processor and the version of Python of the table."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.findall(r"^(?:model name|cpu family|model)\s*: (.+)$", text.partition("\n\n")[0], re.MULTILINE)
    return f"{'/'.join(found) or platform.machine()}, Python {platform.python_version()}"


def measured(seconds: float) -> dict[str, float]:
    """Measure now, for so many seconds in each case: the multiples of the bare forwarder's CPU, by case and mode."""
    with servers.proxies(_MODES) as (_, targets):
        return {
            f"{case}, {mode}": statistics.median(one[mode] / one["bare"] for one in rounds)
            for case, rounds in _cases(targets, seconds)
            for mode in _MODES
        }


def growth(revision: str, seconds: float) -> dict[str, float]:
    """Measure now, for so many seconds in each case: the CPU in mode ``tier`` as a multiple of that revision's."""
    with servers.versions(revision) as (_, targets):
        return {
            case: statistics.median(one["now"] / one["then"] for one in rounds)
            for case, rounds in _cases({name: targets[name] for name in ("then", "now")}, seconds)
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


def committed() -> tuple[str, dict[str, float]]:
    """The revision that the committed table was measured at, and its multiples of the forwarder."""
    table = orjson.loads(TABLE.read_bytes())
    return table["revision"], table["ratios"]


def write(found: Mapping[str, float]) -> None:
    """Replace the committed table: from now on a test compares with the commit that is checked out."""
    ratios = {key: round(ratio, 2) for key, ratio in found.items()}
    table = {"revision": servers.revision("HEAD"), "machine": machine(), "ratios": ratios}
    TABLE.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def worse(found: Mapping[str, float]) -> list[str]:
    """The cases that have grown by more than a tenth."""
    return sorted(key for key, grown in found.items() if grown > MOST_GROWTH)


def _show(found: Mapping[str, float], before: Mapping[str, float]) -> None:
    table = Table(title="CPU for each request, as a multiple of a bare forwarder's")
    for name in ("sessions", "committed", "now"):
        table.add_column(name, justify="left" if name == "sessions" else "right")
    for key, ratio in found.items():
        was = f"{before[key]:.2f}" if key in before else ""
        table.add_row(key, was, f"{ratio:.2f}")
    Console().print(table)


def main() -> int:
    """Measure, and show the figures beside those of the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ratios", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what was measured into the table; commit first")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to measure each case (30)")
    arguments = parser.parse_args()
    found = measured(arguments.seconds)
    _show(found, committed()[1] if TABLE.exists() else {})
    if arguments.write:
        write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
