"""Everything in the body beside the messages: parameters, unknown fields, tool definitions."""

import json
import re
from collections import Counter
from typing import Any

from .view import canonical, same, unmarked
from .violations import Report, Rule

# Edits that are allowed in every mode (rule 6).
ALWAYS_EDITABLE = ("model", "stream_options", "stratiform")
# A key of ours is a digest and nothing else; a request that is not continued may be told to store nothing.
ROUTING_KEY = re.compile(r"st-[0-9a-f]{32}")
NO_CACHE = {"mode": "explicit"}
_MISSING = object()


def _model(original: dict[str, Any], sent: dict[str, Any], report: Report) -> None:
    before, after = original.get("model", _MISSING), sent.get("model", _MISSING)
    if (before is _MISSING) != (after is _MISSING):
        report.add(Rule.FIELD, "model", "the model was added or dropped; only its name may change")
    elif before is not _MISSING and type(before) is not type(after):
        report.add(Rule.FIELD, "model", "the model's name changed its type")


def _stream_options(original: dict[str, Any], sent: dict[str, Any], report: Report) -> None:
    before, after = original.get("stream_options", _MISSING), sent.get("stream_options", _MISSING)
    if same_or_missing(before, after):
        return
    own = before if isinstance(before, dict) else {}
    wanted = {**own, "include_usage": True}
    if before is not _MISSING and before is not None and not isinstance(before, dict):
        report.add(Rule.FIELD, "stream_options", "changed although it is no object")
    elif not isinstance(after, dict) or not _equal_in_any_order(after, wanted):
        report.add(Rule.FIELD, "stream_options", "changed in more than include_usage: true")
    elif original.get("stream") is not True:
        report.add(Rule.FIELD, "stream_options", "set although the request does not stream")


def _equal_in_any_order(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)


def same_or_missing(before: Any, after: Any) -> bool:
    """Equal as JSON, or both not there."""
    if before is _MISSING or after is _MISSING:
        return before is after
    return same(before, after)


def check_fields(original: dict[str, Any], sent: dict[str, Any], report: Report, may_add: tuple[str, ...]) -> None:
    """All fields but messages and tools. ``may_add`` names the fields that the profile allows us to add."""
    _model(original, sent, report)
    _stream_options(original, sent, report)
    if "stratiform" in sent and not same_or_missing(original.get("stratiform", _MISSING), sent["stratiform"]):
        report.add(Rule.FIELD, "stratiform", "added or changed; it may only be removed")
    for name in {**original, **sent}:
        if name in (*ALWAYS_EDITABLE, "messages", "tools"):
            continue
        if name not in sent:
            report.add(Rule.FIELD, name, "dropped")
        elif name not in original:
            if name not in may_add:
                report.add(Rule.FIELD, name, "added")
            elif not _is_ours(name, sent[name]):
                report.add(Rule.FIELD, name, "added, in no form of ours")
        elif not same(original[name], sent[name]):
            report.add(Rule.FIELD, name, "changed (values, types and the order of keys count)")


def _is_ours(name: str, value: Any) -> bool:
    if name == "prompt_cache_options":
        return same(value, NO_CACHE)
    return isinstance(value, str) and ROUTING_KEY.fullmatch(value) is not None


def bare_tool(tool: Any) -> Any:
    """A tool definition without markers, on the tool or on its function."""
    tool = unmarked(tool)
    function = tool.get("function") if isinstance(tool, dict) else None
    if isinstance(function, dict) and "cache_control" in function:
        return {**tool, "function": unmarked(function)}
    return tool


def any_order(tool: Any) -> str:
    """A form that is equal for two definitions that differ in the order of keys alone."""
    return json.dumps(tool, ensure_ascii=False, sort_keys=True)


def check_tools(original: dict[str, Any], sent: dict[str, Any], report: Report, reorder: bool) -> bool:
    """The tool definitions. ``reorder``: the same set was seen in another order or form, so that both may change.

    Returns whether the order or form did change.
    """
    before, after = original.get("tools", _MISSING), sent.get("tools", _MISSING)
    if not isinstance(before, list) or not isinstance(after, list):
        if not same_or_missing(before, after):
            report.add(Rule.TOOLS, "tools", "added, dropped or changed")
        return False
    left, right = [bare_tool(tool) for tool in before], [bare_tool(tool) for tool in after]
    if [canonical(tool) for tool in left] == [canonical(tool) for tool in right]:
        return False
    if Counter(map(any_order, left)) != Counter(map(any_order, right)):
        report.add(Rule.TOOLS, "tools", f"{len(left)} definitions became {len(right)} that are not the same")
    elif not reorder:
        report.add(Rule.TOOLS, "tools", "the same definitions in another order or form, without leave")
    return True
