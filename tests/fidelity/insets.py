"""The operator's texts around user messages: the only ones that an operator may have us write into a client's turns."""

from collections.abc import Iterator, Mapping
from typing import Any

from . import words
from .view import canonical, plain_text, views

Texts = tuple[str, str]
"""What stands in front of the client's own words, and what behind them; "" is nothing."""


def fronts_of(before: list[Any], after: list[Any], texts: Texts | None) -> Texts | None:
    """The texts that ``after`` has around the parts of ``before``: none or all of ``texts``. None where the two lists
    say something else.

    A text is joined to the first or the last text part by a blank line, or stands as a part of its own in front of all
    parts or behind them.
    """
    if canonical(before) == canonical(after):
        return "", ""
    if texts is None or texts == ("", ""):
        return None
    for fronted in _with_front(before, texts[0]):
        for whole in _with_back(fronted, texts[1]):
            if canonical(whole) == canonical(after):
                return texts
    return None


def same_but_texts(before: list[Any], after: list[Any], texts: Texts | None) -> bool:
    """Whether two lists of parts are equal, or equal but for the operator's texts, all of them."""
    return fronts_of(before, after, texts) is not None


def _with_front(parts: list[Any], text: str) -> Iterator[list[Any]]:
    if not text:
        yield parts
        return
    yield [_part(text + words.REMINDER_JOINT), *parts]
    yield [_part(text), *parts]
    first = next((i for i, part in enumerate(parts) if plain_text(part) is not None), None)
    if first is not None:
        joined = _part(f"{text}{words.REMINDER_JOINT}{plain_text(parts[first])}")
        yield [*parts[:first], joined, *parts[first + 1 :]]


def _with_back(parts: list[Any], text: str) -> Iterator[list[Any]]:
    if not text:
        yield parts
        return
    yield [*parts, _part(words.REMINDER_JOINT + text)]
    yield [*parts, _part(text)]
    last = max((i for i, part in enumerate(parts) if plain_text(part) is not None), default=None)
    if last is not None:
        joined = _part(f"{plain_text(parts[last])}{words.REMINDER_JOINT}{text}")
        yield [*parts[:last], joined, *parts[last + 1 :]]


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def texts_by_index(original: dict[str, Any], newest: Texts | None, earlier: Mapping[int, Texts]) -> Mapping[int, Texts]:
    """The operator's texts by the index of their user message: ``newest`` belongs to the last one, ``earlier`` ones to
    those in front of it."""
    messages = original.get("messages")
    if not isinstance(messages, list):
        return {}
    known = views(messages) or []
    users = [each.index for each in known if each.role == "user" and not each.has_results]
    found = {i: earlier[i] for i in users[:-1] if i in earlier}
    if users and newest is not None:
        found[users[-1]] = newest
    return found


def as_inlaid(original: dict[str, Any], sent: dict[str, Any], texts: Mapping[int, Texts]) -> dict[str, Any]:
    """The original with the content that was sent in these user messages, where that says the same but for the
    operator's texts; as it was where it does not."""
    before, after = original.get("messages"), sent.get("messages")
    if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
        return original
    messages = list(before)
    for index, own_texts in texts.items():
        if not isinstance(after[index], dict):
            continue
        own, new = (_marked_parts(each[index].get("content")) for each in (before, after))
        is_same_form = isinstance(before[index].get("content"), str) is isinstance(after[index].get("content"), str)
        if own is not None and new is not None and is_same_form and same_but_texts(own, new, own_texts):
            messages[index] = {**before[index], "content": after[index]["content"]}
    return {**original, "messages": messages}


def _marked_parts(content: Any) -> list[Any] | None:
    """The content as a list of parts, markers included; None if it is neither text nor a list."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else None
