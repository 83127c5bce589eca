"""The operator's reminder behind the last user message: the one text that an operator may have us append."""

from typing import Any

from . import words
from .view import canonical, plain_text


def same_but_reminder(before: list[Any], after: list[Any], reminder: str | None) -> bool:
    """Whether two lists of parts are equal, or equal but for the reminder.

    It is joined to the last text part by a blank line, or stands behind all parts as a part of its own.
    """
    if canonical(before) == canonical(after):
        return True
    if not reminder:
        return False
    own_part = [{"type": "text", "text": text} for text in (reminder, words.REMINDER_JOINT + reminder)]
    if any(canonical([*before, part]) == canonical(after) for part in own_part):
        return True
    last = max((i for i, part in enumerate(before) if plain_text(part) is not None), default=None)
    if last is None:
        return False
    joined = f"{plain_text(before[last])}{words.REMINDER_JOINT}{reminder}"
    return canonical([*before[:last], {"type": "text", "text": joined}, *before[last + 1 :]]) == canonical(after)
