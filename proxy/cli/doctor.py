"""``stratiform doctor``: why caches missed in logs, or at a running proxy, what it costs, and what would help."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from rich.progress import DownloadColumn, TimeRemainingColumn

from proxy.cli import Output, add_json, fail, number_within, plain_failures, plain_table, print_result, write_file
from proxy.cli.replay import assembler_maker, progress
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.errors import NotFound
from proxy.lab.doctor import CacheRules, DiagnosedClient, count_entry, name_pieces
from proxy.lab.doctor.report import (
    ClientReport,
    Report,
    costly,
    examine,
    figures,
    page,
    problem_text,
    report_of,
    usd,
    visible,
)
from proxy.lab.replay.runner import Setting, counted_once
from proxy.models.deployments import load_price_map
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.tokens import bytes_over_four, quick

_SHOWN_CLIENTS = 20
_SHOWN_CULPRITS = 10
_SHOWN_PROBLEMS = 20
_SESSIONS = "200"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a log: a recorded session, requests and answers in JSON lines, LiteLLM's spend logs, Langfuse's"
        " observations, HAR, Claude Code's session files, fingerprints; or a folder of logs",
    )
    parser.add_argument(
        "--url", help="a running proxy; its master key is read from STRATIFORM_MASTER_KEY or LITELLM_MASTER_KEY"
    )
    parser.add_argument("--since", help="how far --url looks back: 30d, 12h, 2026-11-01 (default: 30d)")
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        metavar="NAME",
        help="the provider whose cache rules hold for all models (default: by the model's name): "
        + ", ".join(PROFILES),
    )
    parser.add_argument(
        "--fail-over",
        type=number_within(float, 0),
        metavar="USD",
        help="end with status 1 where more than this is wasted in a month",
    )
    add_json(parser)
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write the report as a page to this file")


def run(arguments: argparse.Namespace) -> int:
    """Examine and report. Returns 1 if more is wasted than ``--fail-over`` allows, or if the waste is not known."""
    if bool(arguments.files) == bool(arguments.url):
        fail("name either the logs to read, or a running proxy with --url")
    if arguments.files and arguments.since is not None:
        fail("--since needs --url: logs are read whole")
    if arguments.url and arguments.profile is not None:
        fail("--profile is for logs: a running proxy has counted what its provider billed")
    with plain_failures():
        report = _of_proxy(arguments) if arguments.url else _examined(arguments)
        if arguments.html is not None:
            write_file(arguments.html, page(report))
        print_result(arguments, report, lambda: _print(report))
    if report.calls and arguments.fail_over is None:
        return 0
    waste, most = report.waste_usd_month, arguments.fail_over
    if report.calls and waste is None:
        print("error: the logs do not tell what a month costs, so --fail-over cannot be answered", file=sys.stderr)
    elif waste is not None and most is not None and waste > most:
        print(f"error: {usd(waste)} a month are wasted, over {usd(most)}", file=sys.stderr)
    return int(waste is None or waste > (most or 0.0))


def _examined(arguments: argparse.Namespace) -> Report:
    # Shares and first differences need no tokenizer, which takes a second to load. Reported usage gives the scale.
    manager, encode = build_plugin_manager(), counted_once(quick(bytes_over_four))
    given = None if arguments.profile is None else PROFILES[arguments.profile]
    rules = CacheRules(load_price_map(), given)
    setting = Setting(
        profile=given or PROFILES["anthropic"],
        encode=encode,
        recognisers=recognisers(manager),
        assembler=assembler_maker(manager, encode, "economic"),
    )
    with progress(DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("")

        def show(path: Path, read: int, size: int) -> None:
            bar.update(task, description=visible(path.name), completed=read, total=size)

        try:
            return examine(arguments.files, rules, setting, show)
        except OSError as error:
            fail(f"the calls cannot be kept in a temporary file: {error.strerror or error}")


def _of_proxy(arguments: argparse.Namespace) -> Report:
    """The report of a running proxy, by its ledger and its sessions. Raises ConfigError if the master key is
    missing."""
    # The modules that ask a proxy are imported only here: the import takes longer than most logs take to read.
    from proxy.app.admin.reports import ledger_entries
    from proxy.cli.admin_client import Ask, run_with

    clients: dict[str, DiagnosedClient] = {}

    async def work(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": arguments.since or "30d"}):
            count_entry(clients, entry)
        with suppress(NotFound):
            for session in (await ask("GET", "sessions", {"limit": _SESSIONS}))["data"]:
                # For some sessions only the figures are kept.
                with suppress(NotFound):
                    name_pieces(clients, await ask("GET", f"sessions/{session['id']}/breakdown"))

    run_with(arguments, work)
    return report_of(clients, {}, [], 0)


def _print(report: Report) -> None:
    output = Output()
    for client in report.clients[:_SHOWN_CLIENTS]:
        _print_client(output, client)
    if len(report.clients) > _SHOWN_CLIENTS:
        output.print(f"{len(report.clients) - _SHOWN_CLIENTS} more clients are in --json and --html.\n")
    if report.lost_usd_month is not None:
        wasted = usd(report.waste_usd_month or 0.0)
        output.print(
            f"all clients: {usd(report.lost_usd_month)} a month are lost at this rate, {wasted} of it is waste"
        )
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        output.print(problem_text(problem), style="yellow", soft_wrap=True)
    if len(report.problems) > _SHOWN_PROBLEMS:
        output.print(f"{len(report.problems) - _SHOWN_PROBLEMS} more files have problems.", style="yellow")


def _print_client(output: Output, client: ClientReport) -> None:
    models = ", ".join(model or "(no model)" for model in client.models[:3])
    more = f" and {len(client.models) - 3} more" if len(client.models) > 3 else ""
    output.print(client.client, style="bold", end="")
    output.print(f"  {client.calls:,} calls, {client.sessions:,} sessions, {models}{more}", soft_wrap=True)
    output.print("  " + "; ".join(figures(client)), soft_wrap=True)
    dear = costly(client)[:_SHOWN_CULPRITS]
    for number, culprit in enumerate(dear, 1):
        mark = "" if culprit.is_waste else " (no waste)"
        output.print(f"  {number}. {culprit.advice}{mark}", soft_wrap=True)
    if not client.culprits:
        output.print("  no break was found", style="green")
    if (more_culprits := client.other_culprits + len(client.culprits) - len(dear)) > 0:
        output.print(f"  {more_culprits} more culprits cost less, or nothing", style="dim")
    if client.modes:
        table = plain_table(
            ("  mode", "cost", "hit ratio", "saved a month"), numbers=("cost", "hit ratio", "saved a month")
        )
        for mode in client.modes:
            saved = "" if mode.saved_usd_month is None else usd(mode.saved_usd_month)
            table.add_row(f"  {mode.mode}", f"{mode.cost_share:.3f}", f"{mode.hit_ratio:.1%}", saved)
        output.print(table)
        output.print(
            f"  (tried on {client.replayed:,} of {client.calls:,} calls; cost as a share of passthrough)", style="dim"
        )
    else:
        output.print(f"  modes: {client.modes_untold}", style="dim")
    for gap in client.gaps:
        output.print(f"  {gap}", style="dim", soft_wrap=True)
    output.print()
