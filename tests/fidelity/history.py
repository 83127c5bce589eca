"""What the earlier requests of a client show: which lines of its system texts change.

A line moves if it says what time it is, or was seen to change.
What moves with such a line, its neighbour in the text, may be static: a block whose lines change by turns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .tags import extra_tags
from .view import View

_CLOCK = re.compile(
    r"\b(?:current|now|today|time|date|datetime|timestamp|currently)\b.*\d{1,2}:\d\d"
    r"|\d{1,2}:\d\d.*\b(?:now|today|currently)\b|\W*\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*(?: [A-Z]{1,4})?\W*$",
    re.IGNORECASE,
)


def _system_texts(messages: Sequence[View]) -> list[str]:
    return [message.joined for message in messages if message.is_system and message.texts is not None]


@dataclass(slots=True)
class History:
    """The system texts of all requests so far."""

    lines: list[frozenset[str]] = field(default_factory=list)

    def add(self, original: Sequence[View]) -> None:
        """One more request, as the client sent it."""
        texts = _system_texts(original)
        self.lines.append(frozenset(line for text in texts for line in text.split("\n")))

    def static_lines(self, original: Sequence[View], sent: Sequence[View]) -> int:
        """How many lines were moved into the tag that every request so far holds, and none of whose neighbours in the
        tag changes or tells the time."""
        tag = extra_tags(list(original), list(sent))
        joined = "\n".join(_system_texts(original))
        run: list[str] = []
        static = 0
        for line in [*tag.lines, None]:
            if line is not None and (not run or "\n".join([*run, line]) in joined):
                run.append(line)
                continue
            static += len(run) if all(map(self._is_static, run)) else 0
            run = [line] if line is not None else []
        return static

    def _is_static(self, line: str) -> bool:
        return all(line in lines for lines in self.lines) and _CLOCK.search(line) is None
