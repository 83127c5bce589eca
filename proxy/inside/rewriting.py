"""A plan as LiteLLM's arguments: a new mapping with the plan's changes. All other values are the caller's objects."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import orjson
from msgspec import Raw

from proxy.core.request.parsed_body import ParsedBody
from proxy.core.value import dataclass
from proxy.core.wire.json_body import elements, parse_members
from proxy.inside.incoming import StoodDown
from proxy.ports import Plan
from proxy.upstream.litellm_.library import Route, mapping

_MESSAGES = "messages"
_MOST_MARKED = 8
_PLAIN = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The arguments that a plan has ``changed``; ``dropped`` are those that it leaves out."""

    changed: Mapping[str, Any]
    dropped: frozenset[str] = frozenset()

    def applied(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The caller's arguments with this change, as a new mapping."""
        return {**{n: v for n, v in arguments.items() if n not in self.dropped}, **self.changed}

    def undone(self, arguments: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments without this change, after it was applied. ``came`` are the arguments before the change."""
        touched = self.changed.keys() | self.dropped
        return {
            **{n: v for n, v in arguments.items() if n not in touched},
            **{n: came[n] for n in touched if n in came},
        }


def rewriting(arguments: Mapping[str, Any], parsed: ParsedBody, plan: Plan, route: Callable[[], Route]) -> Rewriting:
    """The change with which LiteLLM sends the plan in place of the request. A field that LiteLLM would refuse for the
    provider goes into ``extra_body``; if the provider has no ``extra_body``, the field is left out. Raises StoodDown if
    a value of the caller differs from its JSON (such as a number that is not finite, or a member's name that is no
    text): then nothing is changed."""
    before, after = parsed.members, parse_members(plan.body)
    differs = [name for name, raw in after.items() if name != "model" and bytes(raw) != bytes(before.get(name, b""))]
    changed = {name: _value(after[name]) for name in differs if name != _MESSAGES}
    for name in changed.keys() & before.keys():
        _check_plain(arguments[name])
    added = changed.keys() - before.keys()
    found = route() if added else None
    beside = {name: changed.pop(name) for name in added if found is not None and name not in found.fields}
    if beside and found is not None and found.extra_body:
        # The caller's own values win.
        changed["extra_body"] = {**beside, **mapping(arguments.get("extra_body"))}
    if plan.headers:
        changed["extra_headers"] = {**dict(plan.headers), **mapping(arguments.get("extra_headers"))}
    if _MESSAGES in differs:
        came = [bytes(raw) for raw in parsed.raws()]
        changed[_MESSAGES] = _messages(arguments[_MESSAGES], came, elements(after[_MESSAGES]))
    return Rewriting(changed, frozenset(before.keys() - after.keys()))


def _messages(given: Sequence[Any], came: Sequence[bytes], sent: Sequence[Raw]) -> list[Any]:
    """The messages that are sent. Messages that are unchanged since they ``came`` are the caller's own objects."""
    raws = [bytes(raw) for raw in sent]
    if len(raws) == len(came):
        changed = [index for index, raw in enumerate(raws) if raw != came[index]]
        if len(changed) <= _MOST_MARKED:
            # No message has moved, so the others need not be found by their content, which would take longer.
            for index in changed:
                _check_plain(given[index])
            exchanged = {index: _value(raws[index]) for index in changed}
            return [exchanged.get(index, message) for index, message in enumerate(given)]
    own = dict(zip(came, given, strict=True))
    for raw in own.keys() - set(raws):
        _check_plain(own[raw])
    return [own[raw] if raw in own else _value(raw) for raw in raws]


def _value(raw: Raw | bytes) -> Any:
    return orjson.loads(memoryview(raw))


def _check_plain(given: object) -> None:
    """Raises StoodDown if JSON does not give a value back unchanged. JSON was already written from the value, so it is
    not nested without end, and the names of its members are texts."""
    if isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            _check_plain(each)
    elif type(given) not in _PLAIN and not (isinstance(given, float) and isfinite(given)):
        raise StoodDown("unreadable")
