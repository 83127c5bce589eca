"""Messages that call tools, joined where one stands directly behind another: providers take the calls of one turn in
one message only."""

from itertools import groupby

from proxy.core.request.message import MARK_KEYS
from proxy.core.structured.history.groups import Entry, Group, entry_of, is_known
from proxy.core.structured.history.shape import Sort, is_given
from proxy.core.structured.messages.turn import Turn
from proxy.core.wire.json_body import Members, join_members

_JOINED = frozenset({"role", "content", "tool_calls", *MARK_KEYS})
_TEXT_JOINT = rb"\n"
"""Between the texts of two messages, as JSON writes it."""


def merged(group: Group) -> tuple[Group, int]:
    """The group with neighbouring calls in one message, and how many messages have joined another one. A message that
    says something besides its content and calls which the first one does not say joins none. A group that is not known
    whole stays as it came."""
    if sum(each.shape.sort is Sort.CALLS for each in group) < 2 or not is_known(group):
        return group, 0
    found: Group = []
    for is_calls, neighbours in groupby(group, lambda each: each.shape.sort is Sort.CALLS):
        run = list(neighbours)
        found += _chained(run) if is_calls else run
    return found, len(group) - len(found)


def _chained(run: Group) -> Group:
    """Messages that call tools and stand one behind another, with those joined that can be."""
    chains: list[Group] = []
    for each in run:
        if chains and _says_no_more(each.shape.members, chains[-1][0].shape.members):
            chains[-1].append(each)
        else:
            chains.append([each])
    return [_joined(chain) for chain in chains]


def _says_no_more(members: Members, first: Members) -> bool:
    own = (name for name in members if name not in _JOINED and is_given(members, name))
    return all(name in first and bytes(first[name]) == bytes(members[name]) for name in own)


def _joined(chain: Group) -> Entry:
    if len(chain) == 1:
        return chain[0]
    parts = [each.shape.members for each in chain]
    calls = b",".join([bytes(members["tool_calls"])[1:-1] for members in parts])
    changes: dict[str, bytes | None] = {"tool_calls": b"[" + calls + b"]"}
    content = _content([bytes(members["content"]) for members in parts if is_given(members, "content")])
    if content is not None:
        changes["content"] = content
    for name in MARK_KEYS:
        marks = [bytes(members[name]) for members in parts if is_given(members, name)]
        if marks:
            changes[name] = marks[-1]
    return entry_of(chain[0].origin, Turn.of(join_members(chain[0].shape.members, changes)))


def _content(contents: list[bytes]) -> bytes | None:
    """The contents as one: a text where all are texts, a list of parts otherwise; None where there is none."""
    if not contents:
        return None
    if len(contents) == 1:
        return contents[0]
    if all(content.startswith(b'"') for content in contents):
        return b'"' + _TEXT_JOINT.join([content[1:-1] for content in contents]) + b'"'
    return b"[" + b",".join(filter(None, map(_parts, contents))) + b"]"


def _parts(content: bytes) -> bytes:
    """The inside of a list of the content's parts, which is empty where it has none."""
    return b'{"type":"text","text":' + content + b"}" if content.startswith(b'"') else content[1:-1].strip()
