"""From samples to figures, in tables: medians over rounds, and paired differences."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from tests.bench.load import Timing
from tests.bench.measure import DIRECT, Result
from tests.bench.planning import Times
from tests.bench.stalls import Stalls, quantile

BARE = "bare"


@dataclass(frozen=True, slots=True)
class Figures:
    """One target in one case. CPU per request and its ratio to the bare forwarder: medians over rounds. Added latency
    (to the last byte of a JSON answer, to the first of a stream): over all requests, each against the same one sent
    directly. ``cold_ms``: the same for a session's first request. ``reasons``: shares of the proxy's plans."""

    cpu_ms: float
    ratio: float
    added_p50_ms: float
    added_p99_ms: float
    cold_ms: float
    reasons: dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One case."""

    workload: str
    size: int
    body_bytes: int
    answer: str
    at_once: int
    rounds: int
    requests: int
    targets: dict[str, Figures]
    grown: float | None = None
    """The CPU of this version as a multiple of another's; None where only one was measured."""


def rows(results: Sequence[Result]) -> list[Row]:
    """The figures of every case."""
    return [_row(result) for result in results]


def _row(result: Result) -> Row:
    direct = result.samples[DIRECT]
    bare = [sample.cpu_ms for sample in result.samples[BARE]]
    stream = result.case.stream

    def waited(timing: Timing) -> float:
        return (timing.first_s if stream else timing.total_s) * 1000

    def figures(name: str) -> Figures:
        samples = result.samples[name]
        cpu = [sample.cpu_ms for sample in samples]
        ratio = statistics.median(own / yard for own, yard in zip(cpu, bare, strict=True))
        added = sorted(
            waited(via) - waited(straight)
            for sample, base in zip(samples, direct, strict=True)
            for via, straight in zip(sample.timings, base.timings, strict=True)
        )
        cold = [
            waited(via) - waited(straight)
            for sample, base in zip(samples, direct, strict=True)
            for via, straight in zip(sample.firsts, base.firsts, strict=True)
        ]
        plans = sum((sample.reasons for sample in samples), Counter[str]())
        return Figures(
            cpu_ms=statistics.median(cpu),
            ratio=ratio,
            added_p50_ms=statistics.median(added),
            added_p99_ms=added[min(len(added) - 1, len(added) * 99 // 100)],
            cold_ms=statistics.median(cold),
            reasons={reason: count / plans.total() for reason, count in plans.most_common()},
        )

    return Row(
        workload=result.case.workload,
        size=result.case.size,
        body_bytes=result.body_bytes,
        answer="SSE" if stream else "JSON",
        at_once=result.case.at_once,
        rounds=len(direct),
        requests=sum(len(sample.timings) for sample in direct),
        targets={name: figures(name) for name in result.samples if name != DIRECT},
        grown=_grown(result),
    )


def _grown(result: Result) -> float | None:
    """The median of the ratios of rounds: in each of them both versions served the same sessions."""
    pairs = zip(result.samples.get("now", ()), result.samples.get("then", ()), strict=True)
    return statistics.median([now.cpu_ms / then.cpu_ms for now, then in pairs] or [0.0]) or None


def as_json(found: Sequence[Row], start_s: dict[str, float], rss_mb: dict[str, float]) -> dict[str, object]:
    """Everything, for a file or a script."""
    return {
        "start_s": start_s,
        "rss_mb": rss_mb,
        "rows": [asdict(row) for row in found],
    }


def show(console: Console, found: Sequence[Row], start_s: dict[str, float], rss_mb: dict[str, float]) -> None:
    """The tables."""
    names = list(found[0].targets)
    console.print(_cpu(found, names))
    console.print(_latency([row for row in found if row.workload != "load"], names))
    console.print(_throughput([row for row in found if row.workload == "load"], names))
    started = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in start_s.items())
    memory = ", ".join(f"{name} {size:.0f} MB" for name, size in rss_mb.items())
    console.print(f"start to first answer: {started}\nresident memory at the end: {memory}")


def show_versions(console: Console, found: Sequence[Row]) -> None:
    """What this version costs beside the other one."""
    table = Table(title="CPU for each request: this version as a multiple of the other one")
    for name in ("sessions", "bytes", "answer", "at once", "then", "now", "ratio"):
        table.add_column(name, justify="left" if name == "sessions" else "right")
    for row in found:
        times = (f"{row.targets[name].cpu_ms:.2f} ms" for name in ("then", "now"))
        table.add_row(row.workload, f"{row.body_bytes:,}", row.answer, str(row.at_once), *times, f"{row.grown:.2f}")
    console.print(table)


def show_planning(console: Console, found: Mapping[str, Times]) -> None:
    """Planning alone, apart from parsing and counting."""
    table = Table(
        title="a request of 100,000 tokens, ms of CPU: p50 / p99", caption="goals: append 3 / 8, re-laid - / 20"
    )
    for name in ("the request", "parsing", "counting", "planning", "requests"):
        table.add_column(name, justify="left" if name == "the request" else "right")
    for name, times in found.items():
        half, most = times.at(0.5), times.at(0.99)
        cells = (f"{low:.2f} / {high:.2f}" for low, high in zip(half, most, strict=True))
        table.add_row(name, *cells, str(len(times.plan_ms)))
    console.print(table)


def show_stalls(console: Console, found: Stalls) -> None:
    """How long one request holds up the others."""
    worst = found.worst()
    table = Table(title="hard bodies, and what others wait meanwhile", caption="goals: 500 ms, 100 ms, 50 ms")
    for name in ("figure", "value", "of"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    rows = (
        ("CPU of the worst body of 1 MB (with its probes')", worst.cpu_s * 1000, worst.name),
        ("longest /healthz meanwhile", *_most(found.health(), 1.0)),
        ("small requests while 20 MB are planned, p99", *_most(found.requests(), 0.99)),
        ("small requests while nothing else goes on, p99", *_most(found.idle(), 0.99)),
    )
    for label, value, of in rows:
        table.add_row(label, f"{value:.0f} ms", of)
    console.print(table)


def _most(sorted_ms: Sequence[float], share: float) -> tuple[float, str]:
    return quantile(sorted_ms, share), f"{len(sorted_ms)} probes"


def stalls_json(found: Stalls) -> dict[str, object]:
    """The same for a file, with every body."""
    return {
        "worst_cpu_ms": found.worst().cpu_s * 1000,
        "health_max_ms": quantile(found.health(), 1.0),
        "requests_p99_ms": quantile(found.requests(), 0.99),
        "idle_p99_ms": quantile(found.idle(), 0.99),
        "bodies": [asdict(cost) for cost in (*found.small, *found.vast)],
    }


def planning_json(found: Mapping[str, Times]) -> dict[str, object]:
    """The same for a file."""
    names = ("parse_ms", "count_ms", "plan_ms")
    return {
        name: {
            "p50": dict(zip(names, times.at(0.5), strict=True)),
            "p99": dict(zip(names, times.at(0.99), strict=True)),
        }
        for name, times in found.items()
    }


def _heads(table: Table) -> Table:
    table.add_column("sessions")
    table.add_column("body", justify="right")
    table.add_column("answer")
    return table


def _label(row: Row) -> tuple[str, str, str]:
    side_by_side = f", {row.at_once} at once" if row.at_once > 1 else ""
    return row.workload, f"{row.body_bytes / 1000:.0f} kB", row.answer + side_by_side


def _cpu(found: Sequence[Row], names: Sequence[str]) -> Table:
    table = _heads(Table(title="CPU per request, ms (x the bare forwarder's)"))
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("what tier did")
    for row in found:
        cells = (f"{row.targets[name].cpu_ms:.2f} ({row.targets[name].ratio:.2f} x)" for name in names)
        table.add_row(*_label(row), *cells, _did(row))
    return table


def _did(row: Row) -> str:
    """The two most frequent reasons of the plans in mode tier."""
    reasons = row.targets["tier"].reasons if "tier" in row.targets else {}
    return ", ".join(f"{reason} {share:.0%}" for reason, share in list(reasons.items())[:2])


def _latency(found: Sequence[Row], names: Sequence[str]) -> Table:
    table = _heads(Table(title="added latency, ms: p50 / p99, and a session's first request"))
    for name in names:
        table.add_column(name, justify="right")
    for row in found:
        each = (row.targets[name] for name in names)
        table.add_row(*_label(row), *(f"{f.added_p50_ms:.2f} / {f.added_p99_ms:.2f}, {f.cold_ms:.1f}" for f in each))
    return table


def _throughput(found: Sequence[Row], names: Sequence[str]) -> Table:
    table = _heads(Table(title="requests a second per core, under load"))
    for name in names:
        table.add_column(name, justify="right")
    for row in found:
        table.add_row(*_label(row), *(f"{1000 / row.targets[name].cpu_ms:.0f}" for name in names))
    return table
