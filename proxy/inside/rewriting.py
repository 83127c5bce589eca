"""A plan as LiteLLM's arguments: a new mapping with the plan's changes. All other values are the caller's objects."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from operator import is_
from typing import Any

import orjson

from proxy.core.request.body_changes import BodyChanges
from proxy.core.value import dataclass
from proxy.inside.incoming import StoodDown
from proxy.ports import Headers
from proxy.upstream.litellm_.library import Route, mapping

# LiteLLM translates the model's name, and asks for the usage of a stream where its provider and operator let it.
_LITELLMS_OWN = frozenset({"model", "stream_options"})
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


def rewriting(
    arguments: Mapping[str, Any], changes: BodyChanges, headers: Headers, route: Callable[[], Route]
) -> Rewriting | None:
    """The change with which LiteLLM sends the plan in place of the request; None if the plan changes nothing.
    ``headers`` are sent with the change. A field that LiteLLM would refuse for the provider goes into ``extra_body``;
    if the provider has no ``extra_body``, the field is left out. Raises StoodDown if a value of the caller differs from
    its JSON (such as a number that is not finite, or a member's name that is no text): then nothing is changed."""
    before, given = changes.parsed.members, arguments["messages"]
    new = {name: raw for name, raw in changes.members.items() if raw is not None and name not in _LITELLMS_OWN}
    changed = {name: orjson.loads(raw) for name, raw in new.items() if name not in before or raw != bytes(before[name])}
    dropped = frozenset(name for name, raw in changes.members.items() if raw is None and name in before)
    messages = _messages(given, changes)
    if messages is not given:
        changed["messages"] = messages
    if not (changed or dropped or headers):
        return None
    for name in changed.keys() & before.keys() - {"messages"}:
        _check_plain(arguments[name])
    added = changed.keys() - before.keys()
    found = route() if added else None
    beside = {name: changed.pop(name) for name in added if found is not None and name not in found.fields}
    if beside and found is not None and found.extra_body:
        # The caller's own values win.
        changed["extra_body"] = {**beside, **mapping(arguments.get("extra_body"))}
    if headers:
        changed["extra_headers"] = {**dict(headers), **mapping(arguments.get("extra_headers"))}
    return Rewriting(changed, dropped)


def _messages(given: Sequence[Any], changes: BodyChanges) -> Sequence[Any]:
    """The messages that are sent; ``given`` itself if these are all messages in their order. Messages that are sent as
    they came are the caller's own objects."""
    if changes.messages is None:
        new = {i: orjson.loads(raw) for i, raw in changes.changed.items() if raw is not changes.came[i].raw}
        for index in new:
            _check_plain(given[index])
        return [new.get(index, message) for index, message in enumerate(given)] if new else given
    own = {id(message.raw): one for message, one in zip(changes.came, given, strict=True)}
    sent = changes.messages
    for left_out in own.keys() - set(map(id, sent)):
        _check_plain(own[left_out])
    found = [own[id(raw)] if id(raw) in own else orjson.loads(raw) for raw in sent]
    return given if len(found) == len(given) and all(map(is_, found, given)) else found


def _check_plain(given: object) -> None:
    """Raises StoodDown if JSON does not give a value back unchanged. JSON was already written from the value, so it is
    not nested without end, and the names of its members are texts."""
    if isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            _check_plain(each)
    elif type(given) not in _PLAIN and not (isinstance(given, float) and isfinite(given)):
        raise StoodDown("unreadable")
