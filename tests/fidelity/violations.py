"""What the checker reports: a rule and a short explanation that quotes no prompt text."""

from dataclasses import dataclass
from enum import StrEnum

MOST_PER_RULE = 5


class Rule(StrEnum):
    """The rules, by what went wrong."""

    FIELD = "field"  # a parameter or unknown field was changed, added or dropped
    TOOLS = "tools"  # a tool definition was changed, or the order without leave
    MODE = "mode"  # the mode does not allow this edit at all
    LOST = "lost"  # text or a message of the client is missing
    ADDED = "added"  # something that neither the client nor the documented list says
    ALTERED = "altered"  # a message that kept its place says something else
    ORDER = "order"  # conversation turns (or system messages) changed their order
    TAIL = "tail"  # something moved inside or behind the last exchange
    TOOL_PAIR = "tool-pair"  # a tool result no longer follows its call
    EXCHANGE = "exchange"  # something moved between a user's turn and its answer
    SYSTEM_FIRST = "system-first"  # something moved before the leading system messages
    DOCUMENTS = "documents"  # documents moved inside a system message that is not the last leading one
    STATIC = "static"  # lines moved that were never seen to change
    CLAIM = "claim"  # files under a header that says something else than the client did
    OPENING = "opening"  # the client's opening text or acknowledgement is not with the last part, once
    ACKNOWLEDGEMENT = "acknowledgement"  # a part without its "Ok."
    SPLIT = "split"  # a text was cut (or joined) where that is not allowed, or a cut left a blank part
    GLUED = "glued"  # two lines that stood apart make one, where the parts are joined with nothing between them
    FORM = "form"  # content changed between string and list in a way that is not documented
    SIGNED = "signed"  # what stands in front of signed thinking is not what stood there when it was made
    TAG = "tag"  # the tag stands in the wrong place, or more than once
    PANEL = "panel"  # a live panel is missing, stands twice, or is not what the client sent
    STAMP = "stamp"  # the time above a panel, or the order of these times
    FOOTER = "footer"  # the end of the panels, or the repeated system text, is missing or in the wrong place
    PLACE = "place"  # something of ours stands where it parts what belongs together
    DATETIME = "datetime"  # the time of a question is wrong, or stands in front of something else
    SUMMARIZED = "summarized"  # a summarized message does not say its short form alone
    REMOVED = "removed"  # what was deleted, detached or empty is sent
    REPAIRED = "repaired"  # a call or a result without the other one is not repaired as it is documented
    MERGED = "merged"  # neighbouring calls in one message, other than all of them with all that they say
    FROZEN = "frozen"  # a frozen part says something else than its messages, or must not be frozen
    COMPACTED = "compacted"  # a summary, or the beginning of what stays, is not where it may be
    MARKER_COUNT = "marker-count"
    MARKER_PLACE = "marker-place"
    MARKER_FORM = "marker-form"
    MARKER_ORDER = "marker-order"  # a 1-hour marker behind a 5-minute one
    MARKER_LOST = "marker-lost"  # a marker of the client's is gone where it must stay
    MARKER_LIFE = "marker-life"  # the client asked for one hour, no marker says so any more


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. ``where`` is a path into the sent body unless it says ``original``."""

    rule: Rule
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.what}"


class Report:
    """Collects violations; of each rule the first few, so that one slip does not fill the page."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._by_rule: dict[Rule, int] = {}

    def add(self, rule: Rule, where: str, what: str) -> None:
        """Notes one violation."""
        count = self._by_rule.get(rule, 0) + 1
        self._by_rule[rule] = count
        if count <= MOST_PER_RULE:
            self.violations.append(Violation(rule, where, what))


def difference(left: str, right: str) -> str:
    """Where two texts part, in numbers only."""
    limit = min(len(left), len(right))
    low, high = 0, limit
    while low < high:  # the longest common head, by bisection: comparisons of slices are quick
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return f"{len(left)} characters became {len(right)}, first difference at {low}"
