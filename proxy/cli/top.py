"""``stratiform top``: live sessions in a terminal, or one session in its layers, from a running proxy's admin API."""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from proxy.admin.spend import BILLED, grouped
from proxy.cli.admin_client import Ask, run_with
from proxy.cli.hud import diagram
from proxy.cli.output import Output, add_json, fail, plain_table, print_json, visible
from proxy.errors import ProxyError

_URL = "http://127.0.0.1:4000"
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


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--by", choices=_GROUPS, help="add sessions up by team, by model or by kind of client")
    what.add_argument("--session", metavar="ID", help="show one session in its layers")
    parser.add_argument("--once", action="store_true", help="print once, and end")
    add_json(parser, "print JSON once, and end")
    parser.add_argument("--url", default=_URL, help=f"the running proxy (default: {_URL}); the master key is read from "
                        "STRATIFORM_MASTER_KEY or LITELLM_MASTER_KEY")  # fmt: skip


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
    return (
        f"{row['requests']:,}",
        f"{row['read_tokens']:,}",
        f"{row['write_tokens']:,}",
        f"{row['uncached_tokens']:,}",
        f"{row['hit_ratio']:.0%}",
        f"{row['cost_usd']:.4f}",
        f"{row['saved_usd']:.4f}",
        _ago(now - row["last_seen"]),
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


def _ago(seconds: float) -> str:
    longer = (f"{seconds / size:.0f} {unit}" for unit, size in (("h", 3600), ("min", 60)) if seconds >= 2 * size)
    return next(longer, f"{max(0.0, seconds):.0f} s")
