"""What is used and spent, in figures of the same names.

``stratiform spend``: the ledger, with the savings by caching, by team, key, user, model and day.

``stratiform prices``: the prices of a configuration's models, and the pinned prices that have changed.

``stratiform top``: live sessions in a terminal, or one session in its layers, from a running proxy's admin API. The
head-up display of ``stratiform serve --hud`` draws layers in the same way. After each request it shows the request's
tiers as a diagram of blocks, and the usage of the request and of its session. If the terminal's output is paused, only
the display's own thread waits.
"""

import argparse
import asyncio
import csv
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from queue import Full, Queue
from shutil import get_terminal_size
from typing import Any, TextIO

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from proxy.app import factories
from proxy.app.admin.reports import BILLED, cell, grouped, ledger_entries
from proxy.app.settings import Settings, load
from proxy.cli import Command, Output, add_json, fail, plain_table, print_json, print_result
from proxy.cli.admin_client import Ask, add_where, run_with, show
from proxy.kit.errors import ProxyError, UnknownModel
from proxy.kit.messages import visible
from proxy.models import Deployment
from proxy.models.deployments import ModelTable, bundled_prices, deviation_of, price_for
from proxy.protocol.prices import Price, PriceMap, forms, needed

_PARAMETERS = ("since", "until", "team", "key", "user", "model", "timezone")
_SUMS = {
    "requests": "requests", "read": "read_tokens", "written": "write_tokens", "uncached": "uncached_tokens",
    "output": "output_tokens", "cost usd": "cost_usd", "saved usd": "saved_usd", "estimated": "estimated_requests",
}  # fmt: skip


def _configure_spend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", help="the groups: team, key, user, model, day, separated by commas (default: team)")
    parser.add_argument("--since", default="30d", help="the start: 30d, 12h, 2026-11-01 or unix seconds (default: 30d)")
    parser.add_argument("--until", help="the end, written in the same way (default: now)")
    for name in ("team", "key", "user", "model"):
        parser.add_argument(f"--{name}", help=f"only what this {name} spent")
    parser.add_argument("--timezone", help="the time zone in which days begin (default: UTC)")
    parser.add_argument("--csv", action="store_true", help="print CSV")
    parser.add_argument(
        "--entries", action="store_true", help="print the entries of the ledger: one JSON object a line, or CSV"
    )
    add_where(parser)


def _run_spend(arguments: argparse.Namespace) -> int:
    query = {name: value for name in _PARAMETERS if (value := getattr(arguments, name)) is not None}
    if arguments.csv and arguments.json:
        fail("print either --csv or --json")
    if arguments.entries and arguments.by is not None:
        fail("--by is for the sums: --entries prints each entry")
    if arguments.entries:
        return run_with(arguments, partial(_export, query, as_csv=arguments.csv))
    query["by"] = arguments.by or "team"

    async def work(ask: Ask) -> None:
        content = await ask("GET", "spend", query)
        by = content["by"]
        if arguments.csv:
            _sheet([*by, *_SUMS.values()]).writerows(map(_cells, content["data"]))
            return
        if len(content["data"]) > 1 and by and not arguments.json:
            # The sum of the rows is the last row.
            content["data"].append({**content["total"], by[0]: "total"})
        show(arguments, content, {**{group: group for group in by}, **_SUMS})

    return run_with(arguments, work)


async def _export(query: dict[str, str], ask: Ask, *, as_csv: bool) -> None:
    sheet = None
    async for entry in ledger_entries(ask, query):
        if as_csv:
            sheet = sheet or _sheet(entry)
            sheet.writerow(_cells(entry))
        else:
            print_json(entry, is_line=True)


def _sheet(columns: Iterable[str]) -> "csv.DictWriter[str]":
    """CSV on the standard output, whose heading is written. Other values than those of the columns are left out."""
    sheet = csv.DictWriter(sys.stdout, list(columns), extrasaction="ignore")
    sheet.writeheader()
    return sheet


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row, so that neither a spreadsheet nor a terminal takes a text for a command."""
    return {name: visible(cell(value)) if isinstance(value, str) else value for name, value in row.items()}


_COLUMNS = ("name", "model", "input", "read", "write", "output", "from", "note")
_NUMBERS = _COLUMNS[2:6]
_NO_PRICE = "no price: budgets in USD refuse it (see stratiform.prices)"

RawMap = Mapping[str, Mapping[str, Any]]


def _configure_prices(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="show each model's price in USD per million tokens, and what is not known")
    add_json(check)
    update = actions.add_parser("update", help="print the installed LiteLLM's values of the pinned prices that differ")
    for one in (check, update):
        one.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            default=Path("config.yaml"),
            help="the configuration (default: config.yaml)",
        )


def _run_prices(arguments: argparse.Namespace) -> int:
    """Run the action, and return the exit status: 1 if a model has no price, or a pinned price has changed. Raises
    ConfigError."""
    settings, known = load(arguments.config), bundled_prices()
    if arguments.action == "update":
        return _update(settings, known)
    rows = list(_rows(settings, known))

    def show() -> None:
        cells = (["-" if row[name] is None else str(row[name]) for name in _COLUMNS] for row in rows)
        Output().print(plain_table(_COLUMNS, _NUMBERS, cells))
        print(f"USD per million tokens; LiteLLM {version('litellm')}")

    print_result(arguments, {"litellm": version("litellm"), "models": rows}, show)
    return 1 if any(row["note"] == _NO_PRICE for row in rows) else 0


def price_of_model(model: str, prices: PriceMap, table: ModelTable) -> Price | None:
    """The price of a model that a request may name; None if it is not known."""
    try:
        return price_for(prices, table.resolve(model))
    except UnknownModel:
        return prices.price(model)


def _rows(settings: Settings, known: RawMap) -> Iterator[dict[str, Any]]:
    prices = factories.price_map(settings)
    for name, deployment in factories.model_table(settings, prices).listed():
        price, found = price_for(prices, deployment), _named(deployment, known)
        is_given = prices.given.get(name) is not None or "input_cost_per_token" in deployment.params
        row: dict[str, Any] = {"name": name, "model": deployment.model}
        if price is None:
            yield row | dict.fromkeys(_NUMBERS) | {"from": "-", "note": _NO_PRICE}
            continue
        rates = (price.input, price.read, price.write_5m, price.output)
        row |= {column: round(rate * 1_000_000, 6) for column, rate in zip(_NUMBERS, rates, strict=True)}
        source, note = found or "stratiform", deviation_of(found, known.get(found, {}))
        yield row | ({"from": "config", "note": ""} if is_given else {"from": source, "note": note})


def _named(deployment: Deployment, known: RawMap) -> str:
    """The name under which the map has the price of a deployment; empty if it has no price."""
    names = filter(None, (deployment.price_key, deployment.model))
    return next((form for name in names for form in (name, *forms(name)) if form in known), "")


def _update(settings: Settings, known: RawMap) -> int:
    """Print new values of ``stratiform.prices`` for the prices that differ from the installed map by now."""
    pinned, table = factories.price_overrides(settings), factories.model_table(settings, factories.price_map(settings))
    by_name = dict(table.listed())
    changed: dict[str, dict[str, object]] = {}
    for name, given in pinned.items():
        found = _named(by_name[name], known) if name in by_name else name
        current = {key: value for key, value in needed(known.get(found, {})).items() if key in given}
        if current and current != {key: given[key] for key in current}:
            changed[name] = given | current
    if changed:
        print(yaml.safe_dump({"stratiform": {"prices": changed}}, sort_keys=False), end="")
    return 1 if changed else 0


_EVERY_S = 2.0
_PAGE = 1_000
_MOST_PAGES = 20
_MOST_LINES = 100
_NAME_CHARS = 32
_MOST_BREAKS = 5
_GROUPS = ("team", "model", "client")
_ADDED = (*BILLED, "output_tokens", "last_seen")
_LIVE_NUMBERS = ("requests", "read", "written", "uncached", "hit", "cost $", "saved $", "idle")
_AROUND_LINES = 6
_MOST_WAITING = 50
_BAR_CELLS = 24
_MOST_CELLS = 120
_PLURALS = {"history": "messages", "files": "files", "symbols": "symbols", "urls": "pages", "images": "images"}
_COLORS = {"L0": "blue", "L1": "cyan", "L2": "green", "L3": "yellow"}


def _configure_top(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--by", choices=_GROUPS, help="add sessions up by team, by model or by kind of client")
    what.add_argument("--session", metavar="ID", help="show one session in its layers")
    parser.add_argument("--once", action="store_true", help="print once, and end")
    add_json(parser, "print JSON once, and end")
    parser.add_argument("--url", default="http://127.0.0.1:4000", help="the running proxy (default: %(default)s); "
                        "the master key is read from STRATIFORM_MASTER_KEY or LITELLM_MASTER_KEY")  # fmt: skip


def _run_top(arguments: argparse.Namespace) -> int:
    """Show sessions until the user interrupts the command, or once. Returns the exit status. Raises ConfigError."""

    async def work(ask: Ask) -> None:
        if arguments.json:
            print_json(await _asked(ask, arguments))
        elif arguments.once or not sys.stdout.isatty():
            Output().print(_view(await _asked(ask, arguments), arguments, _MOST_LINES))
        else:
            await _follow(ask, arguments)

    return run_with(arguments, work)


async def _follow(ask: Ask, arguments: argparse.Namespace) -> None:
    """Show the figures again and again. While the proxy does not answer, the last figures stay, with a note."""
    output = Output()
    content, pages = await _asked(ask, arguments), 1
    with Live(console=output, screen=True, auto_refresh=False) as live:
        problem = ""
        while True:
            view = _view(content, arguments, max(1, output.height - _AROUND_LINES))
            live.update(Group(view, Text(problem, "red")) if problem else view, refresh=True)
            # A long list costs the proxy more, so it is asked for less often.
            await asyncio.sleep(_EVERY_S * pages)
            try:
                content, problem = await _asked(ask, arguments), ""
                pages = max(1, len(content["data"]) // _PAGE) if "data" in content else 1
            except ProxyError as error:
                problem = error.message


async def _asked(ask: Ask, arguments: argparse.Namespace) -> dict[str, Any]:
    """The sessions or groups that are shown, as JSON values. Raises ProxyError."""
    if arguments.session is not None:
        if "/" in arguments.session:
            fail("a session's id has no slash")
        content: dict[str, Any] = await ask("GET", f"sessions/{arguments.session}/breakdown")
        return content
    query, sessions = {"limit": str(_PAGE)}, list[dict[str, Any]]()
    for _ in range(_MOST_PAGES):
        page = await ask("GET", "sessions", query)
        sessions += page["data"]
        if not page["has_more"]:
            break
        query["behind"] = page["behind"]
    # A session that is used while the list is read may come twice.
    found = {one["id"]: one for one in sessions}.values()
    standing = {name: page[name] for name in ("has_more", "as_of", "store_away")}
    if arguments.by is not None:
        groups = grouped(({**one, "sessions": 1} for one in found), (arguments.by,), ("sessions", *_ADDED))
        return {"object": "list", "by": arguments.by, "data": groups, **standing}
    return {"object": "list", "data": sorted(found, key=lambda one: -one["cost_usd"]), **standing}


def _view(content: Mapping[str, Any], arguments: argparse.Namespace, most: int) -> RenderableType:
    if arguments.session is not None:
        return Group(*_session(content))
    rows = content["data"]
    names = (arguments.by, "sessions") if arguments.by is not None else ("id", "team", "model", "client", "mode")
    table = plain_table((*names, *_LIVE_NUMBERS), ("sessions", *_LIVE_NUMBERS))
    for row in rows[:most]:
        table.add_row(*(_name(row[name]) for name in names), *_figures(row, content["as_of"]))
    if len(rows) > 1:
        (total,) = grouped(rows, (), _ADDED)
        table.add_row("total", *("" for _ in names[1:]), *_figures(total, content["as_of"]), style="bold")
    return Group(*_standing(content, most), table)


def _standing(content: Mapping[str, Any], most: int) -> Iterator[Text]:
    """The notes that a reader of the figures needs."""
    at = datetime.fromtimestamp(content["as_of"], UTC).strftime("%H:%M:%S")
    kind = f"by {content['by']}" if "by" in content else "sessions"
    yield Text(f"{len(content['data']):,} {kind} of the last day, as of {at} UTC", "dim")
    if content["store_away"]:
        yield Text("The store is away: these are the sessions that the asked process knows.", "red")
    if content["has_more"]:
        yield Text(f"There are more sessions than the {_MOST_PAGES * _PAGE:,} that are counted here.", "red")
    if len(content["data"]) > most:
        yield Text(f"The {most} dearest are shown; the total is that of all.", "dim")


def _figures(row: Mapping[str, Any], now: float) -> tuple[str, ...]:
    idle_s = now - row["last_seen"]
    longer = (f"{idle_s / size:.0f} {unit}" for unit, size in (("h", 3600), ("min", 60)) if idle_s >= 2 * size)
    return (
        f"{row['requests']:,}",
        f"{row['read_tokens']:,}",
        f"{row['write_tokens']:,}",
        f"{row['uncached_tokens']:,}",
        f"{row['hit_ratio']:.0%}",
        f"{row['cost_usd']:.4f}",
        f"{row['saved_usd']:.4f}",
        next(longer, f"{max(0.0, idle_s):.0f} s"),
    )


def _session(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    """One session: its identity and usage, its tiers as blocks, its cached content with the expiry, and its cache
    breaks."""
    about = (content[name] for name in ("team", "model", "client", "mode"))
    yield Text(" · ".join(_name(one) for one in (content["id"], *about)), "bold")
    table = plain_table(_LIVE_NUMBERS, _LIVE_NUMBERS)
    table.add_row(*_figures(content, content["as_of"]))
    yield from (table, "", diagram(content["blocks"]), "")
    for point in content["breakpoints"]:
        until = datetime.fromtimestamp(point["until"], UTC).strftime("%H:%M:%S")
        state = f"cached until {until} UTC" if point["is_live"] else f"was cached until {until} UTC"
        yield f"first {point['tokens']:,} tokens {state}"
    for key, tier in (*content["promotions"], *content["demotions"]):
        yield f"{'to' if [key, tier] in content['promotions'] else 'left'} {tier}: {_name(key)}"
    for one in content["culprits"][:_MOST_BREAKS]:
        yield f"{_name(one['culprit'])} broke the cache {one['breaks']} times: ${one['usd']:.4f}"
    if content["store_away"]:
        yield Text("The store is away: this is what the asked process knows.", "red")


def _name(value: object) -> str:
    """A name from outside, safe for a terminal and not too long."""
    text = visible(str(value or "-"))
    return text if len(text) <= _NAME_CHARS else f"{text[: _NAME_CHARS - 1]}…"


class Hud:
    """Writes reports (``proxy.services.session_book``) to a terminal, from a separate thread. If the thread cannot keep
    up, reports are left out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._reports: Queue[Mapping[str, Any]] = Queue(_MOST_WAITING)
        threading.Thread(target=self._write, name="hud", daemon=True).start()

    def show(self, report: Mapping[str, Any]) -> None:
        with suppress(Full):
            self._reports.put_nowait(report)

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # once the terminal is gone
            while True:
                width = min(_MOST_CELLS, get_terminal_size().columns)
                self._stream.write(drawn(self._reports.get(), width, self._stream.encoding or "utf-8"))
                self._stream.flush()


def drawn(report: Mapping[str, Any], width: int, encoding: str = "utf-8", *, has_colors: bool = True) -> str:
    """A report as the text for a terminal that is ``width`` cells wide. ``?`` stands for characters that its encoding
    lacks."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=has_colors,
        color_system="standard" if has_colors else None,
        highlight=False,
        markup=False,
    )
    title = Text.assemble(("stratiform ", "bold"), visible(report["model"]), f" · {report['mode']}, {report['reason']}")
    lines: list[RenderableType] = [diagram(report["tiers"]), ""] if report["tiers"] else []
    request, session = report["request"], report["session"]
    of_most = f" of {report['max_input_tokens']:,}" if report["max_input_tokens"] else ""
    lines.append(f"request  {request['prompt_tokens']:,}{of_most} in: {_parts(request)}")
    if session is not None:
        lines.append(
            f"session  {session['requests']} request{'' if session['requests'] == 1 else 's'}, "
            f"{session['prompt_tokens']:,} in: {_parts(session)}"
        )
        # The number of reads for each written token is the seed's return on investment.
        read, written = session["cache_read_tokens"], session["cache_write_tokens"]
        earned = f"cache ROI {100 * (read / written - 1):+.0f} %, " if written else ""
        lines.append(f"         {earned}empty tiers {report['empty_tiers']} (session {session['empty_tiers']})")
    console.print(Panel(Group(*lines), title=title, title_align="left", border_style="dim"))
    return out.getvalue().encode(encoding, "replace").decode(encoding)


def diagram(tiers: Sequence[Mapping[str, Any]]) -> Table:
    """The diagram of blocks: a line for each tier of the breakdown, with a bar as long as the tier's share of the
    tokens."""
    whole = max(1, sum(one["tokens"] for one in tiers))
    columns = Column(), Column(), Column(justify="right", no_wrap=True), Column(), Column()
    table = Table(*columns, box=None, pad_edge=False, show_header=False)
    for one in tiers:
        label = f"{one['tier']} ({one['threshold']}+)" if one["cached"] else one["tier"]
        bar = "█" * max(1, round(_BAR_CELLS * one["tokens"] / whole))
        # Only the provider's report tells what the provider has cached; the tier only says what should be cached.
        state = "[cached]" if one["cached"] else ""
        contents = []
        for each in one["contents"]:
            kind, count = each["type"], each["count"]
            name = f"{count} {_PLURALS[kind]}" if kind in _PLURALS and count > 1 else kind
            contents.append(f"{name} {each['tokens']:,}")
        colored = Text(bar, _COLORS.get(one["tier"], "dim"))
        table.add_row(label, colored, f"{one['tokens']:,}", state, ", ".join(contents))
    return table


def _parts(used: Mapping[str, Any]) -> str:
    read = f"read {used['cache_read_tokens']:,} ({used['cache_hit_rate']:.0%})"
    written, plain = f"written {used['cache_write_tokens']:,}", f"uncached {used['uncached_tokens']:,}"
    money = f"${used['cost_usd']:.4f}, saved ${used['saved_usd']:.4f}"
    by = " (estimated)" if used.get("estimated") else ""
    return f"{read}, {written}, {plain}; {used['completion_tokens']:,} out; {money}{by}"


spend = Command(_configure_spend, _run_spend)
prices = Command(_configure_prices, _run_prices)
top = Command(_configure_top, _run_top)
