"""``stratiform replay``: recorded sessions through the planner in virtual time, and the cost under each policy.

With ``--compare`` the cost also stands beside that of other policies, the bounds of what is possible, and the best
feasible layout.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from signal import SIGINT, signal
from types import MappingProxyType
from typing import BinaryIO

import orjson
from pluggy import PluginManager
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from proxy.app.factories import load_context_texts
from proxy.cli import (
    Output,
    add_json,
    fail,
    number_within,
    plain_failures,
    print_result,
    write_file,
)
from proxy.context.session import AssemblyOptions
from proxy.hookspecs import build_plugin_manager, recognisers, symbol_indexer
from proxy.kit import leave
from proxy.kit.modes import Mode
from proxy.lab import Step, Trace, TraceError, find_traces, read_trace, without_prompts
from proxy.lab.replay import AS_SENT, OURS, SYSTEM_LAST, Result, Setting, Summary, counted_once, replay, summary
from proxy.lab.replay.comparison import (
    BEST,
    CLASSIC,
    COLUMNS,
    ECONOMIC,
    FIXED,
    FREE,
    Mean,
    TraceComparison,
    by_kind,
    compare,
    gains,
    means,
    plot,
    shares,
)
from proxy.planner.plan import Plan
from proxy.planner.shadow import cost_of
from proxy.protocol.providers import PROFILES, CacheProfile, optimistic, pessimistic
from proxy.protocol.request.tokens import Encode, quick
from proxy.services import local_encode
from proxy.services.context_assembler import ContextAssembler

_UNKNOWNS: Mapping[str, Callable[[CacheProfile], CacheProfile]] = MappingProxyType(
    {"default": lambda profile: profile, "pessimistic": pessimistic, "optimistic": optimistic}
)
_DEARER = 1.02
_CHEAPER = 0.98
_SHOWN_VIOLATIONS = 5
_COUNTS = ("read", "write_5m", "write_1h", "plain", "refused", "refreshes")
_PROCESSES = 2
# Both tables fit into 140 columns.
_NAME_COLUMNS = 37
_DETAILED = (AS_SENT, SYSTEM_LAST, CLASSIC, ECONOMIC, BEST)
_LIMITS = (FIXED, BEST, FREE)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="a recorded session (.jsonl, .xz, .gz), or a folder of them",
    )
    add_options(parser)
    parser.add_argument(
        "--keep-alive", action="store_true", help="refresh cached prefixes while their clients pause, where that pays"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the requests to this file as they would be forwarded"
    )
    parser.add_argument(
        "--compare", action="store_true", help="compare with other policies, and with the lowest possible cost"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write the comparison as an SVG picture (needs --compare)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay. Returns 0 if every request came through unharmed."""
    alone = arguments.out is not None or arguments.keep_alive
    if (arguments.compare and alone) or (arguments.plot is not None and not arguments.compare):
        fail("--compare cannot be used with --out or --keep-alive, and --plot needs --compare")
    with plain_failures(TraceError), ExitStack() as stack:
        if arguments.compare:
            found = _compared(find_traces(arguments.traces), arguments)
            if arguments.plot is not None:
                write_file(arguments.plot, plot(found, arguments.profile))
            print_result(arguments, _comparison_report(arguments, found), lambda: _print_comparison(found))
            return 1 if any(one.violations for one in found) else 0
        traces = [replayable(path) for path in find_traces(arguments.traces)]
        on_sent = _writer(arguments.out, stack) if arguments.out is not None else None
        results = _replayed(traces, replace(setting(arguments), keep_alive=arguments.keep_alive, on_sent=on_sent))
        means = summary(results)
        print_result(arguments, _report(arguments, results, means), lambda: _print(results, means))
    return 1 if means.violations or any(result.surprises for result in results) else 0


def _writer(path: Path, stack: ExitStack) -> Callable[[Step, Plan], None]:
    try:
        file: BinaryIO = stack.enter_context(path.open("wb"))
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}")

    def write(step: Step, plan: Plan) -> None:
        # The body is written as it is: if it were parsed and written anew, it would differ from the forwarded body.
        head = orjson.dumps({"t": step.at, "session": step.session})[:-1]
        try:
            file.write(head + b',"request":' + plan.body + b"}\n")
        except OSError as error:
            fail(f"{path}: cannot be written: {error.strerror}")

    return write


def _replayed(traces: Sequence[Trace], wanted: Setting) -> list[Result]:
    results = []
    with progress(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=sum(len(trace.steps) for trace in traces))
        for trace in traces:
            bar.update(task, description=trace.name)
            results.append(replay(trace, wanted, lambda: bar.advance(task)))
    return results


def _report(arguments: argparse.Namespace, results: Sequence[Result], means: Summary) -> dict[str, object]:
    return {
        "profile": arguments.profile,
        "mode": arguments.mode,
        "policy": arguments.policy,
        "traces": [
            {
                "name": result.trace,
                "requests": result.requests,
                "prompt_tokens": round(result.plain),
                "policies": {
                    name: {
                        "share": result.share(name),
                        "hit_rate": total.hit_rate,
                        "prompt_tokens": total.prompt,
                        **{count: getattr(total, count) for count in _COUNTS},
                    }
                    for name, total in result.totals.items()
                },
                "against_cheapest": result.against_cheapest(),
                "reasons": {str(reason): count for reason, count in result.reasons.items()},
                "violations": result.violations,
                "surprises": result.surprises,
            }
            for result in results
        ],
        "summary": means,
    }


def _print(results: Sequence[Result], means: Summary) -> None:
    others = [name for name in means.shares if name != OURS]
    table = Table(
        Column("trace", "geometric mean", overflow="fold"),
        Column("requests", str(means.requests), justify="right"),
        Column("tokens", justify="right"),
        *(Column(name, f"{means.shares[name]:.3f}", justify="right") for name in others),
        Column(OURS, f"{means.shares[OURS]:.3f}", justify="right", style="bold"),
        Column("hit rate", justify="right"),
        Column("fidelity", _fidelity(means.violations), justify="right"),
        Column("against cheapest", _against(means.against_cheapest), justify="right"),
        box=None,
        pad_edge=False,
        show_footer=len(results) > 1,
    )
    for result in results:
        table.add_row(
            result.trace,
            str(result.requests),
            f"{result.plain:,.0f}",
            *(_refused(f"{result.share(name):.3f}", result.totals[name].refused) for name in (*others, OURS)),
            f"{result.ours.hit_rate:.1%}",
            _fidelity(len(result.violations)),
            _against(result.against_cheapest()),
        )
    output = Output()
    output.print(table)
    output.print("input cost as a share of no caching, side calls included", style="dim")
    if refreshes := sum(result.ours.refreshes for result in results):
        # These requests only kept prefixes alive. Their cost is included in our share.
        cost = sum(cost_of(result.profile, result.ours.refresh_bills) for result in results)
        share = cost / sum(result.plain for result in results)
        output.print(f"refreshes: {refreshes}, {share:.4f} of no caching", style="dim")
    plans = sum((Counter(result.reasons) for result in results), Counter[str]())
    output.print("plans: " + ", ".join(f"{reason} {count}" for reason, count in plans.most_common()), style="dim")
    for result in results:
        for text in [*result.violations[:_SHOWN_VIOLATIONS], *result.surprises[:_SHOWN_VIOLATIONS]]:
            output.print(f"{result.trace}: {text}", style="red", soft_wrap=True)


def _refused(share: str, count: int) -> str:
    return share + (f" ({count} refused)" if count else "")


def _fidelity(violations: int) -> Text:
    return Text(f"{violations} violated", "red") if violations else Text("ok", "green")


def _against(ratio: float) -> Text:
    return Text(f"x {ratio:.3f}", "red" if ratio > _DEARER else "green" if ratio < _CHEAPER else "")


def _compared(paths: Sequence[Path], arguments: argparse.Namespace) -> list[TraceComparison]:
    """Every policy, the bounds and the best feasible layout, for each trace in the order of the paths. The longest
    traces are started first."""
    found: dict[Path, TraceComparison] = {}
    ordered = sorted(paths, key=lambda path: -path.stat().st_size if path.exists() else 0)
    with progress(MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("comparing", total=len(paths))
        for path, one in _results(ordered, arguments):
            found[path] = one
            bar.update(task, advance=1, description=one.trace)
    return [found[path] for path in paths]


def _results(paths: Sequence[Path], arguments: argparse.Namespace) -> Iterator[tuple[Path, TraceComparison]]:
    """Each comparison as soon as it is ready. Two processes compare several traces. Raises TraceError."""
    if len(paths) == 1:
        yield paths[0], _one(paths[0], arguments)
        return
    # New processes are spawned: a fork would copy the thread that draws the progress bar. An interrupt ends them, too.
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn"), signal, (SIGINT, leave)) as pool:
        jobs = {pool.submit(_one, path, arguments): path for path in paths}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        except (TraceError, KeyboardInterrupt):
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one(path: Path, arguments: argparse.Namespace) -> TraceComparison:
    return compare(replayable(path), setting(argparse.Namespace(**{**vars(arguments), "policy": ECONOMIC})))


def _comparison_report(arguments: argparse.Namespace, found: Sequence[TraceComparison]) -> dict[str, object]:
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


def _print_comparison(found: Sequence[TraceComparison]) -> None:
    styles = {ECONOMIC: "bold", FIXED: "dim", FREE: "dim"}
    costs = _plain(
        Column("input cost", overflow="fold", min_width=24, max_width=_NAME_COLUMNS),
        Column("sent", justify="right"),
        Column("tokens", justify="right"),
        *(Column(name, justify="right", style=styles.get(name, ""), max_width=8) for name in COLUMNS),
        Column("allowance", justify="right"),
    )
    details = _plain(
        Column("hit rate / waste", overflow="fold", min_width=24, max_width=_NAME_COLUMNS),
        *(Column(name, justify="right", max_width=13) for name in _DETAILED),
        *(Column(f"gain: {limit}", justify="right", max_width=11) for limit in _LIMITS),
        Column("best found by", overflow="fold"),
    )
    lines = {line.name: line for line in means(found)}
    for kind, some in by_kind(found):
        for one in some:
            (own,) = means([one])
            shown = (
                _refused(f"{own.shares[name]:.3f}", one.scores[name].refused if name in one.scores else 0)
                for name in COLUMNS
            )
            allowance = f"{one.share_of(one.allowance):.3f}"
            costs.add_row(one.trace, str(one.requests), f"{one.plain:,.0f}", *shown, allowance)
            details.add_row(one.trace, *_details(own), one.found_by)
        _add_means(costs, details, lines[kind])
    if "all" in lines:
        _add_means(costs, details, lines["all"])
    output = Output()
    for one_of in (costs, "", details, ""):
        output.print(one_of)
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


def _plain(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, collapse_padding=True)


def _add_means(costs: Table, details: Table, mean: Mean) -> None:
    """Add the means of a kind below its traces, or those of all traces."""
    name, cells = f"{mean.name}, {mean.traces}", (f"{mean.shares[column]:.3f}" for column in COLUMNS)
    costs.add_row(name, str(mean.requests), "", *cells, "", style="bold", end_section=True)
    details.add_row(name, *_details(mean), "", style="bold", end_section=True)


def _details(mean: Mean) -> list[str]:
    rates = (f"{mean.hit_rates[name]:.0%} / {_percent(mean.waste[name])}" for name in _DETAILED)
    return [*rates, *(_percent(mean.gains[limit]) for limit in _LIMITS)]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default="anthropic",
        metavar="NAME",
        help="the provider whose cache rules hold (default: anthropic): " + ", ".join(PROFILES),
    )
    parser.add_argument(
        "--unknowns",
        choices=_UNKNOWNS,
        default="default",
        help="the value of rules that the provider does not document: the usual one, the worst one, or the best one",
    )
    parser.add_argument(
        "--mode", choices=[mode.name.lower() for mode in Mode], default="tier", help="the mode (default: tier)"
    )
    parser.add_argument(
        "--policy",
        choices=("economic", "classic"),
        default="economic",
        help="what decides the order of pieces: their price, or their stability (default: economic)",
    )
    parser.add_argument(
        "--min-tokens",
        type=number_within(int, 0),
        metavar="N",
        help="the shortest prefix that the provider caches, in tokens",
    )
    parser.add_argument("--short-life", action="store_true", help="do not use the one-hour life of cache entries")
    parser.add_argument(
        "--hoisting",
        action="store_true",
        help="simulate a provider that moves later system messages to the front; the planner has to learn that",
    )
    add_json(parser)


def setting(arguments: argparse.Namespace) -> Setting:
    profile = _UNKNOWNS[arguments.unknowns](PROFILES[arguments.profile])
    if arguments.min_tokens is not None:
        profile = replace(profile, min_tokens=arguments.min_tokens)
    if arguments.short_life:
        profile = replace(profile, long_life_s=0.0)
    manager, encode = build_plugin_manager(), counted_once(local_encode())
    return Setting(
        profile=profile,
        served=replace(profile, hoists_system=True) if arguments.hoisting else None,
        encode=encode,
        recognisers=recognisers(manager),
        mode=Mode.parse(arguments.mode),
        policy=arguments.policy,
        assembler=assembler_maker(manager, encode, arguments.policy),
    )


def replayable(path: Path) -> Trace:
    """A recorded session, as far as it can be replayed. A message on the standard error tells what is left out. Raises
    TraceError."""
    trace, count = without_prompts(read_trace(path))
    if count:
        print(
            f"{trace.name}: {count} of {len(trace.steps)} requests have 'stratiform.prompts' or 'stratiform.window'. A"
            " replay composes no prompts, puts no parts into messages and fits nothing into a window: it leaves these"
            " members out, and the figures are those of the messages as they were recorded.",
            file=sys.stderr,
        )
    return trace


def assembler_maker(manager: PluginManager, encode: Encode, policy: str) -> Callable[[], ContextAssembler]:
    """A maker of assemblers that work as in the proxy by default. Each call gives an assembler with its own memory."""
    texts, indexer = load_context_texts(), symbol_indexer(manager)
    return lambda: ContextAssembler(texts, quick(encode), indexer, AssemblyOptions(policy))


@contextmanager
def progress(*columns: ProgressColumn) -> Iterator[Progress]:
    """A progress bar on the standard error while the block lasts, with these columns after it. There is no bar if the
    standard error is not a terminal."""
    shown = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not shown)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not shown,
    ) as bar:
        yield bar
