"""``stratiform explain``: the layout of one recorded request, with a reason for every piece."""

import argparse
from pathlib import Path

from rich.text import Text

from proxy.cli.output import Output, fail, plain_failures, plain_table, print_result
from proxy.cli.replay import add_options, replayable, setting
from proxy.core.caches.cache import Bill
from proxy.core.reasons import Reason
from proxy.replay.explain import Explanation, explain_request

_TIER_STYLES = {"L0": "green", "L1": "cyan", "L2": "blue", "L3": "magenta"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a recorded session (.jsonl, .xz, .gz)")
    parser.add_argument(
        "--request", type=int, metavar="N", help="the number of the request, counted from 1 (default: the last one)"
    )
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay up to the request and show the plan for it."""
    with plain_failures():
        trace = replayable(arguments.trace)
        count = len(trace.steps)
        number = count if arguments.request is None else arguments.request
        if not 1 <= number <= count:
            fail(f"{arguments.trace}: --request must be between 1 and {count}")
        explanation = explain_request(trace, setting(arguments), number)
        print_result(arguments, explanation, lambda: _print(explanation))
    return 0


def _print(explanation: Explanation) -> None:
    output = Output()
    output.print(f"{explanation.trace}, request {explanation.request} of {explanation.requests}")
    headings = ("at", "segment", "tier", "what", "tokens", "marker", "read again", "why")
    cells = (
        (
            str(row.position), row.segment, Text(row.tier, _TIER_STYLES.get(row.tier, "dim")), row.what,
            f"{row.tokens:,}", row.marker or "", f"{row.read_again:.0%}", row.reason,
        )
        for row in explanation.rows
    )  # fmt: skip
    if explanation.rows:
        output.print(plain_table(headings, ("at", "tokens", "read again"), cells))
    if explanation.broke is not None:
        broke = explanation.broke
        where = f"{broke.culprit_kind} {broke.culprit}" + (f", line {broke.line}" if broke.line else "")
        lost = f"{broke.lost:,} tokens more would be read, which costs as {broke.usd:,.0f} plain tokens"
        waste = " (waste)" if broke.is_waste else ""
        output.print(f"breaks the cache: {broke.kind}: {where}, behind {broke.before:,} tokens; {lost}{waste}")
    output.print(f"plan: {explanation.reason} ({explanation.meaning})")
    is_assembled = explanation.reason in (Reason.ASSEMBLED_TIERS, Reason.ASSEMBLED_FLAT)
    sent = "rewritten" if explanation.rewritten else "as it was assembled" if is_assembled else "as it came"
    output.print(f"sent: {sent}")
    output.print(f"predicted bill: {_bill(explanation.predicted, explanation.predicted_cost)}")
    output.print(f"bill of the client's own layout: {_bill(explanation.own, explanation.own_cost)}")


def _bill(bill: Bill | None, cost: float | None) -> str:
    if bill is None or cost is None:
        return "not known"
    share = f" ({cost / bill.total:.3f} of no caching)" if bill.total else ""
    kinds = f"read {bill.read:,}, written {bill.write:,}, plain {bill.plain:,}"
    return f"{kinds}: costs as {cost:,.0f} plain tokens{share}"
