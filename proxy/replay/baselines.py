"""Policies of today's gateways, for comparison. They keep the order and set markers by a fixed rule.

Only the messages that gain or lose a marker are parsed and written anew.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from proxy.core.layout.render import render_tools
from proxy.core.providers import Dialect
from proxy.core.request.message import MARK_KEYS
from proxy.core.structured.messages import marked, unmarked
from proxy.core.wire.json_body import Unreadable, elements, members_of, parse_members, splice, value

Baseline = Callable[[bytes, Dialect], bytes]

_SYSTEM = ("system", "developer")

AS_SENT = "as sent"
CLIENT = "client's own"
SYSTEM_LAST = "system + last"
TOOLS_SYSTEM_LAST_TWO = "tools + system + last two"


def as_sent(body: bytes, dialect: Dialect) -> bytes:
    """The client's request without any marker. It gives the cost if nobody sets markers."""
    if not is_marked(body):
        return body
    members = parse_members(body)
    changes: dict[str, bytes | None] = {key: None for key in MARK_KEYS if key in members}
    changes["messages"] = _array([unmarked(bytes(raw)) for raw in elements(members["messages"])])
    if "tools" in members and bytes(members["tools"]).startswith(b"["):
        changes["tools"] = render_tools(bytes(members["tools"]), None, dialect)
    return splice(body, members, changes)


def client(body: bytes, dialect: Dialect) -> bytes:
    """The client's request with its own markers, as it came."""
    return body


def system_and_last(body: bytes, dialect: Dialect) -> bytes:
    """Markers on the system prompt and on the last message. Gateways inject these by default
    (litellm's ``cache_control_injection_points``; providers' own automatic caching marks the last block)."""
    return _marked_at(body, dialect, _system_and_last)


def tools_system_and_last_two(body: bytes, dialect: Dialect) -> bytes:
    """Markers on the last tool, the last system message of the head and the last two messages that can carry one.
    Agents that set their own markers do this."""
    marked = _marked_at(body, dialect, _head_and_last_two)
    members = parse_members(marked)
    if dialect is not Dialect.CACHE_CONTROL or not bytes(members.get("tools", b"")).startswith(b"["):
        return marked
    return splice(marked, members, {"tools": render_tools(bytes(members["tools"]), "5m", dialect)})


def _system_and_last(roles: Sequence[object]) -> set[int]:
    preamble = next((i for i, role in enumerate(roles) if role in _SYSTEM), -1)
    return {preamble, len(roles) - 1} - {-1}


def _head_and_last_two(roles: Sequence[object]) -> set[int]:
    preamble = next((i for i, role in enumerate(roles) if role not in _SYSTEM), len(roles))
    ends = [i for i in range(preamble, len(roles)) if roles[i] != "assistant"]
    return {preamble - 1, *ends[-2:]} - {-1}


def _marked_at(body: bytes, dialect: Dialect, places: Callable[[Sequence[object]], set[int]]) -> bytes:
    """The client's request with markers on the messages at these places, and on no other."""
    plain = as_sent(body, dialect)
    if dialect is Dialect.NONE:
        return plain
    members = parse_members(plain)
    messages = [bytes(raw) for raw in elements(members["messages"])]
    for index in places([value(one["role"]) if "role" in one else None for one in map(members_of, messages)]):
        # Assistant turns and empty texts carry no marker.
        messages[index] = marked(messages[index], dialect, is_head=True) or messages[index]
    return splice(plain, members, {"messages": _array(messages)})


BASELINES: Mapping[str, Baseline] = MappingProxyType({AS_SENT: as_sent, CLIENT: client, SYSTEM_LAST: system_and_last})

COMPARED: Mapping[str, Baseline] = MappingProxyType({**BASELINES, TOOLS_SYSTEM_LAST_TWO: tools_system_and_last_two})
"""The policies of ``stratiform replay --compare``."""


def sent_by(baseline: Baseline, body: bytes, dialect: Dialect) -> bytes:
    """The request as a policy sends it. Messages that are not objects go out as they came, and the provider refuses
    them."""
    try:
        return baseline(body, dialect)
    except Unreadable:
        return body


def is_marked(body: bytes) -> bool:
    """Whether a marker may stand somewhere in the body."""
    return any(key.encode() in body for key in MARK_KEYS)


def _array(raws: list[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"
