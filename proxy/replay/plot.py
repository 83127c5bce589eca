"""The comparison as a picture: one line a trace, a dot for each policy, the limits as ticks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from proxy.replay.baselines import SYSTEM_LAST
from proxy.replay.benchmark import FIXED, FREE, by_kind, means, shares
from proxy.replay.comparison import BEST, ECONOMIC, Comparison
from proxy.replay.svg import element, picture

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _GAP, _BOTTOM = 960.0, 260.0, 60.0, 84.0, 22.0, 12.0, 44.0
_STEP = 0.25
_NAME_CHARS = 38

# Colours that hold on white and on black (contrast of at least 3 : 1 on either).
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.back { fill: #ffffff }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #57606a }
.mean { font-weight: 600 }
.grid { stroke: #8c959f; stroke-opacity: 0.25 }
.one { stroke: #8c959f; stroke-dasharray: 4 3 }
.band { fill: #8c959f; fill-opacity: 0.1 }
.span { stroke: #8c959f; stroke-opacity: 0.55; stroke-width: 2 }
.system-last { fill: none; stroke: #bc5a00; stroke-width: 2 }
.economic { fill: #0a74d1 }
.best { fill: none; stroke: #1a8a3c; stroke-width: 2 }
.limit { stroke: #7d5bd0; stroke-width: 2 }
.free { stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .back { fill: #0d1117 } .quiet { fill: #9198a1 }
}
"""

_Draw = Callable[[float, float], str]


def _circle(name: str) -> _Draw:
    return lambda x, y: element("circle", cx=x, cy=y, r=5.0, class_=name)


def _diamond(x: float, y: float) -> str:
    return element("path", d=f"M {x:.1f} {y - 6:.1f} l 6 6 l -6 6 l -6 -6 z", class_="best")


def _tick(name: str) -> _Draw:
    return lambda x, y: element("line", x1=x, x2=x, y1=y - 8, y2=y + 8, class_=name)


# Drawn in this order: what matters most lies on top.
_MARKS: Mapping[str, _Draw] = MappingProxyType(
    {
        FREE: _tick("limit free"),
        FIXED: _tick("limit"),
        SYSTEM_LAST: _circle("system-last"),
        BEST: _diamond,
        ECONOMIC: _circle("economic"),
    }
)
_LEGEND: Mapping[str, str] = MappingProxyType(
    {
        SYSTEM_LAST: "markers on system + last",
        ECONOMIC: "Stratiform (economic)",
        BEST: "best found in hindsight",
        FIXED: "limit of the client's order",
        FREE: "limit of any order",
    }
)


def plot(found: Sequence[Comparison], profile: str) -> str:
    """The SVG document."""
    kinds = by_kind(found)
    rows = sum(len(some) + 1 for _, some in kinds)
    height = _TOP + rows * _ROW + len(kinds) * _GAP + _BOTTOM
    most = max((max(shares(one).values()) for one in found), default=1.0)
    most = max(1.0, -(-most // _STEP) * _STEP)
    title = f"Input cost as a share of no caching, cache rules: {profile}"
    return picture(_WIDTH, height, title, _STYLE, _body(found, title, height, most))


def _body(found: Sequence[Comparison], title: str, height: float, most: float) -> Iterator[str]:
    yield element("rect", width="100%", height="100%", class_="back")
    yield element("text", title, x=16, y=28, class_="title")
    yield from _legend()
    yield from _axis(height, most)
    by_name = {mean.name: mean for mean in means(found)}
    y = _TOP
    for kind, some in by_kind(found):
        y += _GAP
        for one in some:
            y += _ROW
            yield from _row(one.trace, shares(one), y - _ROW / 2, most, "")
        y += _ROW
        yield element("rect", x=8, y=y - _ROW + 1, width=_WIDTH - 16, height=_ROW - 2, rx=3, class_="band")
        yield from _row(f"{kind}: geometric mean", by_name[kind].shares, y - _ROW / 2, most, "mean")


def _legend() -> Iterator[str]:
    x = 24.0
    for name, text in _LEGEND.items():
        yield _MARKS[name](x, 54.0)
        yield element("text", text, x=x + 12, y=58, class_="quiet")
        x += 40 + 6.4 * len(text)


def _axis(height: float, most: float) -> Iterator[str]:
    bottom = height - _BOTTOM + 8
    for number in range(round(most / _STEP) + 1):
        share = number * _STEP
        x = _x(share, most)
        yield element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="one" if share == 1 else "grid")
        yield element("text", f"{share:g}", x=x, y=bottom + 16, text_anchor="middle", class_="quiet")
    yield element("text", "no caching", x=_x(1.0, most), y=_TOP - 6, text_anchor="end", class_="quiet")
    yield element("text", "ours", x=_WIDTH - 16, y=_TOP - 6, text_anchor="end", class_="quiet")


def _row(name: str, costs: Mapping[str, float], y: float, most: float, style: str) -> Iterator[str]:
    shown = name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…"
    yield element("text", shown, x=_LEFT - 12, y=y + 4, text_anchor="end", class_=style or "row")
    points = {mark: _x(costs[mark], most) for mark in _MARKS}
    yield element("line", x1=min(points.values()), x2=max(points.values()), y1=y, y2=y, class_="span")
    for mark, draw in _MARKS.items():
        yield draw(points[mark], y)
    ours = f"{costs[ECONOMIC]:.2f}"
    yield element("text", ours, x=_WIDTH - 16, y=y + 4, text_anchor="end", class_=style or "row")


def _x(share: float, most: float) -> float:
    return _LEFT + share / most * (_WIDTH - _LEFT - _RIGHT)
