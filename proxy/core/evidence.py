"""Volatile lines found by evidence: they changed from one request to the next while their neighbours did not.

What is remembered of a system text are hashes of its lines; a volatile region is the pair of lines around it: so it
is found again whatever it says next time, in this session or in the client's next one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from zlib import crc32

from proxy.core.message import PLAIN_TEXT_KEYS, Message, piece_digest
from proxy.core.recognition import Cut, Form, PieceKind, Recognition
from proxy.core.wire import Unreadable, elements, members_of, value

_EDGE = 0
_MAX_LINES = 12
_MAX_CHARS = 2_000
_MAX_REGIONS = 6
_MAX_HEADINGS = 3
_MAX_TEXT_LINES = 5_000
_MAX_MEMO = 16


@dataclass(frozen=True, slots=True)
class Region:
    """Between the line ``before`` and the line ``after`` (hashes; 0 is the text's edge) of the system message in this
    place stands something that changes."""

    place: int
    before: int
    after: int


@dataclass(slots=True)
class Evidence:
    """The regions that a client's system messages were seen to change in."""

    regions: tuple[Region, ...] = ()

    def add(self, regions: Iterable[Region]) -> None:
        """What others have seen."""
        found = [region for region in regions if region not in self.regions]
        if found:
            self.regions = (*self.regions, *found)[-_MAX_REGIONS:]

    def learn(self, place: int, before: Sequence[int], after: Sequence[int]) -> None:
        """Two versions of one system message, as line hashes, from consecutive requests."""
        self.add(_changed(place, before, after))


@dataclass(slots=True)
class HeadLines:
    """The system messages of a session's last request, as line hashes."""

    lines: list[tuple[int, ...]] = field(default_factory=list)

    def follow(self, messages: Sequence[Message], evidence: Evidence) -> None:
        """A request that counts: compare, and remember."""
        now = [line_hashes(message) for message in messages]
        for place, (before, after) in enumerate(zip(self.lines, now, strict=False)):
            if before != after and len(self.lines) == len(now) and _is_one_text(before, after):
                evidence.learn(place, before, after)
        self.lines = now


def _is_one_text(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether most of a text stayed as it was. Else another one has taken its place, as where a client goes over to
    another mode and back: its instructions are no line that changes."""
    same = (Counter(before) & Counter(after)).elements()
    return 2 * _chars(same) >= max(_chars(before), _chars(after))


def _chars(lines: Iterable[int]) -> int:
    """How long the lines are, with their ends; a hash begins with its line's length."""
    return sum((line >> 32) + 1 for line in lines)


def line_hashes(message: Message) -> tuple[int, ...]:
    """One hash a line of the message's text; empty for anything but a text of reasonable length."""
    known = message.memo.get("lines")
    if isinstance(known, tuple):
        return known
    text = _text_of(message)
    lines = text.split("\n") if text is not None else []
    found = tuple(map(_line_hash, lines)) if len(lines) <= _MAX_TEXT_LINES else ()
    message.memo["lines"] = found
    return found


def _line_hash(line: str) -> int:
    """The same in every process. 0 stands for the text's edge."""
    data = line.encode("utf-8", "surrogatepass")
    return (len(data) << 32 | crc32(data)) or 1


def with_evidence(message: Message, place: int, evidence: Evidence) -> Message:
    """The message with its volatile regions cut out as such."""
    regions = tuple(region for region in evidence.regions if region.place == place)
    if not regions:
        return message
    known = message.memo.get(regions)
    if not isinstance(known, Message):
        known = _cut(message, regions)
        if len(message.memo) >= _MAX_MEMO:
            message.memo.clear()
        message.memo[regions] = known
    return known


def _changed(place: int, before: Sequence[int], after: Sequence[int]) -> list[Region]:
    """The regions in which two versions differ; none where they differ in too much to be called the same text."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if max(len(old), len(new)) > 40 * _MAX_LINES:
        return []
    found = []
    for tag, low, high, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if max(high - low, last - first) > _MAX_LINES:
            return []
        above, below = start + first - 1, start + last
        found.append(
            Region(
                place,
                after[above] if above >= 0 else _EDGE,
                after[below] if below < len(after) else _EDGE,
            )
        )
    whole = any(region.before == _EDGE and region.after == _EDGE for region in found)
    return [] if len(found) > 3 or (whole and place == 0) else found


def _cut(message: Message, regions: Sequence[Region]) -> Message:
    text = _text_of(message)
    if text is None or len(message.parts) != 1:
        return message
    known = message.recognition
    base = known.cuts if known is not None else (Cut("section:0", PieceKind.SECTION, 0, len(text)),)
    if known is not None and known.form is not Form.SYSTEM:
        return message
    spans = [span for region in regions if (span := _span(text, line_hashes(message), region)) is not None]
    cuts = _overlaid(base, sorted(spans))
    if cuts == base:
        return message
    digests = tuple(piece_digest(text[c.start : c.end]) for c in cuts)
    return replace(message, recognition=Recognition("system", Form.SYSTEM, cuts), text=text, cut_digests=digests)


def _span(text: str, lines: Sequence[int], region: Region) -> tuple[int, int] | None:
    """Where the region stands in this text: whole lines, with their ends."""
    if region.before == _EDGE:
        first = 0
    elif lines.count(region.before) == 1:
        first = lines.index(region.before) + 1
    else:
        return None
    if region.after == _EDGE:
        last = len(lines)
    else:
        try:
            last = lines.index(region.after, first)
        except ValueError:
            return None
    if not 0 <= last - first <= _MAX_LINES:
        return None
    texts = text.split("\n")
    first = _with_heading(texts, first, last)
    starts = [0]
    for line in texts:
        starts.append(starts[-1] + len(line) + 1)
    start, end = starts[first], min(starts[last], len(text))
    return (start, end) if text[start:end].strip() and end - start <= _MAX_CHARS else None


def _with_heading(lines: Sequence[str], first: int, last: int) -> int:
    """Where the region begins with what it is called: lines that do not name themselves ("Open tickets: 5" does) go
    with the headings above them, or a heading without its lines would say that there are none."""
    if any(": " in line for line in lines[first : min(last, first + 1)]):
        return first
    lowest = max(0, first - _MAX_HEADINGS)
    while first > lowest and lines[first - 1].strip() and _is_heading(lines[first - 1].strip()):
        first -= 1
    return first


def _is_heading(line: str) -> bool:
    return line.endswith(":") or line.startswith(("#", "<", "**"))


def _overlaid(base: Sequence[Cut], spans: Sequence[tuple[int, int]]) -> tuple[Cut, ...]:
    """The cuts with volatile spans laid over fixed sections; a span that touches anything else is left out."""
    result: list[Cut] = []
    number = 0
    for cut in base:
        position = cut.start
        inner = [s for s in spans if cut.start <= s[0] and s[1] <= cut.end] if cut.kind is PieceKind.SECTION else []
        for start, end in inner:
            if start < position:
                continue
            if start > position:
                result.append(Cut(f"section:{start}", PieceKind.SECTION, position, start))
            number += 1
            result.append(Cut(f"volatile:seen#{number}", PieceKind.VOLATILE, start, end))
            position = end
        if position < cut.end:
            result.append(Cut(cut.key, cut.kind, position, cut.end))
    return tuple(result)


def _text_of(message: Message) -> str | None:
    """The message's text, where it has one: a string, or a list of one text part."""
    if message.text is not None:
        return message.text
    try:
        content = members_of(message.raw).get("content")
        if content is None:
            return None
        if message.is_list:
            parts = [members_of(part) for part in elements(content)]
            is_plain = len(parts) == 1 and parts[0].keys() <= PLAIN_TEXT_KEYS
            content = parts[0].get("text") if is_plain else None
        found = value(content) if content is not None else None
    except Unreadable:
        return None
    return found if isinstance(found, str) else None
