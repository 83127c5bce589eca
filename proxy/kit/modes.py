"""How far the proxy may go with a request, and why a plan is what it is: closed lists of modes, reasons and edits."""

from enum import IntEnum, StrEnum


class Mode(IntEnum):
    """The modes in ascending order. A request may choose a lower mode than the operator allows, never a higher one.

    - ``PASSTHROUGH``: nothing changes but the model's alias, ``stream_options`` and the removal of ``stratiform``.
    - ``OBSERVE``: as ``PASSTHROUGH``; but the request is planned, and the proxy reports what the plan would have saved.
    - ``MARK``: the order does not change. The client's cache markers stay, and the proxy fills the free markers.
    - ``TIER``: movable pieces are laid out anew, stable pieces first. The proxy places the markers.
    """

    PASSTHROUGH = 0
    OBSERVE = 1
    MARK = 2
    TIER = 3

    @classmethod
    def parse(cls, text: str) -> "Mode":
        """The mode of that name. Raises ValueError naming the choices."""
        try:
            return cls[text.strip().upper()]
        except KeyError:
            raise ValueError(f"mode must be one of passthrough, observe, mark, tier; got {text!r}") from None


class Reason(StrEnum):
    """Each plan carries exactly one reason, also when the plan changes nothing."""

    PASSTHROUGH_MODE = "passthrough-mode"
    """The mode, the header, or the operator's configuration asks for no change."""
    NOT_CHAT = "not-chat"
    """The path is not a path of chat completions: the request passes, and nothing is planned."""
    NOT_PLANNED = "not-planned"
    """A chat request that ended before it was planned: the proxy refused it, or it asked for its breakdown alone."""
    OBSERVE_MODE = "observe-mode"
    """The request is planned and priced, and sent as it came."""
    HOLD_OUT = "hold-out"
    """The session is a control: its requests are sent as they came, so that others can be compared with them."""
    UNREADABLE = "unreadable"
    """The body is JSON but does not have the shape of a chat request, or a text in it cannot be encoded."""
    SIGNED_THINKING = "signed-thinking"
    """Signed thinking binds the text in front of it. In every mode, that text is sent in the layout that it had when
    the thinking was made."""
    INTERNAL_ERROR = "internal-error"
    """The proxy met an error of its own: the request is sent as it came."""
    BARRED = "barred"
    """An earlier rewrite of this session was refused by the upstream."""
    NO_PROFILE = "no-profile"
    """Nothing is known about this upstream's cache, so only the order is planned; and there was nothing to order
    anew."""
    MARKS_WITHOUT_PROFILE = "marks-without-profile"
    """Nothing is known about this upstream's cache, and the client sets markers for it: the request is sent as it came.
    The operator can name the cache profile (``--cache-profile``, ``model_info.cache_profile``)."""
    BELOW_MINIMUM = "below-minimum"
    """The prompt is shorter than the shortest prompt that the provider caches."""
    MARKERS_IGNORED = "markers-ignored"
    """According to its own usage reports, this upstream stores nothing that is marked. The proxy tries markers again
    after a while."""
    ONE_SHOT = "one-shot"
    """This client's past requests show that such a request is not continued: a cache write would be wasted."""
    CLIENT_OPTIMAL = "client-optimal"
    """The client's own markers and order are at least as good as ours."""
    HOISTED_NOTICE = "hoisted-notice"
    """This upstream moves later system messages to the front, and one of them is new: the cache does not serve the text
    behind it."""
    MARKERS_REMOVED = "markers-removed"
    """The client sets markers in a way that this provider refuses. The markers are removed, and all else is sent as it
    came."""
    NOTHING_STABLE = "nothing-stable"
    """No prefix is expected to be read again."""
    REGRET_BOUND = "regret-bound"
    """Every cheaper plan would exceed the allowance for mistakes: the client's own request is sent."""
    STEADY_TOOLS = "steady-tools"
    """The tools are sent in the order and form in which they came first, and all else as the client sent it."""
    MARKED = "marked"
    """The order stays as it came, and markers are placed."""
    SPLIT = "split"
    """The order stays as it came. A system text is sent in two parts, so that the part in front of its volatile line
    can be marked."""
    ORDERED = "ordered"
    """The context is laid out anew, stable pieces first."""
    KEPT = "kept"
    """The layout of the previous request is kept."""
    KEEP_ALIVE = "keep-alive"
    """The request is the proxy's own: it reads a prefix once more before its cache entry expires."""
    COMPACTION = "compaction"
    """The request is the proxy's own: it asks a model for a summary of the oldest part of a conversation."""
    NATURAL_ORDER = "natural-order"
    """The cache is automatic, and the client's order is already the best."""
    ASSEMBLED_TIERS = "assembled-tiers"
    """Structured context is assembled in tiers under the policy ``classic``, with one breakpoint per tier."""
    ASSEMBLED_FLAT = "assembled-flat"
    """Structured context is assembled flat and without breakpoints: the client asked for that, or the proxy met an
    error of its own."""


class Edit(StrEnum):
    """The reasons why a request with live panels, or with a described history, says more or less than its messages.
    These reasons stand beside the ``Reason`` of the layout: a client, or the operator, has asked for each of them."""

    PROMPTS_COMPOSED = "prompts-composed"
    """The request contains texts of the operator, as the configuration asks for it."""
    PANELS_SHOWN = "panels-shown"
    """The conversation contains live panels as results of a call."""
    HISTORY_SUMMARIZED = "history-summarized"
    """Messages are sent in the short form that the client gives for them."""
    HISTORY_REMOVED = "history-removed"
    """Messages that the client has deleted or shows elsewhere are not sent, nor are empty messages."""
    HISTORY_REPAIRED = "history-repaired"
    """Calls without a result, or results without a call, are left out or completed."""
    CALLS_MERGED = "calls-merged"
    """Neighbouring messages with calls are sent as one message."""
    HISTORY_FROZEN = "history-frozen"
    """The oldest part of the conversation stands in panels of its own."""
    HISTORY_COMPACTED = "history-compacted"
    """The oldest part of the conversation is left out, or a summary stands in its place."""
    WINDOW_TRIMMED = "window-trimmed"
    """The oldest messages are left out, so that the request fits the context window of its profile."""
    SIGNED_FRONT = "signed-front"
    """The text in front of signed thinking was edited, or may change with each request. A model that binds the thinking
    to that text may refuse the request."""
    WINDOW_SHORTENED = "window-shortened"
    """Parts that the request names are shortened or left out, so that it fits the context window of its profile."""
