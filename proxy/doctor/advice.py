"""One sentence for each culprit: what it is, what it costs, and what a developer can do."""

from collections.abc import Mapping
from types import MappingProxyType

from proxy.core.diagnosis.breaks import BreakKind
from proxy.core.diagnosis.diagnose import MODEL, PARAMETER, ROUTE
from proxy.core.diagnosis.record import SYSTEM, TOOL
from proxy.core.shadow.deviations import Deviation
from proxy.doctor.findings import Culprit
from proxy.doctor.untold import UNTOLD_CULPRIT

_SIGNS: Mapping[str, str] = MappingProxyType(
    {"time": "is a clock", "date": "is a date", "random": "is a random id", "counter": "is a counter"}
)
_BEHIND = "put it behind the last user message"
# By kind alone, or by kind and what kind of piece the culprit is.
_HAPPENED: Mapping[str, str] = MappingProxyType(
    {
        BreakKind.CHANGED: "changes",
        BreakKind.APPEARED: "appears in front of what was sent before",
        BreakKind.DISAPPEARED: "disappears",
        BreakKind.REORDERED: "changes its place",
        BreakKind.TOOLS: "changes in the list of tools",
        BreakKind.PARAMETERS: "changes within conversations",
        BreakKind.MODEL_SWITCHED: "takes over conversations of another model",
        BreakKind.ROUTE_SWITCHED: "takes over conversations of another deployment",
        BreakKind.COMPACTED: "is shortened within conversations",
        BreakKind.BELOW_MINIMUM: "prompts are shorter than the provider stores",
        Deviation.EXPIRED: "entries of the cache expire in pauses",
        Deviation.EVICTED: "the provider drops entries before their life is over",
        Deviation.PARTITIONED: "requests reach machines that do not hold their prefix",
        Deviation.OUT_OF_REACH: "markers stand too far behind the last entry",
        Deviation.MARKERS_IGNORED: "the provider ignores the markers",
        Deviation.HIGHER_MINIMUM: "the provider stores no prefix as short as these",
        Deviation.LIFE_DOWNGRADED: "entries that were paid for an hour live five minutes",
    }
)
_FIXES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        (BreakKind.CHANGED, SYSTEM): _BEHIND,
        (BreakKind.CHANGED, ""): "append what is new, and leave earlier turns as they were",
        (BreakKind.APPEARED, SYSTEM): f"send it from the first request on, or {_BEHIND}",
        (BreakKind.APPEARED, ""): "append it behind the last turn",
        (BreakKind.DISAPPEARED, SYSTEM): f"send it in every request, or {_BEHIND}",
        (BreakKind.DISAPPEARED, ""): "leave earlier turns where they are, or remove many of them at once",
        (BreakKind.REORDERED, ""): "keep the order of the first request, and append what is new",
        (BreakKind.TOOLS, ""): "send the same tools in the same order in every request",
        (BreakKind.PARAMETERS, ""): "keep it the same for a whole conversation",
        (BreakKind.MODEL_SWITCHED, ""): "each model has a cache of its own: switch where a conversation begins",
        (BreakKind.ROUTE_SWITCHED, ""): "keep a conversation at one deployment",
        (BreakKind.COMPACTED, ""): "shorten rarely, and much at a time",
        (BreakKind.BELOW_MINIMUM, ""): "nothing is lost by it",
        (Deviation.EXPIRED, ""): "ask for the longer life where pauses are usual, or let keep_alive refresh the prefix",
        (Deviation.EVICTED, ""): "send requests of one conversation with the same prompt_cache_key",
        (Deviation.PARTITIONED, ""): "send requests of one conversation with the same prompt_cache_key",
        (Deviation.OUT_OF_REACH, ""): "set a marker in between, or let mode mark do it",
        (Deviation.MARKERS_IGNORED, ""): "find out whether a gateway on the way removes cache_control",
        (Deviation.HIGHER_MINIMUM, ""): "set the markers behind a longer prefix",
        (Deviation.LIFE_DOWNGRADED, ""): "find out whether a gateway on the way removes the ttl",
    }
)


def place_of(culprit: Culprit) -> str:
    """What a person calls the culprit; empty where it is no piece of the request."""
    name = culprit.piece
    match culprit.piece_kind:
        case "":
            return "the prompt" if name == UNTOLD_CULPRIT else ""
        case kind if kind == SYSTEM:
            return f"line {culprit.line} of your system text" if culprit.line else "your system text"
        case kind if kind == TOOL:
            return f"the tool {name}"
        case kind if kind == PARAMETER:
            return f"the parameter {name}"
        case kind if kind in (MODEL, ROUTE):
            return f"the {kind} {name}"
        case kind if ":" in name:
            return f"the {kind} {name.partition(':')[2]}"
    return f"an earlier {'tool result' if name == TOOL else name + ' message'}"


def happened(culprit: Culprit) -> str:
    """What breaks the cache, as a clause."""
    place, is_provider = place_of(culprit), culprit.kind not in tuple(BreakKind)
    what = _HAPPENED.get(culprit.kind, culprit.kind)
    if culprit.piece == UNTOLD_CULPRIT and not culprit.piece_kind:
        return (
            "less was read than the request before has left, and the log does not hold the prompts that would say why"
        )
    if is_provider or culprit.kind == BreakKind.BELOW_MINIMUM:
        return f"{what}, and {place} differs there" if place else what
    if culprit.kind == BreakKind.CHANGED and culprit.sign:
        what = _SIGNS.get(culprit.sign, what)
    return f"{place or 'a piece of the prompt'} {what}"


def advice(culprit: Culprit, cost: str, tier_saves: str) -> str:
    """The sentence. ``cost`` is what the culprit costs and ``tier_saves`` what mode tier would save of it, both as a
    person writes amounts; the latter is empty where it saves nothing, or nobody knows."""
    fix = _FIXES.get((culprit.kind, culprit.piece_kind)) or _FIXES.get((culprit.kind, ""), "")
    if culprit.piece == UNTOLD_CULPRIT and not culprit.piece_kind:
        fix = "log the requests, or set stratiform.fingerprints"
    if tier_saves:
        fix += f", or let mode tier do it: {tier_saves} saved"
    return f"{happened(culprit)}: {cost}; {fix}"
