"""Notices: system messages behind the leading ones.

Some upstreams move every system message to the front; newer ones keep its place. A layout here has the order in which
the provider reads it. If that is not the order of the messages (``CacheProfile.hoists_system``), the notices stand
behind the head with the key ``NOTICE``, and ``wire_order`` puts them back where the client has them.

A notice may carry a marker in either case. If it keeps its place, everything in front of it is read again. If it is
moved to the front, all notices up to it are read again. The text behind hoisted notices becomes another prompt as soon
as there is one more notice.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import compress
from math import inf

from proxy.core.caches.prompt import Life, Prompt
from proxy.core.layout.layout import NOTICE, Layout, is_message
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import SYSTEM_ROLES, Message
from proxy.core.stability.change_rates import DecayedRate

# The conversation itself shows how often a notice joins it. That record weighs as much as so many requests.
_SHOWN_WEIGHT = 2.0


def wire_order(elements: Sequence[Element]) -> Sequence[int]:
    """The indices of a layout's elements in the order of the messages. Each notice stands behind the last element that
    the client has in front of it, and in front of the turn that follows it."""
    notices = [index for index, element in enumerate(elements) if element.key == NOTICE]
    if not notices:
        return range(len(elements))
    others = [index for index, element in enumerate(elements) if element.key != NOTICE]
    turns = [place for place, index in enumerate(others) if elements[index].key == "turn"]
    messages = [elements[others[place]].message for place in turns]
    starts, ends = [0, *turns], [*turns, len(others)]
    least = _least_behind([elements[index] for index in others], starts, ends)
    is_tools = int(elements[0].kind is ElementKind.TOOLS)
    slots: dict[int, list[int]] = {}
    for index in notices:
        message = elements[index].message
        stretch = bisect_right(messages, message)
        slot = bisect_left(least, message, starts[stretch], ends[stretch])
        slots.setdefault(max(slot, is_tools), []).append(index)
    found: list[int] = []
    for place, index in enumerate(others):
        found += slots.get(place, ())
        found.append(index)
    return found + slots.get(len(others), [])


def _least_behind(elements: Sequence[Element], starts: Sequence[int], ends: Sequence[int]) -> list[float]:
    """For each element, the least message index from this element to the end of its stretch between two turns."""
    found = [inf] * len(elements)
    for start, end in zip(starts, ends, strict=True):
        least = inf
        for place in range(end - 1, start - 1, -1):
            message = elements[place].message
            least = found[place] = min(least, message) if message >= 0 else least
    return found


def elsewhere(layout: Layout, marks: Mapping[int, Life]) -> Prompt | None:
    """The same request as it is read if its notices are put elsewhere than in the layout: at the front, or where the
    client has them. None if the prompt stays the same."""
    elements = layout.elements
    order: Sequence[int]
    if any(element.key == NOTICE for element in elements):
        order = wire_order(elements)
    else:
        behind = [is_message(element) for element in elements]
        order = [*(i for i, is_behind in enumerate(behind) if not is_behind), *compress(range(len(behind)), behind)]
    if list(order) == list(range(len(elements))):
        return None
    other = Layout(layout.seed, [elements[index] for index in order], layout)
    starts = {index: other.starts[number] for number, index in enumerate(order)}
    moved: dict[int, Life] = {}
    for position, life in marks.items():
        index = bisect_right(layout.starts, position) - 1
        moved[starts[index] + position - layout.starts[index]] = life
    return other.prompt(moved)


def are_ordered(layout: Layout, marks: Mapping[int, Life]) -> bool:
    """Whether no one-hour marker stands behind a five-minute marker, wherever the notices are put. A provider refuses
    such an order."""
    if len(set(marks.values())) < 2:
        return True
    other = elsewhere(layout, marks)
    readings = (marks,) if other is None else (marks, other.marks)
    return all(lives == sorted(lives) for lives in ([one[p] for p in sorted(one)] for one in readings))


def off_notices(layout: Layout, marks: Mapping[int, Life]) -> dict[int, Life]:
    """The markers that do not stand on a notice."""
    owners = {position: layout.owner(position) for position in marks}
    return {p: marks[p] for p, owner in owners.items() if owner.role not in SYSTEM_ROLES or owner.key == "system"}


def stays(messages: Sequence[Message], notices: Sequence[int], seen: float, changed: float) -> float:
    """P(the next request has the same notices). It follows from how many requests of the session had notices
    (``seen``), and how many of these had a new one (``changed``). Before there are any, it follows from the
    conversation itself, in which each answer stands for one request."""
    at = set(notices)
    requests, shown, has_shown = 1, 0, False
    for index, message in enumerate(messages):
        if message.role == "assistant":
            requests, has_shown = requests + 1, False
        elif index in at and not has_shown:
            shown, has_shown = shown + 1, True
    joins = DecayedRate(shown / requests, _SHOWN_WEIGHT).share(changed, seen)
    return max(0.0, 1.0 - joins)
