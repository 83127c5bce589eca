"""Makes sure that every server finds in a request what was found here.

If a name occurs twice, servers differ in which value counts (most take the last one, as the proxy does). Some servers
also read ``Model`` as ``model``. Then one value would be checked against a key's models and budgets, and the other one
would be served. This holds for every body that any server may read, whether or not the proxy can take it apart.
"""

from collections.abc import Iterable, Mapping

from msgspec import Raw

from proxy.core.request.routing_fields import HEAD_NAMES, UTF8_MARK, RequestFields, head_of
from proxy.core.value import dataclass
from proxy.core.wire.json_body import join_members
from proxy.core.wire.scan import folded, once, scan_members
from proxy.errors import InvalidRequest

_SHOWN_CHARS = 128
_SECTION = "stratiform"
"""The member that describes structured context. Only the proxy reads it. Under another name it would be sent to the
provider."""


@dataclass(frozen=True, slots=True)
class CheckedBody:
    """A JSON body with its head. ``members`` are the values of its members by name, and each name occurs once. None:
    the body has not been understood so far."""

    body: bytes
    head: RequestFields
    members: Mapping[str, Raw | bytes] | None


def unambiguous(body: bytes, head: RequestFields) -> CheckedBody:
    """The request with every name once. Raises InvalidRequest for a name that only some servers read as one of those
    names that decide where a request goes and what it may cost."""
    if head.parsed is None and body.startswith(UTF8_MARK):
        # Not every server skips this mark, and the proxy does not take apart a body that begins with it.
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
    """Raises InvalidRequest for a name that only some servers read as one of the head's names, and for a name that only
    resembles that of structured context."""
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
    found = {member.name: member.value for member in members}
    if len(found) == len(members):
        return CheckedBody(body, head, found)
    joined = once(members)
    return CheckedBody(joined, head_of(joined), found)
