"""Real requests: untouched they pass, and what is done to them is caught."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.examples import in_turn, sampled
from tests.growth import assert_linear

from .chats import said
from .checker import Rule, check, replay_check
from .recorded import requests_of, some_of, trace_files

TRACES = trace_files()
Body = dict[str, Any]

# Every sixth session in the fast run, every session in the long one.
each_of_some = pytest.mark.parametrize(
    "path", sampled(TRACES, 6), ids=[path.name.removesuffix(".jsonl.xz") for path in TRACES]
)
pytestmark = pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")


def faults(original: Body, sent: Body, **terms: Any) -> set[Rule]:
    found = check(original, sent, **{"mode": "tier", "profile": "anthropic", **terms})
    return {violation.rule for violation in found}


@each_of_some
def test_untouched_requests_pass(path: Path) -> None:
    for body in some_of(path):
        for mode in ("observe", "mark", "tier"):
            assert not faults(body, copy.deepcopy(body), mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "profile"), in_turn(TRACES, ["anthropic", "openai"]))
def test_all_untouched_requests_pass(path: Path, profile: str) -> None:
    pairs = ((body, copy.deepcopy(body)) for body in requests_of(path))
    assert replay_check(pairs, mode="tier", profile=profile) == []


@each_of_some
def test_spoilt_requests_are_caught(path: Path) -> None:
    body = some_of(path)[-1]
    messages = body["messages"]
    for at in (0, len(messages) // 2, len(messages) - 1):
        assert faults(body, {**body, "messages": messages[:at] + messages[at + 1 :]})
        assert faults(body, {**body, "messages": messages[: at + 1] + messages[at:]})
        assert faults(body, {**body, "messages": [*messages[:at], said("user", "hm"), *messages[at:]]})
    if len(messages) > 3:
        assert faults(body, {**body, "messages": [*messages[1:], messages[0]]})
    assert faults(body, {**body, "temperature": 0.5})


@pytest.mark.slow
def test_a_large_request_is_checked_in_linear_time() -> None:
    first = max(requests_of(TRACES[0]), key=lambda body: len(str(body["messages"])))

    def grown(chars: int) -> Body:
        messages = [*first["messages"]]
        while len(str(messages)) < chars:
            messages[1:1] = [said("user", f"turn {len(messages)}\n" + "x = 1\n" * 2000), said("assistant", "done")]
        return {**first, "messages": messages}

    bodies = {size: grown(size) for size in (400_000, 1_600_000)}
    sent = copy.deepcopy(bodies)
    assert_linear(
        lambda sizes: check(bodies[len(sizes)], sent[len(sizes)], mode="tier", profile="anthropic"), range, 400_000
    )
