"""A request of a long conversation costs little more than one of a short one: as many requests more would be quadratic.

Counted are the lines of the planner that a request runs through, from its bytes to the end of its answer."""

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.modes import Mode
from proxy.planner import TierPlanner
from proxy.planner.plan import PlannerOptions
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four, quick
from tests.bench import bodies

_TURNS = 120
# Before the first of these turns, a prompt is too short for a provider to store it, and costs much less.
_SHORT, _LONG = range(56, 63), range(_TURNS - 7, _TURNS)
_MOST_LINES_A_MESSAGE = 28
"""They were 52 to 64 when every entry of the shadow caches was renewed and weighed with each request."""


@pytest.mark.parametrize("name", ["anthropic", "openai", "deepseek"])
def test_each_message_more_costs_few_lines(name: str) -> None:
    planner = TierPlanner(
        quick(bytes_over_four), recognisers(build_plugin_manager()), options=PlannerOptions(prices_mark=True)
    )
    route, now, found = Route(scope="t", name="m", model="m", profile=PROFILES[name]), 0.0, dict[int, int]()
    for turn, body in enumerate(bodies.agent(1, 1000, _TURNS, stream=False, warm=0).bodies):
        with _counted() as lines:
            plan = planner.plan(body, route, Mode.TIER, now)
            planner.on_accepted(plan, now)
            planner.on_completed(plan, None, now)
        found[turn], now = lines(), now + 20.0
    short, long = (statistics.median(found[turn] for turn in turns) for turns in (_SHORT, _LONG))
    messages = 2 * (_LONG.start - _SHORT.start)
    assert 1 < (long - short) / messages < _MOST_LINES_A_MESSAGE


@contextmanager
def _counted() -> Iterator[Callable[[], int]]:
    """How many lines of Python have run so far, in the block."""
    count, before = 0, sys.gettrace()

    def note(frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return note

    sys.settrace(note)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)
