"""The report as one HTML page, with its pictures inside. It loads nothing, and runs no script."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from proxy.doctor.report import ClientReport, CulpritReport, Report, figures
from proxy.doctor.sentences import happened, problem_text, usd, visible
from proxy.replay.svg import element, picture

_BARS = 12
_WIDTH, _NAMES, _VALUES, _ROW = 860.0, 330.0, 140.0, 26.0
_NAME_CHARS = 44
_TITLE = "Why the cache missed"
_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --back: #ffffff; --quiet: #59636e; --line: #d1d9e0; --card: #f6f8fa;
  --waste: #c2410c; --rightful: #7d8590; --good: #0a74d1 }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --quiet: #9198a1; --line: #30363d;
  --card: #151b23; --waste: #f0883e; --rightful: #7d8590; --good: #4493f8 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 920px;
  margin: 2em auto; padding: 0 1.2em }
h1 { font-size: 1.5em; margin-bottom: .2em } h2 { font-size: 1.2em; margin: 0 }
h3 { font-size: 1em; margin: 1.4em 0 .3em }
section { border: 1px solid var(--line); border-radius: 8px; padding: 1.1em 1.3em; margin: 1.4em 0 }
.quiet { color: var(--quiet) } .figures { display: flex; flex-wrap: wrap; gap: .6em; margin: .9em 0; padding: 0 }
.figures li { list-style: none; background: var(--card); border-radius: 6px; padding: .35em .7em }
svg { width: 100%; height: auto; display: block } svg text { font: 13px system-ui, sans-serif; fill: var(--text) }
svg .waste { fill: var(--waste) } svg .rightful { fill: var(--rightful) } svg .good { fill: var(--good) }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .35em .6em;
  border-top: 1px solid var(--line) }
th { font-weight: 600; border-top: 0 } td.n, th.n { text-align: right; white-space: nowrap }
td { overflow-wrap: anywhere } .tag { color: var(--quiet); font-size: .85em; white-space: nowrap }
"""


Bar = tuple[str, float, str, str]
"""One row of a picture: its name, how long it is, what stands behind it, and its class of the style sheet."""


def page(report: Report) -> str:
    """The whole document."""
    body = "\n".join(_body(report))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_TITLE}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _tag(name: str, inner: Iterable[str] | str, css: str = "") -> str:
    """An element around HTML."""
    attribute = f' class="{css}"' if css else ""
    return f"<{name}{attribute}>{inner if isinstance(inner, str) else ''.join(inner)}</{name}>"


def _list(texts: Iterable[str], css: str = "") -> str:
    return _tag("ul", (_tag("li", escape(text)) for text in texts), css)


def _bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars below each other, on one scale."""
    most = max((size for _, size, _, _ in rows), default=0.0) or 1.0
    drawn = []
    for number, (name, size, value, style) in enumerate(rows):
        middle, length = 4 + _ROW * (number + 0.5), max(0.0, size) / most * (_WIDTH - _NAMES - _VALUES)
        shown = name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…"
        drawn += [
            element("text", shown, x=_NAMES - 10, y=middle + 4, text_anchor="end", class_="name"),
            element("rect", x=_NAMES, y=middle - 8, width=max(length, 1.0), height=16.0, rx=2, class_=style),
            element("text", value, x=_NAMES + length + 8, y=middle + 4, class_="value"),
        ]
    return picture(_WIDTH, _ROW * len(rows) + 8, title, "", drawn)


def _body(report: Report) -> Iterator[str]:
    yield _tag("h1", _TITLE)
    lost = "What that costs a month is not told by the logs."
    if report.lost_usd_month is not None:
        wasted = usd(report.waste_usd_month or 0.0)
        lost = f"{usd(report.lost_usd_month)} a month are lost at this rate; {wasted} of it is waste."
    yield _tag("p", f"{report.calls:,} calls of {len(report.clients):,} clients. {lost}", "quiet")
    costly = [(visible(each.client), each.lost_usd_month) for each in report.clients if each.lost_usd_month]
    if len(costly) > 1:
        title = "Lost by client, USD a month"
        bars = [(name, amount, usd(amount), "waste") for name, amount in costly[:_BARS]]
        yield _tag("section", _tag("h2", title) + _bars(title, bars))
    for client in report.clients:
        yield _tag("section", _client(client))
    if report.problems:
        yield _tag("section", _tag("h2", "What could not be read") + _list(map(problem_text, report.problems)))


def _client(client: ClientReport) -> Iterator[str]:
    yield _tag("h2", escape(visible(client.client)))
    models = ", ".join(visible(model) or "(no model)" for model in client.models[:6])
    yield _tag("div", escape(f"{client.calls:,} calls, {client.sessions:,} sessions, {models}"), "quiet")
    yield _list(figures(client), "figures")
    costly = [culprit for culprit in client.culprits if culprit.lost_tokens or culprit.usd]
    if costly:
        yield _tag("h3", "Culprits") + _bars("Culprits by what they cost", [_bar(each) for each in costly[:_BARS]])
        names = (_tag("th", "what to do"), _tag("th", "breaks", "n"), _tag("th", "tokens lost", "n"))
        yield _tag("table", [_tag("tr", names), *map(_row, costly)])
    else:
        yield _tag("p", "No break was found that has cost anything.")
    yield _tag("h3", "Modes")
    if client.modes:
        tried = f"Tried on {client.replayed:,} of {client.calls:,} calls; cost as a share of passthrough."
        yield _bars("Cost by mode", list(_mode_bars(client))) + _tag("p", tried, "quiet")
    else:
        yield _tag("p", escape(client.modes_untold[:1].upper() + client.modes_untold[1:] + "."), "quiet")
    if client.gaps:
        yield _tag("h3", "What this log does not tell") + _list(client.gaps, "quiet")


def _bar(culprit: CulpritReport) -> Bar:
    month, lost = culprit.usd_month, culprit.lost_tokens
    size, value = (float(lost), f"{lost:,} tokens") if month is None else (month, usd(month))
    return visible(happened(culprit)), size, value, "waste" if culprit.is_waste else "rightful"


def _row(culprit: CulpritReport) -> str:
    advice = escape(visible(culprit.advice)) + ("" if culprit.is_waste else " " + _tag("span", "no waste", "tag"))
    numbers = (_tag("td", f"{number:,}", "n") for number in (culprit.breaks, culprit.lost_tokens))
    return _tag("tr", [_tag("td", advice), *numbers])


def _mode_bars(client: ClientReport) -> Iterator[Bar]:
    for mode in client.modes:
        saved = mode.saved_usd_month or 0.0
        told = f", {usd(abs(saved))} {'saved' if saved > 0 else 'more'}" if saved else ""
        yield f"{mode.mode}, {mode.hit_ratio:.0%} read", mode.cost_share, f"{mode.cost_share:.3f}{told}", "good"
