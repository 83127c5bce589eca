"""The section of a request, split into what it says about prompts, about the context window, about the answer, and
about structured context."""

from collections.abc import Mapping

from msgspec import Raw

from proxy.core.value import dataclass, field
from proxy.core.wire.json_body import join_members, members_of
from proxy.core.wire.refusals import check_fields, invalid
from proxy.core.wire.scan import names_in

SECTION = "stratiform"
"""The member of the body in which a client describes its context."""
PROMPTS = "prompts"
WINDOW = "window"
_WISHES = ("return_usage", "return_break")
_OWN = (PROMPTS, WINDOW, *_WISHES)
_BOOLEANS: Mapping[bytes, bool] = {b"true": True, b"false": False, b"null": False}
_NULL = b"null"
_SHORT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Section:
    """``prompts`` and ``window`` are the values of these members, None if they are missing or null. ``returns_usage``
    and ``returns_break``: the answer should say what the request used, and which part of it breaks the cache. ``rest``
    is the section without these four members, None if it has no other members. ``is_split``: the section has at least
    one of the four, even if it is null."""

    prompts: bytes | None = None
    window: bytes | None = None
    rest: bytes | None = None
    returns_usage: bool = False
    returns_break: bool = False
    is_split: bool = field(default=False, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether the section describes no structured context."""
        return self.rest is None


def split(raw: Raw | bytes) -> Section:
    """The section in its parts. If the section is not an object, all of it is ``rest``, and the reader of structured
    context refuses it. Raises Unreadable. Raises InvalidRequest if one of its fields stands twice, or if a field that
    must be a boolean is not one."""
    if bytes(memoryview(raw)[:1]) != b"{":
        return Section(rest=bytes(raw))
    members = members_of(raw)
    if members.keys().isdisjoint(_OWN):
        return Section(rest=bytes(raw))
    check_fields(bytes(raw), len(members) + sum(names_in(bytes(value)) for value in members.values()), SECTION)
    rest = join_members(members, dict.fromkeys(_OWN)) if members.keys() - _OWN else None
    usage, break_ = (_wish(members, name) for name in _WISHES)
    return Section(_said(members, PROMPTS), _said(members, WINDOW), rest, usage, break_, is_split=True)


def _wish(members: Mapping[str, Raw | bytes], name: str) -> bool:
    asked = _BOOLEANS.get(bytes(members.get(name, _NULL)))
    if asked is None:
        raise invalid(f"{SECTION}.{name}", "must be a boolean or null", "invalid_type")
    return asked


def _said(members: Mapping[str, Raw | bytes], name: str) -> bytes | None:
    raw = bytes(members.get(name, _NULL))
    return None if raw == _NULL else raw


def section_of(members: Mapping[str, Raw | bytes] | None) -> Raw | bytes | None:
    """The section; None if it is missing, null or an empty object."""
    raw = (members or {}).get(SECTION)
    if raw is None or (len(raw) < _SHORT_BYTES and b"".join(bytes(raw).split()) in (b"null", b"{}")):
        return None
    return raw
