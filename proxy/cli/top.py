"""``stratiform top``: live sessions in a terminal, or one session in its layers, from a running proxy's admin API.

The head-up display of ``stratiform serve --hud`` draws layers in the same way. After each request it shows the
request's tiers as a diagram of blocks, and the usage of the request and of its session. If the terminal's output is
paused, only the display's own thread waits.
"""

import argparse
import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import StringIO
from queue import Full, Queue
from shutil import get_terminal_size
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from proxy.app.admin.reports import BILLED, grouped
from proxy.cli import Output, add_json, fail, plain_table, print_json
from proxy.cli.admin_client import Ask, run_with
from proxy.kit.errors import ProxyError
from proxy.kit.messages import visible

_EVERY_S = 2.0
_PAGE = 1_000
_MOST_PAGES = 20
_MOST_LINES = 100
_NAME_CHARS = 32
_MOST_BREAKS = 5
_GROUPS = ("team", "model", "client")
_SUMS = (*BILLED, "output_tokens", "last_seen")
_NUMBERS = ("requests", "read", "written", "uncached", "hit", "cost $", "saved $", "idle")
_AROUND_LINES = 6
_MOST_WAITING = 50
_BAR_CELLS = 24
_MOST_CELLS = 120
_PLURALS = {"history": "messages", "files": "files", "symbols": "symbols", "urls": "pages", "images": "images"}
_COLORS = {"L0": "blue", "L1": "cyan", "L2": "green", "L3": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--by", choices=_GROUPS, help="add sessions up by team, by model or by kind of client")
    what.add_argument("--session", metavar="ID", help="show one session in its layers")
    parser.add_argument("--once", action="store_true", help="print once, and end")
    add_json(parser, "print JSON once, and end")
    parser.add_argument("--url", default="http://127.0.0.1:4000", help="the running proxy (default: %(default)s); "
                        "the master key is read from STRATIFORM_MASTER_KEY or LITELLM_MASTER_KEY")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
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
        groups = grouped(({**one, "sessions": 1} for one in found), (arguments.by,), ("sessions", *_SUMS))
        return {"object": "list", "by": arguments.by, "data": groups, **standing}
    return {"object": "list", "data": sorted(found, key=lambda one: -one["cost_usd"]), **standing}


def _view(content: Mapping[str, Any], arguments: argparse.Namespace, most: int) -> RenderableType:
    if arguments.session is not None:
        return Group(*_session(content))
    rows = content["data"]
    names = (arguments.by, "sessions") if arguments.by is not None else ("id", "team", "model", "client", "mode")
    table = plain_table((*names, *_NUMBERS), ("sessions", *_NUMBERS))
    for row in rows[:most]:
        table.add_row(*(_name(row[name]) for name in names), *_figures(row, content["as_of"]))
    if len(rows) > 1:
        (total,) = grouped(rows, (), _SUMS)
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
    table = plain_table(_NUMBERS, _NUMBERS)
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
        lines.append(f"session  {session['requests']} requests, {session['prompt_tokens']:,} in: {_parts(session)}")
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
