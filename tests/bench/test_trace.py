"""The way of an appending request does not grow: a function, a file or a call more has to be worth it."""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.bench import servers
from tests.bench.trace import traced

MOST = {
    (1_000, False): {"functions": 318, "files": 59, "calls": 514},
    (50_000, False): {"functions": 431, "files": 64, "calls": 791},
    (1_000, True): {"functions": 343, "files": 60, "calls": 1833},  # an answer of 202 events
}
"""The figures of ``make trace ARGS="SIZE [--stream]"``. Lower them with the code; versions of the libraries may
differ a little."""
_ROOM = 1.05


_SCRIPT = """
import asyncio, json
from tests.bench.trace import traced
print(json.dumps([asyncio.run(traced(size, stream=stream)).figures() for size, stream in WAYS]))
"""


@pytest.fixture(scope="module")
def figures() -> dict[tuple[int, bool], dict[str, int]]:
    """In a process of its own: what other tests have left behind in this one adds calls."""
    command = [sys.executable, "-c", _SCRIPT.replace("WAYS", repr([*MOST]))]
    ended = subprocess.run(command, cwd=servers.ROOT, capture_output=True, text=True, check=True, timeout=120)
    return dict(zip(MOST, json.loads(ended.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("way", MOST, ids=["short", "long", "stream"])
def test_an_appending_request_enters_no_more_functions_and_files_than_it_did(
    figures: dict[tuple[int, bool], dict[str, int]], way: tuple[int, bool]
) -> None:
    found, limits = figures[way], MOST[way]
    grown = {name: found[name] for name, most in limits.items() if not most / 2 < found[name] <= most * _ROOM}
    assert not grown


def test_the_trace_is_of_one_request_from_its_socket_to_its_settlement() -> None:
    trace = asyncio.run(traced(1_000))
    once = ("Engine.chat", "Conclusion.end", "HttpUpstream.open", "TierPlanner.on_completed")
    counts = {name.partition(" ")[2]: count for name, count in trace.functions().items()}
    assert {name: counts.get(name) for name in once} == dict.fromkeys(once, 1)
    assert trace.figures()["stays"] > len(trace.files()) > trace.figures()["returns"] / 10
