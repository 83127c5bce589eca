"""What sessions cost of a client that assembles its prompts by itself, in sections under fixed headers."""

import json
from collections.abc import Iterable

import pytest

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.lab import Step, Trace
from proxy.lab.replay import Setting
from proxy.lab.replay.comparison import CLASSIC, ECONOMIC, compare, shares
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four
from tests.assemblies import flat, tiered
from tests.fidelity.checker import replay_check
from tests.talk import RECOGNISERS, Body, Talk

ALL = recognisers(build_plugin_manager())
SESSIONS = {
    "flat": lambda: flat(),
    "in the system prompt": lambda: flat(in_system=True),
    "tiered": lambda: tiered(),
    "calm": lambda: tiered(is_calm=True),
    "without maps": lambda: tiered(has_map_below=False),
}


def trace(bodies: Iterable[Body]) -> Trace:
    """A request every 40 seconds."""
    return Trace("assembly", [Step(1000.0 + 40 * n, "s", json.dumps(body).encode()) for n, body in enumerate(bodies)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"), [("flat", 0.28), ("tiered", 0.54), ("in the system prompt", 0.43), ("without maps", 0.5)]
)
def test_a_session_costs_much_less_than_without_a_cache(name: str, most: float) -> None:
    found = compare(trace(SESSIONS[name]()), Setting(ANTHROPIC, bytes_over_four, ALL))
    assert found.violations == []
    assert shares(found)[ECONOMIC] < most
    assert shares(found)[ECONOMIC] < 0.95 * shares(found)[CLASSIC]


@pytest.mark.slow
def test_without_the_words_of_such_clients_it_costs_much_more() -> None:
    found = compare(trace(flat()), Setting(ANTHROPIC, bytes_over_four, RECOGNISERS))
    assert shares(found)[ECONOMIC] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["economic", "classic"])
@pytest.mark.parametrize("name", SESSIONS)
def test_everything_is_said_once(name: str, policy: str) -> None:
    talk = Talk(profile=ANTHROPIC, policy=policy)
    talk.planner = type(talk.planner)(talk.encode, ALL, policy)
    pairs = [(body, json.loads(talk.send(body, after_s=40).body)) for body in SESSIONS[name]()]
    assert replay_check(pairs, mode="tier", profile="anthropic") == []
