"""Every recorded session, replayed against a provider that really caches: faithful, accepted, and never dearer."""

import json
from functools import cache
from pathlib import Path

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.lab import Step, Trace, read_trace
from proxy.lab.replay import Setting, replay
from proxy.planner.plan import Plan
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.tokens import Encode
from proxy.services import local_encode
from tests.examples import in_turn
from tests.fidelity.checker import check
from tests.fidelity.recorded import trace_files
from tests.talk import RECOGNISERS

TRACES = trace_files()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")]


def name_of(value: object) -> str:
    """What a row is called."""
    return value.name.removesuffix(".jsonl.xz") if isinstance(value, Path) else str(value)


# What learning a new session may cost, at most: two per cent; without moving anything, or by fixed thresholds, five.
MOST, MOST_OTHERWISE = 1.02, 1.05


@cache
def encode() -> Encode:
    """One tokeniser for all sessions."""
    return local_encode()


@cache
def trace(path: Path) -> Trace:
    """A session, read once for all its replays."""
    return read_trace(path)


def run(path: Path, profile: str, mode: Mode, policy: str = "economic") -> float:
    """Replays a session under the checker of forwarded requests; our cost as a share of the cheapest without us."""
    found: list[str] = []

    def look(step: Step, plan: Plan) -> None:
        assert plan.surprise is None
        assert plan.reason is not Reason.INTERNAL_ERROR
        original, sent = json.loads(step.body), json.loads(plan.body)
        broken = check(original, sent, mode=mode.name.lower(), profile=profile)
        found.extend(f"at {step.at}, {plan.reason}: {violation}" for violation in broken)

    setting = Setting(PROFILES[profile], encode(), RECOGNISERS, mode, policy, on_sent=look)
    result = replay(trace(path), setting)
    assert found == []
    assert result.violations == []
    assert result.ours.refused == 0
    return result.against_cheapest()


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_laid_out_anew(path: Path) -> None:
    assert run(path, "anthropic", Mode.TIER) <= MOST


@pytest.mark.parametrize(
    ("path", "profile"), in_turn(TRACES, ["openai", "openai-explicit", "deepseek", "vllm", "none"]), ids=name_of
)
def test_laid_out_anew_for_caches_of_other_kinds(path: Path, profile: str) -> None:
    assert run(path, profile, Mode.TIER) <= MOST


@pytest.mark.parametrize(
    ("path", "way"),
    in_turn(TRACES, [(Mode.TIER, "classic"), (Mode.MARK, ""), (Mode.OBSERVE, ""), (Mode.PASSTHROUGH, "")]),
    ids=name_of,
)
def test_by_tiers_in_the_clients_own_order_or_left_alone(path: Path, way: tuple[Mode, str]) -> None:
    mode, policy = way
    share = run(path, "anthropic", mode, policy or "economic")
    assert share <= MOST_OTHERWISE or mode in (Mode.OBSERVE, Mode.PASSTHROUGH)
