"""What is sent of a plan, and what is sent instead where the upstream refuses it.

Two edits of a chat request can make an upstream refuse what it would have taken: the layout, and ``stream_options``,
which asks for usage in streams and which strict servers do not know. On other paths it is the question for the cause of
a miss (``proxy.engine.inquiries``). At most one more call is made before the client hears: so the second one is the
client's own request, without any edit that may be to blame. Which of them it was decides what is remembered: a layout
is barred for the session, a question is not asked at the deployment for a while
(``proxy.engine.attempts.retry_body``).
"""

from collections.abc import Callable
from enum import Flag, auto
from time import perf_counter

from proxy.core.lru import LastUsed
from proxy.core.request.routing_fields import RequestFields, untouched
from proxy.core.response.refusal import Refusal
from proxy.core.wire.edits import with_options
from proxy.ports import Deployment, Plan

_NOT_THE_LAYOUT = frozenset({401, 403, 429})
# What servers answer to a member that they do not know.
_INVALID = frozenset({400, 422})

# Names behind a wildcard are the clients' choice: the memory of them is bounded.
_MOST = 2048
# Servers are updated. To find out again costs one refused call.
_FOR_S = 3600.0


class OurEdit(Flag):
    """Edits of ours that an upstream may refuse."""

    NONE = 0
    LAYOUT = auto()
    USAGE = auto()
    CAUSE = auto()

    def behind(self, status: int) -> "OurEdit":
        """Those of them that an answer of this status may be about."""
        found = OurEdit.NONE
        if 400 <= status < 500 and status not in _NOT_THE_LAYOUT:
            found = OurEdit.LAYOUT | OurEdit.CAUSE
        if status in _INVALID:
            found |= OurEdit.USAGE
        return self & found

    def in_refusal(self, status: int, said: Refusal) -> "OurEdit":
        """Those of them that a refusal may be about, in what it says, too: where it names another member, the question
        for usage is not to blame, while a layout may be to blame for anything."""
        found = self.behind(status)
        return found & ~OurEdit.USAGE if said.names_another else found


class Outgoing:
    """One plan's request on its way to one deployment. ``suspects`` are the edits of ours for which it may be refused
    and sent again, once."""

    def __init__(self, plan: Plan, client_body: bytes, head: RequestFields, model: str, *, asks_usage: bool) -> None:
        self.plan = plan
        self._client_body = client_body
        self._head = head
        self._model = model
        self._asks_usage = asks_usage and head.lacks_usage
        self.is_original = False
        self.blamed = OurEdit.NONE
        self.suspects = OurEdit.LAYOUT if plan.rewritten else OurEdit.NONE
        if self._asks_usage:
            self.suspects |= OurEdit.USAGE

    @property
    def body(self) -> bytes:
        """The request as it is sent now."""
        plan, head = self.plan, self._head
        if self._asks_usage or head.parsed is None or not head.lacks_usage:
            return plan.original if self.is_original else plan.body
        laid_out = plan.original if self.is_original else plan.body
        if laid_out == untouched(self._client_body, head, self._model):
            return untouched(self._client_body, head, self._model, asks_usage=False)
        # The operator's reminder stands in the original, too.
        return with_options(laid_out, head.parsed.members.get("stream_options"))

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return len(self.body)

    def retreat(self, refused: OurEdit, *, names_usage: bool) -> None:
        """Go without what was refused. Where it may be either, the layout is blamed unless the upstream names the
        other: a layout is only one session's, while not to ask for usage has every client's bill estimated."""
        is_both = refused == OurEdit.LAYOUT | OurEdit.USAGE
        self.blamed = (OurEdit.USAGE if names_usage else OurEdit.LAYOUT) if is_both else refused
        if OurEdit.LAYOUT in refused:
            self.is_original = True
        if OurEdit.USAGE in refused:
            self._asks_usage = False
        self.suspects = OurEdit.NONE


class QuestionOptOut:
    """Until when each deployment is not asked that refuses a question of the proxy's: for usage in streams, or for the
    cause of a miss. Times are the process's own."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._until: LastUsed[str, float] = LastUsed(_MOST)

    def add(self, deployment: Deployment) -> None:
        """It has refused the question, and taken the same request without."""
        self._until.put(deployment.id, self._now() + _FOR_S)

    def __contains__(self, deployment: Deployment) -> bool:
        until = self._until.get(deployment.id)
        return until is not None and self._now() < until
