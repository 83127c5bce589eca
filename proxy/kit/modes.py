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
    """Each plan carries exactly one reason, also when the plan changes nothing. What each one means stands in
    ``proxy/app/settings/LOGS.md``."""

    PASSTHROUGH_MODE = "passthrough-mode"
    NOT_CHAT = "not-chat"
    NOT_PLANNED = "not-planned"
    OBSERVE_MODE = "observe-mode"
    HOLD_OUT = "hold-out"
    UNREADABLE = "unreadable"
    SIGNED_THINKING = "signed-thinking"
    INTERNAL_ERROR = "internal-error"
    BARRED = "barred"
    NO_PROFILE = "no-profile"
    MARKS_WITHOUT_PROFILE = "marks-without-profile"
    BELOW_MINIMUM = "below-minimum"
    MARKERS_IGNORED = "markers-ignored"
    ONE_SHOT = "one-shot"
    CLIENT_OPTIMAL = "client-optimal"
    HOISTED_NOTICE = "hoisted-notice"
    MARKERS_REMOVED = "markers-removed"
    NOTHING_STABLE = "nothing-stable"
    REGRET_BOUND = "regret-bound"
    STEADY_TOOLS = "steady-tools"
    MARKED = "marked"
    SPLIT = "split"
    ORDERED = "ordered"
    KEPT = "kept"
    KEEP_ALIVE = "keep-alive"
    COMPACTION = "compaction"
    NATURAL_ORDER = "natural-order"
    ASSEMBLED_TIERS = "assembled-tiers"
    ASSEMBLED_FLAT = "assembled-flat"


class Edit(StrEnum):
    """The reasons why a request with live panels, or with a described history, says more or less than its messages.
    These reasons stand beside the ``Reason`` of the layout: a client, or the operator, has asked for each of them.
    What each one means stands in ``proxy/app/settings/LOGS.md``."""

    PROMPTS_COMPOSED = "prompts-composed"
    PANELS_SHOWN = "panels-shown"
    HISTORY_SUMMARIZED = "history-summarized"
    HISTORY_REMOVED = "history-removed"
    HISTORY_REPAIRED = "history-repaired"
    CALLS_MERGED = "calls-merged"
    HISTORY_FROZEN = "history-frozen"
    HISTORY_COMPACTED = "history-compacted"
    WINDOW_TRIMMED = "window-trimmed"
    SIGNED_FRONT = "signed-front"
    WINDOW_SHORTENED = "window-shortened"
