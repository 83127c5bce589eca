"""The difference between a client's chat request and what is sent in its place."""

from collections.abc import Mapping, Sequence

from proxy.core.request.message import Message
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.value import dataclass, field
from proxy.core.wire.json_body import Patch


@dataclass(frozen=True, slots=True)
class BodyChanges:
    """The changes of a body whose messages have been read. ``members`` are top-level members with their new values;
    None leaves a member out. ``messages`` are all messages that are sent, in their order; those that are sent as they
    came are the same objects as in ``came``. None: the client's messages are sent in the client's order, and
    ``changed`` are those that are written anew, by their index."""

    parsed: ParsedBody
    members: Mapping[str, bytes | None]
    changed: Mapping[int, bytes] = field(default_factory=dict)
    messages: Sequence[bytes] | None = None

    @property
    def came(self) -> Sequence[Message]:
        """The messages as the client sent them."""
        assert self.parsed.read_messages is not None
        return self.parsed.read_messages

    def body(self) -> bytes:
        """The body with these changes. Everything else stays as the client sent it."""
        parsed, messages = self.parsed, self.messages
        if messages is None and (not self.changed or parsed.span is not None):
            return parsed.edited(self.members, self._patches())
        if messages is None:
            messages = [self.changed.get(index, message.raw) for index, message in enumerate(self.came)]
        return parsed.edited({**self.members, "messages": b"[" + b",".join(messages) + b"]"})

    def _patches(self) -> list[Patch]:
        """The changed messages, each with its start and end in the client's body."""
        if not self.changed:
            return []
        raws = [message.raw for message in self.came]
        starts = self.parsed.starts(raws)
        return [(starts[i], starts[i] + len(raws[i]), new) for i, new in sorted(self.changed.items())]
