"""The head-up display of ``stratiform serve --hud``. After each request it shows the request's tiers as a diagram of
blocks, and the usage of the request and of its session.

If the terminal's output is paused, only the display's own thread waits.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from queue import Full, Queue
from shutil import get_terminal_size
from typing import Any, TextIO

from rich.box import ASCII, ROUNDED
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from proxy.cli.output import visible

_MOST_WAITING = 50
_BAR_CELLS = 24
_MOST_CELLS = 120
_PLURALS = {"history": "messages", "files": "files", "symbols": "symbols", "urls": "pages", "images": "images"}
_PLAIN = {"█": "#", "·": "-", "…": "~"}
_COLORS = {"L0": "blue", "L1": "cyan", "L2": "green", "L3": "yellow"}


class Hud:
    """Writes reports (``proxy.planning.session_book``) to a terminal, from a separate thread. If the thread cannot keep
    up, reports are left out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._reports: Queue[Mapping[str, Any]] = Queue(_MOST_WAITING)
        threading.Thread(target=self._write, name="hud", daemon=True).start()

    def show(self, report: Mapping[str, Any]) -> None:
        with suppress(Full):
            self._reports.put_nowait(report)

    def _write(self) -> None:
        encoding = self._stream.encoding or "utf-8"
        with suppress(OSError, ValueError):  # once the terminal is gone
            while True:
                width = min(_MOST_CELLS, get_terminal_size().columns)
                self._stream.write(drawn(self._reports.get(), width, encoding))
                self._stream.flush()


def drawn(report: Mapping[str, Any], width: int, encoding: str = "utf-8", *, has_colors: bool = True) -> str:
    """A report as the text for a terminal that is ``width`` cells wide. Characters that its encoding lacks are replaced
    by others of the same width."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=has_colors,
        color_system="standard" if has_colors else None,
        highlight=False,
        markup=False,
    )
    box = ROUNDED if _is_shown("█╭", encoding) else ASCII
    title = Text.assemble(("stratiform ", "bold"), visible(report["model"]), f" · {report['mode']}, {report['reason']}")
    console.print(Panel(Group(*_lines(report)), title=title, title_align="left", border_style="dim", box=box))
    text = out.getvalue()
    if _is_shown(text, encoding):
        return text
    return "".join(one if _is_shown(one, encoding) else _PLAIN.get(one, "?" * cell_len(one)) for one in text)


def _is_shown(text: str, encoding: str) -> bool:
    try:
        return bool(text.encode(encoding))
    except UnicodeEncodeError:
        return False


def _lines(report: Mapping[str, Any]) -> Iterator[RenderableType]:
    if report["tiers"]:
        yield diagram(report["tiers"])
        yield ""
    request, session, most = report["request"], report["session"], report["max_input_tokens"]
    of_most = f" of {most:,}" if most else ""
    yield f"request  {request['prompt_tokens']:,}{of_most} in: {_parts(request)}"
    if session is not None:
        yield f"session  {session['requests']} requests, {session['prompt_tokens']:,} in: {_parts(session)}"
        yield f"         {_totals(report, session)}"


def diagram(tiers: Sequence[Mapping[str, Any]]) -> Table:
    """The diagram of blocks: a line for each tier of the breakdown, with a bar as long as the tier's share of the
    tokens."""
    whole = max(1, sum(one["tokens"] for one in tiers))
    tokens = Column(justify="right", no_wrap=True)
    table = Table(Column(), Column(), tokens, Column(), Column(), box=None, pad_edge=False, show_header=False)
    for one in tiers:
        label = f"{one['tier']} ({one['threshold']}+)" if one["cached"] else one["tier"]
        bar = "█" * max(1, round(_BAR_CELLS * one["tokens"] / whole))
        # Only the provider's report tells what the provider has cached; the tier only says what should be cached.
        state = "[cached]" if one["cached"] else ""
        color = _COLORS.get(one["tier"], "dim")
        table.add_row(label, Text(bar, color), f"{one['tokens']:,}", state, ", ".join(_contents(one["contents"])))
    return table


def _contents(contents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in contents:
        kind = one["type"]
        name = f"{one['count']} {_PLURALS[kind]}" if kind in _PLURALS and one["count"] > 1 else kind
        yield f"{name} {one['tokens']:,}"


def _parts(used: Mapping[str, Any]) -> str:
    read = f"read {used['cache_read_tokens']:,} ({used['cache_hit_rate']:.0%})"
    written, plain = f"written {used['cache_write_tokens']:,}", f"uncached {used['uncached_tokens']:,}"
    money = f"${used['cost_usd']:.4f}, saved ${used['saved_usd']:.4f}"
    is_estimate = " (estimated)" if used.get("estimated") else ""
    return f"{read}, {written}, {plain}; {used['completion_tokens']:,} out; {money}{is_estimate}"


def _totals(report: Mapping[str, Any], session: Mapping[str, Any]) -> str:
    """The number of reads for each written token (the seed's return on investment), and the tiers that were empty."""
    read, written = session["cache_read_tokens"], session["cache_write_tokens"]
    earned = f"cache ROI {100 * (read / written - 1):+.0f} %, " if written else ""
    return f"{earned}empty tiers {report['empty_tiers']} (session {session['empty_tiers']})"
