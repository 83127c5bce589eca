"""Sentences for people: one for each culprit (what it is, what it costs, and what a developer can do), and the
figures of a client."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from proxy.core.diagnosis.breaks import BreakKind
from proxy.core.diagnosis.diagnose import CONTENT
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN
from proxy.core.shadow.deviations import Deviation
from proxy.doctor.findings import UNTOLD_CULPRIT, Culprit
from proxy.doctor.readers.call import Problem

# Characters that a terminal would obey instead of showing them.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_SIGNS: Mapping[str, str] = MappingProxyType(
    {"time": "is a clock", "date": "is a date", "random": "is a random id", "counter": "is a counter"}
)
_BEHIND = "put it behind the last user message"
_NOT_LOGGED = "less was read than the request before has left, and the log does not hold the prompts that would say why"
# For each kind: what has happened, and what helps. For a system text, other advice may apply.
_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        BreakKind.CHANGED: ("changes", "append what is new, and leave earlier turns as they were"),
        BreakKind.APPEARED: ("appears in front of what was sent before", "append it behind the last turn"),
        BreakKind.DISAPPEARED: ("disappears", "leave earlier turns where they are, or remove many of them at once"),
        BreakKind.REORDERED: ("changes its place", "keep the order of the first request, and append what is new"),
        BreakKind.TOOLS: (
            "changes in the list of tools", "send the same tools in the same order in every request",
        ),
        BreakKind.PARAMETERS: ("changes within conversations", "keep it the same for a whole conversation"),
        BreakKind.MODEL_SWITCHED: (
            "takes over conversations of another model",
            "each model has a cache of its own: switch where a conversation begins",
        ),
        BreakKind.ROUTE_SWITCHED: (
            "takes over conversations of another deployment", "keep a conversation at one deployment",
        ),
        BreakKind.COMPACTED: ("is shortened within conversations", "shorten rarely, and much at a time"),
        BreakKind.BELOW_MINIMUM: ("prompts are shorter than the provider stores", "nothing is lost by it"),
        Deviation.EXPIRED: (
            "entries of the cache expire in pauses",
            "ask for the longer life where pauses are usual, or let keep_alive refresh the prefix",
        ),
        Deviation.EVICTED: ("the provider drops entries before their life is over", ""),
        Deviation.PARTITIONED: ("requests reach machines that do not hold their prefix", ""),
        Deviation.OUT_OF_REACH: (
            "markers stand too far behind the last entry", "set a marker in between, or let mode mark do it",
        ),
        Deviation.MARKERS_IGNORED: (
            "the provider ignores the markers", "find out whether a gateway on the way removes cache_control",
        ),
        Deviation.HIGHER_MINIMUM: (
            "the provider stores no prefix as short as these", "set the markers behind a longer prefix",
        ),
        Deviation.LIFE_DOWNGRADED: (
            "entries that were paid for an hour live five minutes",
            "find out whether a gateway on the way removes the ttl",
        ),
    }
)  # fmt: skip
_SYSTEM_FIXES: Mapping[str, str] = MappingProxyType(
    {
        BreakKind.CHANGED: _BEHIND,
        BreakKind.APPEARED: f"send it from the first request on, or {_BEHIND}",
        BreakKind.DISAPPEARED: f"send it in every request, or {_BEHIND}",
    }
)
_NO_KEY = "keep a conversation at one account, one region and one gateway"


def visible(text: str) -> str:
    """A text from outside, with its control characters as escapes."""
    return text.translate(_CONTROLS)


def usd(amount: float) -> str:
    """An amount in USD, written for people."""
    if amount < 0:
        return f"-{usd(-amount)}"
    if amount >= 100:
        return f"${amount:,.0f}"
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.2g}"


def place_of(culprit: Culprit) -> str:
    """The culprit's name for people; empty if it is not a piece of the request."""
    name, kind = culprit.piece, culprit.piece_kind
    if kind == SYSTEM:
        return f"line {culprit.line} of your system text" if culprit.line else "your system text"
    if kind == TURN:
        return f"an earlier {'tool result' if name == TOOL else name + ' message'}"
    return f"the {kind} {name.removeprefix(kind + ':')}" if kind else ""


def happened(culprit: Culprit) -> str:
    """A clause that says what breaks the cache."""
    place, (what, _) = place_of(culprit), _KINDS.get(culprit.kind, (culprit.kind, ""))
    if culprit.piece == UNTOLD_CULPRIT and not culprit.piece_kind:
        return _NOT_LOGGED
    if culprit.kind not in tuple(BreakKind) or culprit.kind == BreakKind.BELOW_MINIMUM:
        return f"{what}, and {place} differs there" if place else what
    is_sign = culprit.kind == BreakKind.CHANGED and culprit.sign in _SIGNS
    return f"{place or 'a piece of the prompt'} {_SIGNS[culprit.sign] if is_sign else what}"


def advice(culprit: Culprit, cost: str, tier_saves: str, keys: Collection[str]) -> str:
    """The sentence. ``cost`` is the culprit's cost, and ``tier_saves`` is the part of it that mode tier would save.
    Both are amounts written for people; ``tier_saves`` is empty if mode tier saves nothing, or if the saving is not
    known. ``keys`` as in ``Client``."""
    fix = _KINDS.get(culprit.kind, ("", ""))[1]
    if culprit.piece_kind in CONTENT and culprit.kind in _SYSTEM_FIXES:
        fix = "send it behind what stays the same"
    if culprit.piece_kind == SYSTEM:
        fix = _SYSTEM_FIXES.get(culprit.kind, fix)
    if culprit.kind in (Deviation.EVICTED, Deviation.PARTITIONED):
        named = " or ".join(sorted(filter(None, keys)))
        fix = f"send requests of one conversation with the same {named}" if named and "" not in keys else _NO_KEY
    if culprit.piece == UNTOLD_CULPRIT and not culprit.piece_kind:
        fix = "log the requests, or set stratiform.fingerprints"
    if tier_saves:
        fix += f", or let mode tier do it: {tier_saves} saved"
    return f"{happened(culprit)}: {cost}; {fix}"


def problem_text(problem: Problem) -> str:
    """One sentence, with the line number if there is one."""
    where = f"{visible(problem.file)}:{problem.line}: the line" if problem.line else f"{visible(problem.file)}:"
    more = f" ({problem.count:,} such lines)" if problem.count > 1 else ""
    return f"{where} {problem.text}{more}"
