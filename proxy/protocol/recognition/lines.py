"""The lines of a text: fenced code among them, the line breaks between pieces, and the lines that differ.

The lines in which blocks are searched come first, with their fenced code and their tags.

Then come line breaks. A provider joins the parts of a message with nothing between them. A piece that is moved takes
the line breaks in front of it along, so it begins a line of its own behind any other piece. The pieces that stay are
separated by the line breaks behind the moved piece. A carriage return belongs to the line that it ends.

Then the lines are found in which two versions of a text differ, also if the text is long and the differences are
far apart. Lines that occur once in each version, in the same order, are matched ("patience diff"). The lines between
two matches are compared again in the same way, so the time grows with the number of lines and not with its square.

At the end, blocks of lines that belong together are found: a list with its heading, a pair of tags with the lines
between them. Lines that are taken out of a text must be a complete statement, and must not leave a part of one behind.
The items of a list, or the rows below a heading, have a meaning only together.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

MAX_LINES: Final = 48
MAX_CHARS: Final = 2_000
"""A block of lines that may be moved is not longer than this."""

OPEN = re.compile(r"^\s*+<([A-Za-z][\w.-]*+)(?:\s[^<>]*+)?>\s*+$")
CLOSE = re.compile(r"^\s*+</([A-Za-z][\w.-]*+)>\s*+$")

FENCE = re.compile(r"^\s*+(`{3,}+|~{3,}+)")
FENCE_LINE = re.compile(r"^(`{3,64}+|~{3,64}+)", re.MULTILINE)

Range = tuple[int, int]


class Lines(tuple[str, ...]):
    """The lines of a text. If a line is too long for any block, only its two ends are kept, which together are still
    too long."""

    _fenced: dict[bool, tuple[Range, ...]]

    def __new__(cls, lines: Iterable[str]) -> "Lines":
        """The lines, each without its line break."""
        found = super().__new__(
            cls, (line if len(line) <= 2 * MAX_CHARS else line[:MAX_CHARS] + line[-MAX_CHARS:] for line in lines)
        )
        found._fenced = {}
        return found

    def with_code(self, first: int, last: int, *, is_strict: bool) -> Range:
        """These lines, extended to both ends of all fenced code that contains any of them. ``is_strict``: a fence may
        be indented, and a closing fence stands alone on its line. Otherwise a closing fence may be followed by more
        text."""
        if is_strict not in self._fenced:
            self._fenced[is_strict] = tuple(self._pairs(is_strict))
        known = self._fenced[is_strict]
        at = bisect_left(known, first, key=lambda pair: pair[1])
        if at < len(known) and known[at][0] < last:
            first = min(first, known[at][0])
            end = bisect_left(known, last, key=lambda pair: pair[0])
            last = max(last, known[end - 1][1] + 1)
        return first, last

    def _pairs(self, is_strict: bool) -> Iterator[Range]:
        """The lines of the fences: each opening fence with its closing one.

        If fenced code and a pair of tags overlap, it is unclear which fence opens and which one closes. So everything
        from there on counts as code.
        """
        opens, closes = self._tags()
        for opened, closed in self._fences(is_strict):
            if self._crosses_tags(opened, closed, opens, closes):
                yield opened, opened + len(self) + MAX_LINES
                return
            yield opened, closed

    def _tags(self) -> tuple[dict[str, int], dict[str, int]]:
        """For each name of a tag, the first line that opens it, and the last line that closes it."""
        opens: dict[str, int] = {}
        closes: dict[str, int] = {}
        for index, line in enumerate(self):
            if "<" not in line:
                continue
            if found := OPEN.match(line):
                opens.setdefault(found[1], index)
            elif found := CLOSE.match(line):
                closes[found[1]] = index
        return opens, closes

    def _crosses_tags(self, first: int, last: int, opens: dict[str, int], closes: dict[str, int]) -> bool:
        """Whether a tag between these lines belongs together with a tag outside of them."""
        inside: list[str] = []
        for line in self[first + 1 : last]:
            if "<" not in line:
                continue
            if found := OPEN.match(line):
                inside.append(found[1])
            elif found := CLOSE.match(line):
                if not inside and opens.get(found[1], first) < first:
                    return True
                if inside:
                    inside.pop()
        return any(closes.get(name, last) > last for name in inside)

    def _fences(self, is_strict: bool) -> Iterator[Range]:
        opened, fence = -1, ""
        for index, line in enumerate(self):
            if "```" not in line and "~~~" not in line:
                continue
            found = (FENCE if is_strict else FENCE_LINE).match(line)
            if found is None:
                continue
            if not fence:
                opened, fence = index, found.group(1)
            elif line.strip() == fence if is_strict else line.startswith(fence):
                yield opened, index
                fence = ""


_BLANKS = " \t\r\n"


def break_before(text: str, position: int, floor: int = 0) -> int:
    """The position where the line breaks in front of ``position`` begin: the end of the last line that has text, but
    not before ``floor``. If no line ends there, it is ``position`` itself."""
    said = floor + len(text[floor:position].rstrip(_BLANKS))
    end = text.find("\n", said, position)
    return position if end < 0 else end


def one_break_before(text: str, position: int) -> int:
    """The position of the single line break directly in front of ``position``; ``position`` itself if there is none."""
    return position - text.endswith("\n", 0, position)


def lines_before(text: str, lines: Range, limit: int) -> Range:
    """Whole lines that end before ``limit``. If the line break behind them is beyond the limit, they get the line break
    in front of them instead."""
    start, end = lines
    if end <= limit or text.startswith("\n", start):
        return start, min(end, limit)
    return one_break_before(text, start), limit


def bare_lines(text: str, lines: Range) -> str:
    """Whole lines. If the line break behind them belongs to another piece, the line break in front of them is
    removed."""
    start, end = lines
    is_shifted = not text.endswith("\n", start, end) and text.startswith("\n", end)
    return text[start:end].removeprefix("\n") if is_shifted else text[start:end]


def stay_apart(before: str, texts: Iterable[str]) -> bool:
    """Whether the texts can follow ``before`` and each other in any order, so that none begins on another's last
    line."""
    found = list(texts)
    return all(text.startswith("\n") for text in found) or all(text.endswith("\n") for text in (before, *found))


def can_follow(before: str, texts: Iterable[str]) -> bool:
    """Whether each of the texts can stand alone behind ``before`` without beginning on its last line."""
    return not before or before.endswith("\n") or all(text.startswith("\n") for text in texts)


# The greatest number of such rounds. Ranges that are still unmatched then differ as a whole.
_MOST_ROUNDS = 4

# A pair, and the chain of the pairs in front of it.
_Chain = tuple[tuple[int, int], "_Chain | None"]

Difference = tuple[int, int, int, int]
"""A range of lines of the earlier version (start and end), and the range in its place in the later version."""


def differences(before: Sequence[int], after: Sequence[int]) -> list[Difference]:
    """All differences, in order. Lines are compared as hashes."""
    return list(_differences(before, after, (0, len(before), 0, len(after)), _MOST_ROUNDS))


def _differences(before: Sequence[int], after: Sequence[int], span: Difference, rounds: int) -> Iterator[Difference]:
    low, high, first, last = span
    while low < high and first < last and before[low] == after[first]:
        low, first = low + 1, first + 1
    while low < high and first < last and before[high - 1] == after[last - 1]:
        high, last = high - 1, last - 1
    same = _anchors(before[low:high], after[first:last]) if rounds and low < high and first < last else []
    if not same:
        if low < high or first < last:
            yield low, high, first, last
        return
    old, new = low, first
    for at, place in (*same, (high - low, last - first)):
        yield from _differences(before, after, (old, low + at, new, first + place), rounds - 1)
        old, new = low + at + 1, first + place + 1


def _anchors(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """The longest list of lines that occur once in each version and have the same order in both."""
    counts, others = Counter(before), Counter(after)
    places = {line: index for index, line in enumerate(after) if others[line] == 1}
    return in_order((index, places[line]) for index, line in enumerate(before) if counts[line] == 1 and line in places)


def in_order(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most of these pairs whose second numbers ascend. The second numbers differ. The time is n log n."""
    tails: list[int] = []
    ends: list[_Chain] = []
    for pair in pairs:
        at = bisect_left(tails, pair[1])
        tails[at : at + 1], ends[at : at + 1] = [pair[1]], [(pair, ends[at - 1] if at else None)]
    found: list[tuple[int, int]] = []
    chain = ends[-1] if ends else None
    while chain is not None:
        pair, chain = chain
        found.append(pair)
    return found[::-1]


_MAX_HEADINGS = 3
_MAX_ROUNDS = 4
_MAX_HEADING_CHARS = 120

_MARKER = re.compile(r"^\s*+([-*+•|]|\d{1,4}[.)]|\[[ xX]\])(?:\s|$)")
_SENTENCE = re.compile(r"[.!?][)\"'*_`]*+\s*+$")
_SECTION = re.compile(r"(#{1,6})\s")


def block_of(lines: Lines, first: int, last: int) -> Range | None:
    """The lines ``first`` to ``last`` with the whole block that they belong to; None if the block is too large to be
    moved.

    Lines with a meaning of their own ("Open tickets: 5", a sentence) form a block alone. But if they are the only
    content of a pair of tags or of a heading, the block includes these, because otherwise the empty tags or heading
    would say that there is nothing. A block that becomes too large to be moved is not extended further. So a block
    takes no more time in a long text than in a short one, except for its fences.
    """
    core = _trimmed(lines, first, last)
    found = _closed(lines, *_grown(lines, *core))
    if found is not None and fits(lines, *found):
        return found
    stands = all(_is_named(line) or not _is_item(line) for line in lines[core[0] : core[1]])
    return core if stands and fits(lines, *core) and _closed(lines, *core, is_whole=False) == core else None


def closes_fences(text: str) -> bool:
    """Whether every fence that opens in a text closes in it."""
    position = 0
    while (opening := FENCE_LINE.search(text, position)) is not None:
        close = text.find("\n" + opening[0], opening.end())
        if close < 0:
            return False
        position = close + 1 + len(opening[0])
    return True


def fits(lines: Sequence[str], first: int, last: int) -> bool:
    """Whether a block of this size may be moved."""
    return last - first <= MAX_LINES and sum(len(line) + 1 for line in lines[first:last]) <= MAX_CHARS


def _trimmed(lines: Sequence[str], first: int, last: int) -> Range:
    """The lines without the blank lines around them."""
    while first < last and not lines[last - 1].strip():
        last -= 1
    while first < last and not lines[first].strip():
        first += 1
    return first, last


def _grown(lines: Lines, first: int, last: int) -> Range:
    """The lines with the rest of their list, or with the lines beside them that have no meaning alone, and with their
    headings."""
    fenced = _with_fences(lines, first, last)
    if fenced != (first, last):
        return _under_heading(lines, *fenced)
    if _is_in_list(lines, first, last):
        return _under_heading(lines, *_list_around(lines, first, last), is_list=True)
    paragraph = _headed_paragraph(lines, first, last)
    if paragraph is not None:
        return paragraph
    if all(_is_named(line) or _SENTENCE.search(line) for line in lines[first:last]) and first < last:
        return first, last
    if any(map(_is_fragment, lines[first:last])):
        first, last = _run(lines, first, last, _is_fragment)
    return _under_heading(lines, first, last)


def _is_in_list(lines: Sequence[str], first: int, last: int) -> bool:
    """Whether any of the lines is an item of a list, or the lines that were removed between them were items."""
    if first == last:
        return any(_is_item(line) for line in lines[max(0, first - 1) : first + 1])
    return any(map(_is_item, lines[first:last])) or (last < len(lines) and _is_indented(lines[last]))


def _list_around(lines: Sequence[str], first: int, last: int) -> Range:
    """The whole list, also if there are blank lines between its items. The line under which the items are indented is
    included."""
    before, behind = first, last
    while before >= 0 and last - first <= MAX_LINES:
        first, before = before, _next_item(lines, before - 1, -1)
    while behind >= 0 and last - first <= MAX_LINES:
        last, behind = behind, _next_item(lines, behind, 1) + 1 or -1
    if first < last and first > 0 and _is_indented(lines[first]):
        above = lines[first - 1]
        first -= _is_fragment(above) or (_is_named(above) and not _SENTENCE.search(above))
    return first, last


def _next_item(lines: Sequence[str], at: int, step: int) -> int:
    """The place of the list's next item in this direction; -1 if there is none."""
    if not 0 <= at < len(lines):
        return -1
    if lines[at].strip():
        return at if _is_item(lines[at]) else -1
    edge = at - step
    marker = _marker(lines[edge]) if 0 <= edge < len(lines) else ""
    while 0 <= at < len(lines) and not lines[at].strip():
        at += step
    return at if marker and 0 <= at < len(lines) and _marker(lines[at]) == marker else -1


def _headed_paragraph(lines: Sequence[str], first: int, last: int) -> Range | None:
    """The lines up to the next blank lines, if they are a heading with the lines that it introduces, and no
    instructions."""
    if first == last:
        return None
    begin, end = _run(lines, first, last, str.strip)
    others = (*lines[begin + 1 : first], *lines[last:end])
    is_headed = begin < first and is_heading(lines[begin]) and fits(lines, begin, end)
    return (begin, end) if is_headed and not any(map(_SENTENCE.search, others)) else None


def _run(lines: Sequence[str], first: int, last: int, belongs: Callable[[str], object]) -> Range:
    """The lines with those neighbours on both sides that belong to them."""
    while first > 0 and last - first <= MAX_LINES and belongs(lines[first - 1]):
        first -= 1
    while last < len(lines) and last - first <= MAX_LINES and belongs(lines[last]):
        last += 1
    return first, last


def _under_heading(lines: Sequence[str], first: int, last: int, *, is_list: bool = False) -> Range:
    """The lines with the headings directly above. The whole section is included, unless it is too large or holds
    instructions."""
    lowest = max(0, first - _MAX_HEADINGS)
    start = first
    while start > lowest and is_heading(lines[start - 1]) and not _SECTION.match(lines[start - 1]):
        start -= 1
    above = _above(lines, start)
    if start == first and 0 <= above < start - 1 and lines[above].rstrip().endswith(":") and is_heading(lines[above]):
        return above, last
    if start == first and above >= 0 and (level := _level(lines[above])):
        section = _trimmed(lines, above, _section_end(lines, above, last, level))
        others = (*lines[above + 1 : first], *lines[last : section[1]])
        if fits(lines, *section) and (is_list or not any(map(_SENTENCE.search, others))):
            return section
    return start, last


def _section_end(lines: Sequence[str], above: int, last: int, level: int) -> int:
    """The end of the section whose heading is the line ``above``. If the section is too long to be moved, the result is
    a place within it."""
    for index in range(last, len(lines)):
        if 0 < _level(lines[index]) <= level or CLOSE.match(lines[index]):
            return index
        if index > above + MAX_LINES and lines[index].strip():
            return index + 1
    return len(lines)


def _closed(lines: Lines, first: int, last: int, *, is_whole: bool = True) -> Range | None:
    """The lines with both tags of a pair, or with both fences. With ``is_whole`` they also include the tags, or the
    heading, that would be left empty.

    None if a tag has no partner, or if each round adds another tag.
    """
    for _ in range(_MAX_ROUNDS):
        before = first, last
        first, last = _with_fences(lines, first, last)
        if not fits(lines, first, last):
            return None
        names = _unpaired(lines[first:last])
        if names is None:
            return None
        opened, closed = names
        for name in reversed(opened):
            end = next((i for i in _near(last, len(lines)) if _name(CLOSE, lines[i]) == name), -1)
            if end < 0:
                return None
            last = end + 1
        for name in closed:
            first = next((i for i in _near(first - 1, -1, -1) if _name(OPEN, lines[i]) == name), -1)
            if first < 0:
                return None
        if is_whole and first < last:
            first, last = _emptied(lines, first, last)
        if (first, last) == before:
            return before
    return None


def _with_fences(lines: Lines, first: int, last: int) -> Range:
    """The lines with both ends of all fenced code that they touch, under both ways to read fences: a fence may be
    indented, and a closing fence may be followed by more text on its line."""
    return lines.with_code(*lines.with_code(first, last, is_strict=True), is_strict=False)


def _emptied(lines: Sequence[str], first: int, last: int) -> Range:
    """The lines with the pair of tags, or the heading of the section, that would be left empty."""
    above = _above(lines, first)
    below = next((i for i in range(last, len(lines)) if lines[i].strip()), len(lines))
    if above < 0:
        return first, last
    next_line = lines[below] if below < len(lines) else ""
    name, level = _name(OPEN, lines[above]), _level(lines[above])
    if name and name == _name(CLOSE, next_line):
        return above, below + 1
    if level and (below == len(lines) or 0 < _level(next_line) <= level or CLOSE.match(next_line)):
        return above, last
    return first, last


def _unpaired(lines: Iterable[str]) -> tuple[list[str], list[str]] | None:
    """Names of the tags that are opened and not closed, and of those that are closed and not opened; None if tags
    overlap."""
    opened: list[str] = []
    closed: list[str] = []
    for line in lines:
        if name := _name(OPEN, line):
            opened.append(name)
        elif name := _name(CLOSE, line):
            if not opened:
                closed.append(name)
            elif opened.pop() != name:
                return None
    return opened, closed


def _near(start: int, stop: int, step: int = 1) -> range:
    """The lines from ``start`` on, no farther away than a block that may be moved reaches."""
    return range(start, min(stop, start + MAX_LINES) if step > 0 else max(stop, start - MAX_LINES), step)


def _above(lines: Sequence[str], first: int) -> int:
    """The next line above that is not blank; -1 if there is none."""
    return next((i for i in range(first - 1, -1, -1) if lines[i].strip()), -1)


def is_heading(line: str) -> bool:
    """Whether a line is a heading of the lines below it."""
    text = line.strip()
    if not 0 < len(text) <= _MAX_HEADING_CHARS:
        return False
    is_bold = text.startswith("**") and text.endswith("**")
    return text.endswith(":") or is_bold or bool(_SECTION.match(text) or OPEN.match(text))


def _level(line: str) -> int:
    return len(_name(_SECTION, line))


def _name(pattern: re.Pattern[str], line: str) -> str:
    """The group of the pattern if the line begins with it, else nothing."""
    found = pattern.match(line)
    return found.group(1) if found is not None else ""


def _marker(line: str) -> str:
    marker = _name(_MARKER, line)
    return "1" if marker[:1].isdigit() else marker


def _is_indented(line: str) -> bool:
    return line[:1].isspace() and bool(line.strip())


def _is_item(line: str) -> bool:
    return (_is_indented(line) or bool(_marker(line))) and not any(each.match(line) for each in (OPEN, CLOSE, FENCE))


def _is_named(line: str) -> bool:
    """Whether a line names its own subject ("Open tickets: 5")."""
    return ": " in line.strip()


def _is_fragment(line: str) -> bool:
    """Whether a line has no meaning alone and is no item: neither a sentence, nor a heading, nor a tag or a fence."""
    is_apart = is_heading(line) or CLOSE.match(line) or FENCE.match(line) or _is_item(line)
    return bool(line.strip()) and not is_apart and not _is_named(line) and not _SENTENCE.search(line)
