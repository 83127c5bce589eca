"""What a model has found in a conversation: where its newest topic begins, and a summary of what is older.

The model that answers has read the conversation, and whatever somebody has put into it: its answer is checked like any
other input from outside. What is not exactly of the form that was asked for counts as no answer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

MOST_SUMMARY_CHARS = 8_000
_MOST_ANSWER_CHARS = 64_000
_MOST_STARTS = 16
"""So many opening braces are tried. Each try reads the answer once at most."""


@dataclass(frozen=True, slots=True)
class CompactionFinding:
    """``boundary`` is the number of the message with which the newest topic begins, among those that the model was
    shown; 0 where all of them are of one topic. ``confidence`` in it is from 0 to 1. ``summary`` is of all that is
    older."""

    boundary: int
    confidence: float
    summary: str


def read_finding(answer: str, count: int) -> CompactionFinding | None:
    """The finding in an answer about so many messages: the first JSON object in it, wherever it stands. None where the
    answer has none, or where any of its three members is not of its kind or not within its bounds."""
    found = _first_object(answer) if len(answer) <= _MOST_ANSWER_CHARS else None
    if found is None:
        return None
    boundary, confidence, summary = (found.get(name) for name in ("boundary", "confidence", "summary"))
    # To Python, true and false are numbers.
    if not isinstance(boundary, int) or isinstance(boundary, bool) or not 0 <= boundary < count:
        return None
    if not isinstance(confidence, int | float) or isinstance(confidence, bool) or not 0 <= confidence <= 1:
        return None
    if not isinstance(summary, str) or len(summary) > MOST_SUMMARY_CHARS or not _is_unicode(summary):
        return None
    return CompactionFinding(boundary, float(confidence), summary.strip())


def _first_object(text: str) -> Mapping[str, object] | None:
    """The first object that is complete; None where none of the first opening braces begins one."""
    start = -1
    for _ in range(_MOST_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            return None
        try:
            found, _end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        assert isinstance(found, dict)
        return found
    return None


def _is_unicode(text: str) -> bool:
    """Whether the text holds no half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _refused(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused)
