"""The report's pictures as SVG, to stand within a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.replay.svg import element, picture

_WIDTH, _NAMES, _VALUES, _ROW = 860.0, 330.0, 140.0, 26.0
_NAME_CHARS = 44


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: its name, how long it is, what stands behind it, and its class of the style sheet."""

    name: str
    size: float
    value: str
    style: str


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars below each other, on one scale."""
    return picture(_WIDTH, _ROW * len(rows) + 8, title, "", _drawn(rows))


def _drawn(rows: Sequence[Bar]) -> Iterator[str]:
    most = max((row.size for row in rows), default=0.0) or 1.0
    room = _WIDTH - _NAMES - _VALUES
    for number, row in enumerate(rows):
        middle = 4 + _ROW * (number + 0.5)
        length = max(0.0, row.size) / most * room
        shown = row.name if len(row.name) <= _NAME_CHARS else row.name[: _NAME_CHARS - 1] + "…"
        yield element("text", shown, x=_NAMES - 10, y=middle + 4, text_anchor="end", class_="name")
        yield element("rect", x=_NAMES, y=middle - 8, width=max(length, 1.0), height=16.0, rx=2, class_=row.style)
        yield element("text", row.value, x=_NAMES + length + 8, y=middle + 4, class_="value")
