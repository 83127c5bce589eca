"""The body that is sent for a plan, and the body that is sent instead if the upstream refuses it.

Two edits of a chat request can make an upstream refuse a request that it would otherwise accept: the layout, and
``stream_options``, which asks for usage in streams and which strict servers do not know. On other paths, it is the
question for the cause of a cache miss (``proxy.engine.inquiries``). At most one more call is made before the client
gets an answer, so the second call is the client's own request, without any edit that may be to blame. The edit that was
to blame decides what is remembered: a layout is barred for the session, and a question is not sent to the deployment
for a while (``QuestionOptOut``).
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
# The statuses with which servers refuse a member that they do not know.
_INVALID = frozenset({400, 422})

# Clients choose the names that match a wildcard, so the number of remembered names is bounded.
_MOST = 2048
# Servers are updated, so a refusal is forgotten after this time. A new try costs one refused call.
_FOR_S = 3600.0


class OurEdit(Flag):
    """The proxy's edits that an upstream may refuse."""

    NONE = 0
    LAYOUT = auto()
    USAGE = auto()
    CAUSE = auto()

    def behind(self, status: int) -> "OurEdit":
        """The edits among these that may be the cause of an answer with this status."""
        found = OurEdit.NONE
        if 400 <= status < 500 and status not in _NOT_THE_LAYOUT:
            found = OurEdit.LAYOUT | OurEdit.CAUSE
        if status in _INVALID:
            found |= OurEdit.USAGE
        return self & found

    def in_refusal(self, status: int, said: Refusal) -> "OurEdit":
        """The edits among these that may be the cause of a refusal, by its status and its text. If the text names
        another member, the question for usage is not to blame. A layout may be to blame for anything."""
        found = self.behind(status)
        return found & ~OurEdit.USAGE if said.names_another else found


class Outgoing:
    """One plan's request to one deployment. ``suspects`` are the proxy's edits for which it may be refused and sent
    again, once."""

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
        # The operator's reminder is in the original, too.
        return with_options(laid_out, head.parsed.members.get("stream_options"))

    @property
    def size(self) -> int:
        """How many bytes are sent."""
        return len(self.body)

    def retreat(self, refused: OurEdit, *, names_usage: bool) -> None:
        """Remove the edits that were refused. If either of the two may be to blame, the layout is blamed unless the
        upstream names the question for usage. Barring a layout affects one session only. Without the question, the
        bills of all clients would be estimates."""
        is_both = refused == OurEdit.LAYOUT | OurEdit.USAGE
        self.blamed = (OurEdit.USAGE if names_usage else OurEdit.LAYOUT) if is_both else refused
        if OurEdit.LAYOUT in refused:
            self.is_original = True
        if OurEdit.USAGE in refused:
            self._asks_usage = False
        self.suspects = OurEdit.NONE


class QuestionOptOut:
    """The deployments that refuse one of the proxy's questions, for usage in streams or for the cause of a cache miss.
    For each, it stores until when the question is not sent. Times are from the process's own clock."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._until: LastUsed[str, float] = LastUsed(_MOST)

    def add(self, deployment: Deployment) -> None:
        """The deployment has refused the question, and accepted the same request without it."""
        self._until.put(deployment.id, self._now() + _FOR_S)

    def __contains__(self, deployment: Deployment) -> bool:
        until = self._until.get(deployment.id)
        return until is not None and self._now() < until
