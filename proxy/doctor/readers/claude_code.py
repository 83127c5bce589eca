"""Claude Code's own files of a session: one JSON object a line, and an answer with its usage wherever a model spoke.

An answer has one line for each of its blocks, all with the same message id and usage. The system text and the tools are
in no line, so the prompt cannot be put together. Other lines (the user's, snapshots, summaries) belong to the file and
are no calls. A session's sub-agents have conversations of their own.
"""

from collections import OrderedDict

from proxy.core.wire.json_body import Members
from proxy.doctor.readers.call import Gap, RecordedCall, Wire
from proxy.doctor.readers.exchange import usage_in
from proxy.doctor.readers.fields import first_text, first_value, members_in
from proxy.doctor.readers.shapes import CLAUDE_CODE
from proxy.doctor.readers.times import unix_seconds

_CLIENT = "claude-code"
# Blocks of one answer stand close together; a sub-agent's may stand between them.
_REMEMBERED = 64
_SUMMARIES = ("compact_boundary",)


class ClaudeCode:
    """Reads the lines of one file in order."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._compacted: set[str] = set()

    def call(self, members: Members, line: int) -> RecordedCall | None:
        """The call that a line tells of; None where it tells of none, or of one that was told before."""
        session = first_text(members, ("sessionId",))
        if (agent := first_text(members, ("agentId",))) or first_value(members, ("isSidechain",)) is True:
            session += f"/{agent or 'agent'}"
        if first_text(members, ("subtype",)) in _SUMMARIES or first_value(members, ("isCompactSummary",)) is True:
            self._compacted.add(session)
        message = members_in(members.get("message"))
        usage = usage_in(members.get("message")) if first_text(members, ("type",)) == "assistant" else None
        if usage is None or not usage.prompt or self._is_repeated(first_text(message, ("id",))):
            return None
        is_compacted = session in self._compacted
        self._compacted.discard(session)
        at = unix_seconds(first_value(members, ("timestamp",)))
        return RecordedCall(
            line=line,
            log=CLAUDE_CODE,
            at=at,
            client=_CLIENT,
            session=session,
            model=first_text(message, ("model",)),
            wire=Wire.MESSAGES,
            body=None,
            usage=usage,
            gaps=frozenset({Gap.NO_REQUEST} | ({Gap.NO_TIME} if at is None else set())),
            is_compacted=is_compacted,
        )

    def _is_repeated(self, name: str) -> bool:
        """Whether an answer of this id was told before; the answers without one are all different."""
        if name and name in self._seen:
            return True
        self._seen[name] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False
