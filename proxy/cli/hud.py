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
        with suppress(OSError, ValueError):  # once the terminal is gone
            while True:
                width = min(_MOST_CELLS, get_terminal_size().columns)
                self._stream.write(drawn(self._reports.get(), width, self._stream.encoding or "utf-8"))
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
    request, session = report["request"], report["session"]
    of_most = f" of {report['max_input_tokens']:,}" if report["max_input_tokens"] else ""
    yield f"request  {request['prompt_tokens']:,}{of_most} in: {_parts(request)}"
    if session is not None:
        yield f"session  {session['requests']} requests, {session['prompt_tokens']:,} in: {_parts(session)}"
        # The number of reads for each written token is the seed's return on investment.
        read, written = session["cache_read_tokens"], session["cache_write_tokens"]
        earned = f"cache ROI {100 * (read / written - 1):+.0f} %, " if written else ""
        yield f"         {earned}empty tiers {report['empty_tiers']} (session {session['empty_tiers']})"


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
        colored = Text(bar, _COLORS.get(one["tier"], "dim"))
        table.add_row(label, colored, f"{one['tokens']:,}", state, ", ".join(map(_content, one["contents"])))
    return table


def _content(one: Mapping[str, Any]) -> str:
    kind, count = one["type"], one["count"]
    name = f"{count} {_PLURALS[kind]}" if kind in _PLURALS and count > 1 else kind
    return f"{name} {one['tokens']:,}"


def _parts(used: Mapping[str, Any]) -> str:
    read = f"read {used['cache_read_tokens']:,} ({used['cache_hit_rate']:.0%})"
    written, plain = f"written {used['cache_write_tokens']:,}", f"uncached {used['uncached_tokens']:,}"
    money = f"${used['cost_usd']:.4f}, saved ${used['saved_usd']:.4f}"
    by = " (estimated)" if used.get("estimated") else ""
    return f"{read}, {written}, {plain}; {used['completion_tokens']:,} out; {money}{by}"
