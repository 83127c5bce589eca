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


def as_reminded(original: dict[str, Any], sent: dict[str, Any], reminder: str) -> dict[str, Any]:
    """The original with the content that was sent in its last user message, where that says the same but for the
    reminder; as it was where it does not."""
    before, after = original.get("messages"), sent.get("messages")
    if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
        return original
    users = [i for i, each in enumerate(before) if isinstance(each, dict) and each.get("role") == "user"]
    if not users or not isinstance(after[users[-1]], dict):
        return original
    own, new = (_marked_parts(messages[users[-1]].get("content")) for messages in (before, after))
    if own is None or new is None or not same_but_reminder(own, new, reminder):
        return original
    message = {**before[users[-1]], "content": after[users[-1]]["content"]}
    return {**original, "messages": [*before[: users[-1]], message, *before[users[-1] + 1 :]]}


def _marked_parts(content: Any) -> list[Any] | None:
    """The content as a list of parts, markers included; None if it is neither text nor a list."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else None
