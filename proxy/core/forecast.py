"""For a layout: how likely the next request repeats everything up to each position, in time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.core.assemble import Material
from proxy.core.item import Item
from proxy.core.layout import Element, ElementKind, Layout
from proxy.core.profiles import CacheProfile
from proxy.core.session import Reading, Session
from proxy.core.survival import CLOCK_CHANGE, NAMED_IN_PROMPT, NAMED_RECENTLY, STATIC_CHANGE, change_hazard
from proxy.core.view import View

_RECENT_TURNS = 2
_SIZE_POWER = 0.5
# The tag stands at another place in the next request, even where its text is the same.
_TAG_HAZARD = 5.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of the next request, made once per request and used for every candidate layout.

    ``body`` is P(the session's next request comes within the life), ``head`` P(any request with the same head does);
    ``turns`` maps a message's index to P(the next request repeats the conversation up to it); ``hazards`` maps a
    context piece to -ln P(unchanged), ``whole`` a context message's index to the sum over its pieces;
    ``head_hazards`` holds the tools' -ln P(unchanged), then each system message's; ``shared``
    are the first turns, with which other sessions of the lane begin, too. ``fixed_hazards`` is as ``head_hazards``,
    for system messages without what moves in them. ``rendered_last`` are the context messages with no turn between
    them and the last exchange.
    """

    body: float
    head: float
    turns: Mapping[int, float]
    hazards: Mapping[str, float]
    whole: Mapping[int, float]
    shared: frozenset[int]
    head_hazards: Sequence[float]
    fixed_hazards: Sequence[float]
    rendered_last: frozenset[int] = frozenset()

    def weight(self, item: Item, tokens: int) -> float:
        """The larger, the earlier a piece should stand. The exchange argument says tokens per expected change; what is
        expected is an estimate, and an error on a large piece costs more: its size counts by its root (measured).
        """
        return float(tokens**_SIZE_POWER) / max(self.hazards[item.key], 1e-6)

    def positions(self, layout: Layout, *, is_natural: bool = False) -> list[float]:
        """P(the next request comes in time and repeats everything up to the position), never rising.

        In the client's own order (``is_natural``) context that stands directly in front of the last exchange will have
        this exchange in front of it next time.
        """
        moves = self.rendered_last if is_natural else frozenset()
        result: list[float] = []
        reached, hazard, reader = 1.0, 0.0, max(self.head, self.body)
        kept, turns, shared = 1.0, self.turns, self.shared
        starts = layout.starts
        for index, (message, start) in enumerate(zip(layout.turns, starts, strict=True), 1):
            if message >= 0:
                if message not in shared:
                    reader = self.body
                    reached = min(reached, turns.get(message, 0.0))
            else:
                element = layout.elements[index - 1]
                hazard += _TAG_HAZARD if element.message in moves else self._hazard(element)
                kept = math.exp(-hazard)
            chance = reader * reached * kept
            count = (starts[index] if index < len(starts) else len(layout.ends)) - start
            if count == 1:
                result.append(chance)
            else:
                result += [chance] * count
        return result

    def _hazard(self, element: Element) -> float:
        match element.kind:
            case ElementKind.TOOLS:
                return self.head_hazards[0]
            case ElementKind.MESSAGE | ElementKind.REST:
                return self.head_hazards[element.message + 1]
            case ElementKind.SYSTEM:
                return self.fixed_hazards[element.message + 1]
            case ElementKind.WHOLE:
                return self.whole[element.message]
            case ElementKind.TAG:
                return _TAG_HAZARD
            case _:
                return self.hazards[element.item.key] if element.item is not None else 0.0


def forecast(session: Session, reading: Reading, view: View, material: Material, profile: CacheProfile) -> Forecast:
    """The forecast for one request."""
    lane = session.lane
    turn_indices = view.turns()
    survival = lane.breaks.survival(len(turn_indices), reading.rank)
    continues = 0.95 if session.requests else lane.continues()
    named = _named(view, material)
    hazards = {
        key: change_hazard(item.kind, item.claim, reading.ages[key], named.get(key, 0.0), reading.rates.get(key))
        for key, item in ((i.key, i) for i in view.items())
    }
    moving = {text.message for text in view.system}
    return Forecast(
        body=continues * lane.returns_within(profile.life_s),
        head=lane.shares_within(profile.life_s),
        turns=dict(zip(turn_indices, survival, strict=True)),
        hazards=hazards,
        head_hazards=[
            session.head_hazard(place, CLOCK_CHANGE if place - 1 in moving else STATIC_CHANGE)
            for place in range(view.head + 1)
        ],
        rendered_last=_rendered_last(view),
        fixed_hazards=[session.fixed_hazard(place) for place in range(view.head + 1)],
        shared=frozenset(turn_indices[: lane.shared_turns(reading.turns)]),
        whole={g.message: sum(hazards[i.key] for i in g.items) for g in view.groups},
    )


def _rendered_last(view: View) -> frozenset[int]:
    last_turn = max((i for i in view.turns() if i < view.last_user), default=-1)
    return frozenset(g.message for g in view.groups if g.message > last_turn and last_turn >= 0)


def _named(view: View, material: Material) -> dict[str, float]:
    """Files that the prompt, or the exchange before it, speaks of: they are about to be edited."""
    if not material.items:
        return {}
    prompt = b"".join(m.raw for m in view.messages[view.last_user :] if m.role == "user")
    turns = [i for i in view.turns() if i < view.last_user][-_RECENT_TURNS:]
    recent = b"".join(view.messages[i].raw for i in turns)
    found: dict[str, float] = {}
    for key, item in material.items.items():
        path = item.key.partition("file:")[2].partition("#")[0]
        if not path:
            continue
        name = path.rpartition("/")[2].encode("utf-8", "surrogatepass")
        if name in prompt:
            found[key] = NAMED_IN_PROMPT
        elif path.encode("utf-8", "surrogatepass") in recent:
            found[key] = NAMED_RECENTLY
    return found
