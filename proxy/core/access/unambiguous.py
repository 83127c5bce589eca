"""A request such that every server finds in it what was found here.

Where a name stands twice, servers differ in which value counts (most take the last one, as we do), and some take
``Model`` for ``model``: a key's models and budgets would be held against the one, and the other one served. This holds
for every body that any server may read, whether or not we can take it apart.
"""

from collections.abc import Iterable, Mapping

from msgspec import Raw

from proxy.core.request.routing_fields import HEAD_NAMES, UTF8_MARK, RequestFields, head_of
from proxy.core.value import dataclass
from proxy.core.wire.json_body import join_members
from proxy.core.wire.scan import folded, once, scan_members, values
from proxy.errors import InvalidRequest

_SHOWN_CHARS = 128
_SECTION = "stratiform"
"""What describes structured context. It is the proxy's own to read: under another name it would go to the provider."""


@dataclass(frozen=True, slots=True)
class CheckedBody:
    """A JSON body with its head. ``members`` are its members' values by their names, each of which stands there once;
    None where the body was not understood so far."""

    body: bytes
    head: RequestFields
    members: Mapping[str, Raw | bytes] | None


def unambiguous(body: bytes, head: RequestFields) -> CheckedBody:
    """The request with every name once. Raises InvalidRequest for a name that only some servers take for one of those
    that decide where a request goes and what it may cost."""
    if head.parsed is None and body.startswith(UTF8_MARK):
        # Not every server reads past it, and we do not take apart what stands behind it.
        body = body.removeprefix(UTF8_MARK)
        head = head_of(body)
    if (parsed := head.parsed) is None:
        return _scanned(body, head)
    check_names(parsed.members)
    if parsed.spans() is not None:
        return CheckedBody(body, head, parsed.members)
    joined = join_members(parsed.members, {})
    return CheckedBody(joined, head_of(joined), parsed.members)


def check_names(names: Iterable[str]) -> None:
    """Raises InvalidRequest for a name that only some servers take for one of the head's, and for one that only looks
    like that of structured context."""
    for name in names:
        if name not in _EXACT and (meant := _FOLDED.get(folded(name))):
            what = f"write '{meant}' exactly so: servers differ in what they make of it in another form"
            raise InvalidRequest(what, param=ascii(name)[1:-1][:_SHOWN_CHARS])


_EXACT = frozenset({*HEAD_NAMES, _SECTION})
_FOLDED: Mapping[str, str] = {folded(name): name for name in _EXACT}


def _scanned(body: bytes, head: RequestFields) -> CheckedBody:
    if (members := scan_members(body)) is None:
        return CheckedBody(body, head, None)
    check_names(member.name for member in members)
    found = values(members)
    if len(found) == len(members):
        return CheckedBody(body, head, found)
    joined = once(members)
    return CheckedBody(joined, head_of(joined), found)
