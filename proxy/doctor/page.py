"""The report as one HTML page, with its pictures inside. It loads nothing, and runs no script."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from proxy.doctor.charts import Bar, bars
from proxy.doctor.report import ClientReport, CulpritReport, Report, usd
from proxy.doctor.wording import culprit_name, figures, problem_text, visible

_BARS = 12
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


def page(report: Report) -> str:
    """The whole document."""
    body = "\n".join(_body(report))
    title = "Why the cache missed"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _tag(name: str, inner: Iterable[str] | str, css: str = "") -> str:
    """An element around HTML."""
    attribute = f' class="{css}"' if css else ""
    return f"<{name}{attribute}>{inner if isinstance(inner, str) else ''.join(inner)}</{name}>"


def _body(report: Report) -> Iterator[str]:
    yield _tag("h1", "Why the cache missed")
    lost = "What that costs a month is not told by the logs."
    if report.lost_usd_month is not None:
        wasted = usd(report.waste_usd_month or 0.0)
        lost = f"{usd(report.lost_usd_month)} a month are lost at this rate; {wasted} of it is waste."
    yield _tag("p", f"{report.calls:,} calls of {len(report.clients):,} clients. {lost}", "quiet")
    costly = [client for client in report.clients if client.lost_usd_month]
    if len(costly) > 1:
        rows = [
            Bar(visible(client.client), client.lost_usd_month or 0.0, usd(client.lost_usd_month or 0.0), "waste")
            for client in costly[:_BARS]
        ]
        yield _tag("section", _tag("h2", "Lost by client, USD a month") + bars("Lost by client, USD a month", rows))
    for client in report.clients:
        yield _tag("section", _client(client))
    if report.problems:
        items = (_tag("li", escape(problem_text(problem))) for problem in report.problems)
        yield _tag("section", _tag("h2", "What could not be read") + _tag("ul", items))


def _client(client: ClientReport) -> Iterator[str]:
    yield _tag("h2", escape(visible(client.client)))
    models = ", ".join(visible(model) or "(no model)" for model in client.models[:6])
    yield _tag("div", escape(f"{client.calls:,} calls, {client.sessions:,} sessions, {models}"), "quiet")
    yield _tag("ul", (_tag("li", escape(text)) for text in figures(client)), "figures")
    costly = [culprit for culprit in client.culprits if culprit.lost_tokens]
    if costly:
        yield _tag("h3", "Culprits")
        yield bars("Culprits by what they cost", [_bar(culprit) for culprit in costly[:_BARS]])
        yield _culprits(costly)
    else:
        yield _tag("p", "No break was found that has cost anything.")
    yield _tag("h3", "Modes")
    if client.modes:
        tried = f"Tried on {client.replayed:,} of {client.calls:,} calls; cost as a share of passthrough."
        yield bars("Cost by mode", list(_mode_bars(client))) + _tag("p", tried, "quiet")
    else:
        yield _tag("p", escape(client.modes_untold[:1].upper() + client.modes_untold[1:] + "."), "quiet")
    if client.gaps:
        yield _tag("h3", "What this log does not tell")
        yield _tag("ul", (_tag("li", escape(gap)) for gap in client.gaps), "quiet")


def _bar(culprit: CulpritReport) -> Bar:
    size = culprit.usd_month if culprit.usd_month is not None else float(culprit.lost_tokens)
    value = f"{culprit.lost_tokens:,} tokens" if culprit.usd_month is None else usd(size)
    return Bar(culprit_name(culprit), size, value, "waste" if culprit.is_waste else "rightful")


def _mode_bars(client: ClientReport) -> Iterator[Bar]:
    for mode in client.modes:
        saved = (
            ""
            if not mode.saved_usd_month
            else f", {usd(abs(mode.saved_usd_month))} {'saved' if mode.saved_usd_month > 0 else 'more'}"
        )
        yield Bar(f"{mode.mode}, {mode.hit_ratio:.0%} read", mode.cost_share, f"{mode.cost_share:.3f}{saved}", "good")


def _culprits(culprits: Sequence[CulpritReport]) -> str:
    numbers = ("breaks", "tokens lost")
    head = _tag("tr", (_tag("th", "what to do") + "".join(_tag("th", name, "n") for name in numbers)))
    rows = (
        _tag(
            "tr",
            _tag("td", escape(visible(each.advice)) + ("" if each.is_waste else " " + _tag("span", "no waste", "tag")))
            + _tag("td", f"{each.breaks:,}", "n")
            + _tag("td", f"{each.lost_tokens:,}", "n"),
        )
        for each in culprits
    )
    return _tag("table", head + "".join(rows))
