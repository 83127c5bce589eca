"""How fast ``stratiform doctor`` reads: ``python -m tests.bench.doctor [MEGABYTES ...]``, 12 and 1000 if none is named.

A log of each size is made of the recorded sessions, each with a name and a time of its own wherever it is repeated.
Without recorded sessions it is made of a conversation whose instructions hold a clock.
"""

import itertools
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from tests.bench.__main__ import traces_folder
from tests.doctor_logs import START, recording, talk
from tests.services import STRATIFORM

_SIZES_MB = (12, 1000)
_ROUND_S = 10_000.0
_DAY_S = 86_400.0


def main() -> int:
    """Measure each size and print a line."""
    sizes = [int(word) for word in sys.argv[1:]] or _SIZES_MB
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}")
    for size_mb in sizes:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log.jsonl"
            _write(log, size_mb * 1_000_000)
            print(_measured(log))
    return 0


def _write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for number in itertools.count():
            for row in _rows():
                moved = {"t": START + row["t"] % _DAY_S + number * _ROUND_S, "session": f"{row['session']}-{number}"}
                file.write(orjson.dumps({**row, **moved}) + b"\n")
                if file.tell() >= size:
                    return


def _rows() -> Iterator[dict[str, Any]]:
    folder = traces_folder()
    if folder is None:
        yield from map(orjson.loads, recording(talk(40)).splitlines())
        return
    for path in sorted([*folder.glob("*.jsonl.xz"), *folder.with_name("traces-inbound").glob("*.jsonl.xz")]):
        with lzma.open(path) as file:
            yield from map(orjson.loads, file)


def _measured(log: Path) -> str:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [*STRATIFORM, "doctor", str(log), "--json"]
    calls = orjson.loads(subprocess.run(command, capture_output=True, check=True).stdout)["calls"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = f"{time.monotonic() - began:.1f} s, {cpu_s:.1f} s of processor time, {after.ru_maxrss / 1024:.0f} MB"
    return f"{log.stat().st_size / 1e6:,.0f} MB, {calls:,} calls: {figures}"


if __name__ == "__main__":
    sys.exit(main())
