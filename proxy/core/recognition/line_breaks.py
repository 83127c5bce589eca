"""Line breaks between the pieces of a text: two lines that were apart stay apart, whatever is moved.

A provider joins the parts of a message with nothing between them. A piece that is moved brings the line breaks in front
of it along, so that it begins a line of its own behind any other piece, and what it leaves behind is separated by the
line breaks that follow it. A carriage return belongs to the line that it ends.
"""

from collections.abc import Iterable

from proxy.core.recognition.lines import Range

_BLANKS = " \t\r\n"


def break_before(text: str, position: int, floor: int = 0) -> int:
    """The position where the line breaks in front of ``position`` begin: the end of the last line that has text, but
    not before ``floor``. It is ``position`` itself where no line ends there."""
    said = floor + len(text[floor:position].rstrip(_BLANKS))
    end = text.find("\n", said, position)
    return position if end < 0 else end


def one_break_before(text: str, position: int) -> int:
    """The position of the one line break that stands directly in front of ``position``; ``position`` itself where there
    is none."""
    return position - text.endswith("\n", 0, position)


def lines_before(text: str, lines: Range, limit: int) -> Range:
    """Whole lines that end before ``limit``. Where the break behind them lies beyond the limit, they get the break in
    front of them instead."""
    start, end = lines
    if end <= limit or text.startswith("\n", start):
        return start, min(end, limit)
    return one_break_before(text, start), limit


def bare_lines(text: str, lines: Range) -> str:
    """Whole lines, without the break in front of them where the break behind them belongs to another piece."""
    start, end = lines
    found = text[start:end]
    is_shifted = not found.endswith("\n") and text.startswith("\n", end)
    return found.removeprefix("\n") if is_shifted else found


def stay_apart(before: str, texts: Iterable[str]) -> bool:
    """Whether the texts can follow ``before``, and each other, in any order, and none begins on another's last line."""
    found = list(texts)
    return all(text.startswith("\n") for text in found) or all(text.endswith("\n") for text in (before, *found))


def can_follow(before: str, texts: Iterable[str]) -> bool:
    """Whether each of the texts can stand alone behind ``before`` without beginning on its last line."""
    return not before or before.endswith("\n") or all(text.startswith("\n") for text in texts)
