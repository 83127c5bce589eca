"""A plan as LiteLLM's arguments: what it changes is exchanged in a new mapping, and everything else is the caller's."""

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
        """The caller's arguments with it, as a new mapping."""
        return {**{n: v for n, v in arguments.items() if n not in self.dropped}, **self.changed}

    def undone(self, arguments: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments in which it was applied, without it: ``came`` are those that it was applied to."""
        touched = self.changed.keys() | self.dropped
        return {
            **{n: v for n, v in arguments.items() if n not in touched},
            **{n: came[n] for n in touched if n in came},
        }


def rewriting(arguments: Mapping[str, Any], parsed: ParsedBody, plan: Plan, route: Callable[[], Route]) -> Rewriting:
    """What LiteLLM is to send in place of the request. A field that LiteLLM would refuse for the provider goes into
    ``extra_body``; where there is no such way, it is left out. Raises StoodDown where what the caller has given is not
    what its JSON says (a number that is none, a key that is no text): then nothing of it is exchanged."""
    before, after = parsed.members, parse_members(plan.body)
    differs = [name for name, raw in after.items() if name != "model" and bytes(raw) != bytes(before.get(name, b""))]
    changed = {name: _value(after[name]) for name in differs if name != _MESSAGES}
    for name in changed.keys() & before.keys():
        _check_plain(arguments[name])
    added = changed.keys() - before.keys()
    found = route() if added else None
    beside = {name: changed.pop(name) for name in added if found is not None and name not in found.fields}
    if beside and found is not None and found.extra_body:
        # What the caller says itself counts for more.
        changed["extra_body"] = {**beside, **mapping(arguments.get("extra_body"))}
    if plan.headers:
        changed["extra_headers"] = {**dict(plan.headers), **mapping(arguments.get("extra_headers"))}
    if _MESSAGES in differs:
        came = [bytes(raw) for raw in parsed.raws()]
        changed[_MESSAGES] = _messages(arguments[_MESSAGES], came, elements(after[_MESSAGES]))
    return Rewriting(changed, frozenset(before.keys() - after.keys()))


def _messages(given: Sequence[Any], came: Sequence[bytes], sent: Sequence[Raw]) -> list[Any]:
    """The messages that are sent. Those that are as they ``came`` are the caller's own."""
    raws = [bytes(raw) for raw in sent]
    if len(raws) == len(came):
        changed = [index for index, raw in enumerate(raws) if raw != came[index]]
        if len(changed) <= _MOST_MARKED:
            # Nothing has moved: the others need not be looked for by what they say, which takes longer.
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
    """Raises StoodDown where JSON does not give a value back as it was. JSON was written from it before: it is not
    nested without end, and the names of its members are texts."""
    if isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            _check_plain(each)
    elif type(given) not in _PLAIN and not (isinstance(given, float) and isfinite(given)):
        raise StoodDown("unreadable")
