"""What stands in front of a prompt's positions: who asks, and the request members that a provider renders into it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import orjson

from proxy.core.digest import digest
from proxy.core.layout.layout import PrefixSettings
from proxy.core.providers import DEFAULTS, CacheProfile
from proxy.core.wire.json_body import Members, members_of, value

_DEFAULTS: Mapping[str, bytes] = MappingProxyType(
    {name: orjson.dumps(dict(v) if isinstance(v, Mapping) else v) for name, v in DEFAULTS.items()}
)


def seed_of(members: Members, profile: CacheProfile, scope: bytes, *, has_media: bool) -> PrefixSettings:
    """The seed of one request. Members are compared as they are written: another spelling counts as another value."""
    breaking = profile.breaking
    image = b"image" if has_media and breaking.images else b""
    return PrefixSettings(
        scope=scope,
        settings=digest(*_given(members, breaking.before_messages), image),
        tools=_digest_of(_given(members, breaking.before_tools)),
        system=_digest_of(_given(members, breaking.before_system)),
        is_implicit=profile.implicit_marks > 0 and not _is_told_explicit(members),
        marks_answers=profile.answer_mark,
    )


def slots_of(members: Members, profile: CacheProfile) -> int:
    """Markers that a request may carry besides those that the provider sets itself: at boundaries of its own, or on the
    last block, which a marker on the whole request asks for."""
    if profile.implicit_marks:
        return profile.max_marks if _is_told_explicit(members) else profile.slots
    is_asked_for = bytes(members.get("cache_control", b"null")) != b"null"
    return profile.max_marks - int(is_asked_for and profile.body_mark)


def _digest_of(given: Sequence[bytes]) -> bytes:
    return digest(*given) if given else b""


def given_members(members: Members, names: Sequence[str]) -> dict[str, bytes]:
    """The members of these names that a request gives, as they are written, but for explicit defaults."""
    given = ((name, bytes(members[name])) for name in names if name in members)
    return {name: raw for name, raw in given if raw not in (b"null", _DEFAULTS.get(name))}


def _given(members: Members, names: Sequence[str]) -> list[bytes]:
    return [name.encode() + raw for name, raw in given_members(members, names).items()]


def _is_told_explicit(members: Members) -> bool:
    """``prompt_cache_options.mode`` explicit: the provider sets no boundary of its own."""
    options = bytes(members.get("prompt_cache_options", b"null"))
    if not options.startswith(b"{"):
        return False
    mode = members_of(options).get("mode")
    return mode is not None and value(mode) == "explicit"
