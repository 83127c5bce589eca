"""Cache markers: how many, where, in which form, and whether the client's own are still there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import words
from .fields import any_order, bare_tool
from .view import MARKER_KEYS, TEXT_ROLES, View, plain_text, same
from .violations import Report, Rule

MOST_MARKERS = 4
# Anthropic: text, images and documents of user turns. Breakpoints: sound, too.
_MARKED_MEDIA = ("image_url", "file")
_BREAKPOINT_PARTS = ("text", "image_url", "input_audio", "file")

Anchor = tuple[str, int | str, int]


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker. ``form``: what it is written on; ``anchor``: equal for the same place in the client's words."""

    key: str
    form: str
    anchor: Anchor
    value: Any
    path: str
    owner: View | None = None
    part: Any = None
    offset: int = -1

    @property
    def is_long(self) -> bool:
        return isinstance(self.value, dict) and self.value.get("ttl") == "1h"


_END = -1


def _on(
    holder: Any, form: str, anchor: Anchor, path: str, owner: View | None = None, part: Any = None, offset: int = -1
) -> list[Marker]:
    if not isinstance(holder, dict):
        return []
    return [
        Marker(key, form, anchor, holder[key], f"{path}.{key}", owner, part, offset)
        for key in MARKER_KEYS
        if holder.get(key) is not None
    ]


def _is_marked(holder: Any) -> bool:
    return isinstance(holder, dict) and any(key in holder for key in MARKER_KEYS)


def _in_message(message: View, origin: int, front: str = "") -> Iterator[Marker]:
    content = message.raw.get("content")
    parts = content if isinstance(content, list) else []
    # Places are counted in the client's own words: the operator's text in front of them does not count.
    at = 0
    if front and parts:
        at = -len(front + words.REMINDER_JOINT) if message.texts is not None else -1
    for index, part in enumerate(parts):
        text = plain_text(part)
        at += len(text) if text is not None and message.texts is not None else 1
        last = index == len(parts) - 1
        anchor = ("message", origin, _END if last else at)
        yield from _on(part, "part", anchor, f"{message.path}.content[{index}]", message, part, at)
    yield from _on(message.raw, "message", ("message", origin, _END), message.path, message)
    calls = message.raw.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else []):
        yield from _on(call, "call", ("call", origin, index), f"{message.path}.tool_calls[{index}]", message)


def _in_tools(body: dict[str, Any]) -> Iterator[Marker]:
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not _is_marked(tool) and not _is_marked(function):
            continue
        # The tool itself is the place: a marker stays on its tool when the order changes.
        anchor = ("tool", any_order(bare_tool(tool)), 0)
        yield from _on(tool, "tool", anchor, f"tools[{index}]")
        yield from _on(function, "function", anchor, f"tools[{index}].function")


def markers_of(
    body: dict[str, Any],
    messages: list[View],
    origin: dict[int, int] | None = None,
    fronts: Mapping[int, str] | None = None,
) -> list[Marker]:
    """All markers in the provider's order: tools, messages, the request. ``origin`` maps to the client's messages, and
    ``fronts`` to the operator's texts in front of them."""
    found = list(_in_tools(body))
    for message in messages:
        # A message of ours has no counterpart: a number below all anchors of the client's.
        at = message.index if origin is None else origin.get(message.index, -2 - message.index)
        found += _in_message(message, at, (fronts or {}).get(message.index, ""))
    return found + _on(body, "body", ("body", 0, 0), "body")


def _is_form_allowed(marker: Marker, client_says_5m: bool) -> bool:
    value = marker.value
    if marker.key == "prompt_cache_breakpoint":
        return isinstance(value, dict) and value.get("mode") == "explicit" and value.keys() <= {"mode", "ttl"}
    plain = [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}]
    if client_says_5m:
        plain.append({"type": "ephemeral", "ttl": "5m"})
    return value in plain


def _is_blank(marker: Marker) -> bool:
    """Whether there is no text under the marker."""
    if marker.form == "message" and marker.owner is not None:
        content = marker.owner.raw.get("content")
        return not content or (marker.owner.texts is not None and not marker.owner.joined.strip())
    text = marker.part.get("text") if isinstance(marker.part, dict) and marker.part.get("type") == "text" else None
    return isinstance(text, str) and not text.strip()


def _wrong_place(marker: Marker, last_tool: int, parts_only: bool, answers: bool) -> str | None:
    """Why a marker that the client did not set may not stand here."""
    role = marker.owner.role if marker.owner is not None else ""
    if parts_only and marker.form != "part":
        return f"on a {marker.form}, where this provider reads none"
    if marker.form == "tool":
        last = marker.path == f"tools[{last_tool}].cache_control"
        return None if last else "only the last tool may carry a marker of ours"
    if marker.form not in ("part", "message"):
        return f"a marker of ours on a {marker.form}"
    if role == "assistant" and not (answers and marker.form == "part"):
        return "on an assistant message"
    if _is_blank(marker):
        return "on empty content"
    if marker.key == "prompt_cache_breakpoint":
        kind = marker.part.get("type") if isinstance(marker.part, dict) else None
        return None if kind in _BREAKPOINT_PARTS else "a breakpoint stands on a text, image, audio or file part"
    if marker.form == "message":
        return None if role == "tool" else f"message-level on a {role} message"
    if role not in (*TEXT_ROLES, "assistant") and not (parts_only and role == "tool"):
        return f"inside the parts of a {role} message"
    kind = marker.part.get("type") if isinstance(marker.part, dict) else None
    if kind == "text":
        return None
    return (
        None if kind in _MARKED_MEDIA and role == "user" else "on a part that is neither text nor an image nor a file"
    )


@dataclass(frozen=True, slots=True)
class MarkerTerms:
    """The marker key that the profile takes (None: no markers at all), and which of the client's markers must stay.

    ``parts_only``: markers are read on content parts alone, also within tool results. ``lives``: two lives are sold.
    ``answers``: markers are read on the text of an assistant's message.
    """

    dialect: str | None
    keep_all: bool
    keep_on_tools: bool
    parts_only: bool = False
    lives: bool = True
    answers: bool = False


def check_markers(
    before: list[Marker], after: list[Marker], last_tool: int, terms: MarkerTerms, report: Report
) -> None:
    """Compares the client's markers with those that were sent."""
    ours = [m for m in after if not any(_is_same(m, own) for own in before)]
    if ours and len(after) > MOST_MARKERS:
        report.add(Rule.MARKER_COUNT, "body", f"{len(after)} markers, {len(ours)} of them ours")
    says_5m = any(isinstance(m.value, dict) and m.value.get("ttl") == "5m" for m in before)
    for marker in ours:
        if marker.key != terms.dialect:
            report.add(Rule.MARKER_PLACE, marker.path, "this profile takes no such marker")
            continue
        reason = _wrong_place(marker, last_tool, terms.parts_only, terms.answers)
        if reason is not None:
            report.add(Rule.MARKER_PLACE, marker.path, reason)
        if not _is_form_allowed(marker, says_5m):
            report.add(Rule.MARKER_FORM, marker.path, "neither {type: ephemeral[, ttl: 1h]} nor {mode: explicit}")
    _check_order(after, ours, report)
    _check_own(before, after, terms, report)


def _is_same(left: Marker, right: Marker) -> bool:
    same_place = (left.form, left.anchor) == (right.form, right.anchor) or _is_before_a_reminder(left, right)
    same_place = same_place and left.key == right.key
    return same_place and same(left.value, right.value)


def _check_order(after: list[Marker], ours: list[Marker], report: Report) -> None:
    """No 1-hour marker behind a 5-minute one; an order that is all the client's own is the client's business."""
    placed = [m for m in after if m.key == "cache_control" and m.form != "body"]
    short = next((i for i, m in enumerate(placed) if not m.is_long), None)
    if short is None or not ours:
        return
    for marker in placed[short:]:
        if marker.is_long:
            report.add(Rule.MARKER_ORDER, marker.path, "a 1-hour marker behind a 5-minute one")
            return


def _is_lost_on_the_way(marker: Marker) -> bool:
    """A message-level marker on a list of parts: litellm drops it silently for Anthropic (seen in 1.109)."""
    owner = marker.owner
    return marker.form == "message" and owner is not None and owner.role in TEXT_ROLES and owner.is_list


def _is_before_a_reminder(found: Marker, own: Marker) -> bool:
    """On the part that was the last one of its message, before the operator's reminder came behind it."""
    is_same_message = (found.form, found.anchor[:2]) == (own.form, own.anchor[:2])
    return is_same_message and own.anchor[2] == _END and found.offset == own.offset >= 0


def _is_there(own: Marker, after: list[Marker]) -> bool:
    return any(
        found.key == own.key
        and (found.anchor == own.anchor or _is_before_a_reminder(found, own))
        and same(found.value, own.value)
        and (not _is_lost_on_the_way(found) or _is_lost_on_the_way(own))
        for found in after
    )


def _check_own(before: list[Marker], after: list[Marker], terms: MarkerTerms, report: Report) -> None:
    for own in before:
        must_stay = terms.keep_all or (terms.keep_on_tools and own.form in ("tool", "function"))
        if must_stay and not _is_there(own, after):
            report.add(Rule.MARKER_LOST, "original " + own.path, "the client's marker is gone or has another life")
    life = [m for m in after if m.key == "cache_control"]
    if terms.lives and any(m.is_long for m in before) and life and not any(m.is_long for m in life):
        report.add(Rule.MARKER_LIFE, "body", "the client marked for one hour, nothing is marked for one hour any more")
