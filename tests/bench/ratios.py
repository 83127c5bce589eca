"""What a request costs beside a bare forwarder, and the committed table: ``python -m tests.bench.ratios [--write]``.

The medians of interleaved rounds hardly depend on how fast a machine happens to be. They do depend on its processor,
which the table names, and rise by a tenth beside other work: the table is made, and compared, on a quiet machine.
"""

import argparse
import asyncio
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from tests.bench import report, servers
from tests.bench.measure import Case, cases, measure

TABLE = Path(__file__).with_name("ratios.json")
MOST_GROWTH = 1.10
"""A ratio that exceeds the committed one by this factor is worse."""
_MODES = ("passthrough", "tier")
_ROUNDS = 15


def compared_cases() -> list[Case]:
    """The cases of the benchmark that every machine has: appending chats, alone and many at once, and edited files."""
    return cases(quick=False, traces=None)


def machine() -> str:
    """The processor and the version of Python: what ratios hold for."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.findall(r"^(?:model name|cpu family|model)\s*: (.+)$", text.partition("\n\n")[0], re.MULTILINE)
    return f"{'/'.join(found) or platform.machine()}, Python {platform.python_version()}"


def measured(budget_s: float) -> dict[str, float]:
    """Measure now, in about ``budget_s`` seconds: the multiples of the bare forwarder's CPU, by case and mode."""
    with servers.proxies(_MODES) as (provider, targets):
        found = asyncio.run(
            measure(compared_cases(), provider, targets, _ROUNDS, budget_s, lambda turn, rounds, case: None)
        )
    return {
        f"{row.workload} {row.size // 1000} kB {row.answer}, {row.at_once} at once, {mode}": row.targets[mode].ratio
        for row in report.rows(found)
        for mode in _MODES
    }


def committed() -> tuple[str, dict[str, float]]:
    """The machine of the committed table, and its ratios."""
    table = orjson.loads(TABLE.read_bytes())
    return table["machine"], table["ratios"]


def write(found: Mapping[str, float]) -> None:
    """Replace the committed table."""
    table = {"machine": machine(), "ratios": {key: round(ratio, 2) for key, ratio in found.items()}}
    TABLE.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def worse(found: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """The cases whose ratio has grown by more than a tenth, and those that only one of the two has."""
    grown = [key for key, ratio in before.items() if key not in found or found[key] > ratio * MOST_GROWTH]
    return [*grown, *(key for key in found if key not in before)]


def _show(found: Mapping[str, float], before: Mapping[str, float], bad: Sequence[str]) -> None:
    table = Table(title="CPU for each request, as a multiple of a bare forwarder's")
    for name in ("sessions", "committed", "now"):
        table.add_column(name, justify="left" if name == "sessions" else "right")
    for key, ratio in found.items():
        was = f"{before[key]:.2f}" if key in before else ""
        table.add_row(key, was, f"{ratio:.2f}", style="red" if key in bad else None)
    Console().print(table)


def main() -> int:
    """Measure and compare. The status is 1 where a ratio has become worse."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ratios", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what was measured into the table")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to measure (120)")
    arguments = parser.parse_args()
    before = committed()[1] if TABLE.exists() else {}
    found = measured(arguments.seconds)
    bad = worse(found, before)
    _show(found, before, bad)
    if arguments.write:
        write(found)
    return 1 if bad and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
