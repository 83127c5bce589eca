"""``stratiform replay``: recorded sessions through the planner in virtual time, and the cost under each policy."""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import orjson
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from proxy.cli import compare
from proxy.cli.output import Output, fail, plain_failures, print_result
from proxy.cli.traces import add_options, progress, replayable, setting
from proxy.core.planner.plan import Plan
from proxy.core.shadow import cost_of
from proxy.replay.runner import Setting, replay
from proxy.replay.totals import OURS, Result, Summary, summary
from proxy.replay.trace import Step, Trace, find_traces

_DEARER = 1.02
_CHEAPER = 0.98
_SHOWN_VIOLATIONS = 5
_COUNTS = ("read", "write_5m", "write_1h", "plain", "refused", "refreshes")


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
    compare.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay. Returns 0 if every request came through unharmed."""
    alone = arguments.out is not None or arguments.keep_alive
    if (arguments.compare and alone) or (arguments.plot is not None and not arguments.compare):
        fail("--compare cannot be used with --out or --keep-alive, and --plot needs --compare")
    with plain_failures(), ExitStack() as stack:
        if arguments.compare:
            return compare.run(arguments)
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
            *(_share(result, name) for name in others),
            _share(result, OURS),
            f"{result.ours.hit_rate:.1%}",
            _fidelity(len(result.violations)),
            _against(result.against_cheapest()),
        )
    output = Output()
    output.print(table)
    output.print("input cost as a share of no caching, side calls included", style="dim")
    if any(result.ours.refreshes for result in results):
        output.print(_refreshes(results), style="dim")
    plans = Counter[str]()
    for result in results:
        plans.update(result.reasons)
    output.print("plans: " + ", ".join(f"{reason} {count}" for reason, count in plans.most_common()), style="dim")
    for result in results:
        for text in [*result.violations[:_SHOWN_VIOLATIONS], *result.surprises[:_SHOWN_VIOLATIONS]]:
            output.print(f"{result.trace}: {text}", style="red", soft_wrap=True)


def _refreshes(results: Sequence[Result]) -> str:
    """The requests that only kept prefixes alive, and their cost, which is included in our share."""
    cost = sum(cost_of(r.profile, r.ours.refresh_bills) for r in results)
    plain = sum(r.plain for r in results)
    return f"refreshes: {sum(r.ours.refreshes for r in results)}, {cost / plain:.4f} of no caching"


def _share(result: Result, name: str) -> str:
    refused = result.totals[name].refused
    return f"{result.share(name):.3f}" + (f" ({refused} refused)" if refused else "")


def _fidelity(violations: int) -> Text:
    return Text(f"{violations} violated", "red") if violations else Text("ok", "green")


def _against(ratio: float) -> Text:
    return Text(f"x {ratio:.3f}", "red" if ratio > _DEARER else "green" if ratio < _CHEAPER else "")
