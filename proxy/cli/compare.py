"""``stratiform replay --compare``: every policy, the bounds and the best feasible layout, for each trace."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.progress import MofNCompleteColumn, TimeElapsedColumn
from rich.table import Column, Table

from proxy.cli.output import Output, print_result, write_file
from proxy.cli.traces import progress, replayable, setting
from proxy.replay.comparison import (
    BEST,
    CLASSIC,
    COLUMNS,
    ECONOMIC,
    FIXED,
    FREE,
    Comparison,
    Mean,
    by_kind,
    compare,
    gains,
    means,
    plot,
    shares,
)
from proxy.replay.totals import AS_SENT, SYSTEM_LAST
from proxy.replay.trace import TraceError, find_traces

_PROCESSES = 2
_SHOWN_VIOLATIONS = 5
# Both tables fit into 140 columns.
_NAME_COLUMNS = 37
_DETAILED = (AS_SENT, SYSTEM_LAST, CLASSIC, ECONOMIC, BEST)
_LIMITS = (FIXED, BEST, FREE)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compare", action="store_true", help="compare with other policies, and with the lowest possible cost"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write the comparison as an SVG picture (needs --compare)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare. Returns 0 if every request came through unharmed."""
    found = _compared(find_traces(arguments.traces), arguments)
    if arguments.plot is not None:
        write_file(arguments.plot, plot(found, arguments.profile))
    print_result(arguments, _report(arguments, found), lambda: _print(found))
    return 1 if any(one.violations for one in found) else 0


def _compared(paths: Sequence[Path], arguments: argparse.Namespace) -> list[Comparison]:
    """The comparisons in the order of the paths. The longest traces are started first."""
    found: dict[Path, Comparison] = {}
    ordered = sorted(paths, key=lambda path: -path.stat().st_size if path.exists() else 0)
    with progress(MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("comparing", total=len(paths))
        for path, one in _results(ordered, arguments):
            found[path] = one
            bar.update(task, advance=1, description=one.trace)
    return [found[path] for path in paths]


def _results(paths: Sequence[Path], arguments: argparse.Namespace) -> Iterator[tuple[Path, Comparison]]:
    """Each comparison as soon as it is ready. Two processes compare several traces. Raises TraceError."""
    if len(paths) == 1:
        yield paths[0], _one(paths[0], arguments)
        return
    # New processes are spawned: a fork would copy the thread that draws the progress bar.
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(_one, path, arguments): path for path in paths}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        except (TraceError, KeyboardInterrupt):
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one(path: Path, arguments: argparse.Namespace) -> Comparison:
    return compare(replayable(path), setting(argparse.Namespace(**{**vars(arguments), "policy": ECONOMIC})))


def _report(arguments: argparse.Namespace, found: Sequence[Comparison]) -> dict[str, object]:
    return {
        "profile": arguments.profile,
        "mode": arguments.mode,
        "traces": [
            {
                "name": one.trace,
                "kind": str(one.kind),
                "prefix_share": one.prefix_share,
                "requests": one.requests,
                "prompt_tokens": round(one.plain),
                "allowance": one.share_of(one.allowance),
                "shares": shares(one),
                "hit_rates": {name: score.hit_rate for name, score in one.scores.items()},
                "write_waste": {name: score.waste for name, score in one.scores.items()},
                "refused": {name: score.refused for name, score in one.scores.items() if score.refused},
                "gains": gains(shares(one)),
                "best_found_by": one.found_by,
                "violations": one.violations,
            }
            for one in found
        ],
        "summary": means(found),
    }


def _print(found: Sequence[Comparison]) -> None:
    output = Output()
    lines = means(found)
    output.print(_costs(found, lines))
    output.print()
    output.print(_details(found, lines))
    output.print()
    output.print(
        "Each figure is the input cost as a share of the cost without a cache. Side calls are included; means are\n"
        "geometric. The fixed limit is the least cost of the client's own order of messages, with the future known.\n"
        "The free limit is a bound for every order: none costs less, and perhaps none costs so little. Best found is\n"
        "the result of a search that knows the future: it is feasible, but not proven to be the best. Gain is the\n"
        "saving of economic as a share of the saving at that limit. Waste is the share of written tokens that were\n"
        "never read. The allowance is what economic may lose while it learns a session, as a share likewise.",
        style="dim",
    )
    for one in found:
        for text in one.violations[:_SHOWN_VIOLATIONS]:
            output.print(f"{one.trace}: {text}", style="red", soft_wrap=True)


def _costs(found: Sequence[Comparison], lines: Sequence[Mean]) -> Table:
    styles = {ECONOMIC: "bold", FIXED: "dim", FREE: "dim"}
    columns = (
        Column("input cost", overflow="fold", min_width=24, max_width=_NAME_COLUMNS),
        Column("sent", justify="right"),
        Column("tokens", justify="right"),
        *(Column(name, justify="right", style=styles.get(name, ""), max_width=8) for name in COLUMNS),
        Column("allowance", justify="right"),
    )

    def cells(one: Comparison) -> list[str]:
        costs = shares(one)
        told = [*(_cell(one, name, costs[name]) for name in COLUMNS), f"{one.share_of(one.allowance):.3f}"]
        return [str(one.requests), f"{one.plain:,.0f}", *told]

    def means_of(mean: Mean) -> list[str]:
        return [str(mean.requests), "", *(f"{mean.shares[c]:.3f}" for c in COLUMNS), ""]

    return _table(columns, found, lines, cells, means_of)


def _table(
    columns: Iterable[Column],
    found: Sequence[Comparison],
    lines: Sequence[Mean],
    cells: Callable[[Comparison], list[str]],
    means_of: Callable[[Mean], list[str]],
) -> Table:
    """A row for each trace, and a row of means below each kind and below all rows."""
    table = Table(*columns, box=None, pad_edge=False, collapse_padding=True)
    by_name = {mean.name: mean for mean in lines}
    for kind, some in by_kind(found):
        for one in some:
            table.add_row(one.trace, *cells(one))
        table.add_row(f"{kind}, {len(some)}", *means_of(by_name[kind]), style="bold", end_section=True)
    if "all" in by_name:
        table.add_row(f"all, {len(found)}", *means_of(by_name["all"]), style="bold", end_section=True)
    return table


def _cell(one: Comparison, name: str, share: float) -> str:
    refused = one.scores[name].refused if name in one.scores else 0
    return f"{share:.3f}" + (f" ({refused} refused)" if refused else "")


def _details(found: Sequence[Comparison], lines: Sequence[Mean]) -> Table:
    columns = (
        Column("hit rate / waste", overflow="fold", min_width=24, max_width=_NAME_COLUMNS),
        *(Column(name, justify="right", max_width=13) for name in _DETAILED),
        *(Column(f"gain: {limit}", justify="right", max_width=11) for limit in _LIMITS),
        Column("best found by", overflow="fold"),
    )

    def cells(pairs: Iterable[tuple[float, float | None]], won: Mapping[str, float | None]) -> list[str]:
        return [
            *(f"{hit_rate:.0%} / {_percent(waste)}" for hit_rate, waste in pairs),
            *(_percent(won[limit]) for limit in _LIMITS),
        ]

    def own(one: Comparison) -> list[str]:
        scores = [one.scores[policy] for policy in _DETAILED]
        return [*cells(((s.hit_rate, s.waste) for s in scores), gains(shares(one))), one.found_by]

    def means_of(mean: Mean) -> list[str]:
        return [*cells(((mean.hit_rates[p], mean.waste[p]) for p in _DETAILED), mean.gains), ""]

    return _table(columns, found, lines, own, means_of)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
