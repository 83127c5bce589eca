"""The report as one HTML page (``page.html``), with its pictures inside. It loads nothing, and runs no script."""

from pathlib import Path

from proxy.doctor.report import CulpritReport, ModeReport, Report, costly, figures, happened, problem_text, usd, visible
from proxy.replay.templates import templates_in

_BARS = 12

Bar = tuple[str, float, str, str]
"""One row of a picture: its name, its length, the text behind it, and its class in the style sheet."""


def page(report: Report) -> str:
    """The whole document. Every text is escaped, whatever its source."""
    environment = templates_in(Path(__file__).parent)
    shown = (costly, figures, problem_text, usd, visible)
    environment.filters |= {one.__name__: one for one in shown} | {"bar": _bar, "mode_bar": _mode_bar}
    clients = [(visible(each.client), each.lost_usd_month) for each in report.clients if each.lost_usd_month]
    bars = [(name, amount, usd(amount), "waste") for name, amount in clients[:_BARS]]
    return environment.get_template("page.html").render(report=report, clients=bars)


def _bar(culprit: CulpritReport) -> Bar:
    month, lost = culprit.usd_month, culprit.lost_tokens
    size, value = (float(lost), f"{lost:,} tokens") if month is None else (month, usd(month))
    return visible(happened(culprit)), size, value, "waste" if culprit.is_waste else "rightful"


def _mode_bar(mode: ModeReport) -> Bar:
    saved = mode.saved_usd_month or 0.0
    told = f", {usd(abs(saved))} {'saved' if saved > 0 else 'more'}" if saved else ""
    return f"{mode.mode}, {mode.hit_ratio:.0%} read", mode.cost_share, f"{mode.cost_share:.3f}{told}", "good"
