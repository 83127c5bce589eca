"""The search: what it believes is what the provider bills, what it sends is unharmed, and it knows the future."""

from collections.abc import Sequence

import orjson
import pytest

from proxy.lab import Step, Trace
from proxy.lab.demo.chats import samples
from proxy.lab.replay import Account
from proxy.lab.replay.fidelity import violations
from proxy.lab.replay.search import find_layouts
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import PromptReader
from tests.examples import sampled
from tests.unit.lab.replay.sessions import RECOGNISERS, body, growing, say, text

SAMPLES = [pytest.param(sample.trace(), id=sample.name) for sample in samples()]


def found_in(steps: Sequence[Step], profile: CacheProfile, width: int = 8) -> list[tuple[bytes, float]]:
    layouts = find_layouts(steps, profile, bytes_over_four, RECOGNISERS, width)
    assert layouts is not None
    return layouts


def billed(steps: Sequence[Step], layouts: Sequence[tuple[bytes, float]], profile: CacheProfile) -> Account:
    account = Account(PromptReader(profile, bytes_over_four))
    for step, (found, _) in zip(steps, layouts, strict=True):
        account.send(found, step.at)
    return account


@pytest.mark.parametrize("trace", sampled(SAMPLES, 2))
@pytest.mark.parametrize("profile", sampled([ANTHROPIC, OPENAI, DEEPSEEK], 3), ids=lambda p: p.name)
def test_what_is_sent_is_accepted_and_unharmed(trace: Trace, profile: CacheProfile) -> None:
    layouts = found_in(trace.steps, profile)
    assert billed(trace.steps, layouts, profile).total.refused == 0
    for step, (found, _) in zip(trace.steps, layouts, strict=True):
        assert violations(step.body, found, RECOGNISERS, profile.max_marks) == []


@pytest.mark.slow
@pytest.mark.parametrize("trace", sampled(SAMPLES, 2))
def test_the_provider_bills_what_the_search_believes(trace: Trace) -> None:
    layouts = found_in(trace.steps, ANTHROPIC)
    believed = sum(cost for _, cost in layouts)
    tails = 3 * len(layouts)
    assert billed(trace.steps, layouts, ANTHROPIC).total.cost(ANTHROPIC) == pytest.approx(believed + tails, rel=0.01)


def test_nothing_is_written_that_is_not_read_in_a_conversation_that_ends() -> None:
    trace = growing(4)
    account = billed(trace.steps, found_in(trace.steps, ANTHROPIC), ANTHROPIC)
    assert account.total.waste.share == 0
    system, turn = 2004, 304
    # The last request's own turns are not marked: nothing follows.
    assert account.total.write_5m == system + 5 * turn


def test_a_pause_that_outlives_every_entry_is_foreseen() -> None:
    trace = growing(3, gap_s=400.0)
    account = billed(trace.steps, found_in(trace.steps, ANTHROPIC), ANTHROPIC)
    assert (account.total.write_5m, account.total.read) == (0, 0)


def test_tools_are_shared_with_sessions_of_another_head() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": text("tool", 1500), "parameters": {}}}]
    steps = [
        Step(10.0 * i, "s", body(say("system", text(name, 1200)), say("user", "go"), tools=tools))
        for i, name in enumerate("ab")
    ]
    account = billed(steps, found_in(steps, ANTHROPIC), ANTHROPIC)
    assert account.total.read == account.total.write_5m > 1500


@pytest.mark.slow
def test_a_wider_beam_finds_nothing_dearer_here() -> None:
    trace = samples()[0].trace()
    narrow, wide = (
        billed(trace.steps, found_in(trace.steps, ANTHROPIC, width), ANTHROPIC).total.cost(ANTHROPIC)
        for width in (1, 16)
    )
    assert wide <= narrow


@pytest.mark.parametrize(
    "odd", [orjson.dumps({"model": "m", "messages": [{"content": "no role"}]}), body(say("tool", "answers nothing"))]
)
def test_a_session_that_cannot_be_read_is_not_searched(odd: bytes) -> None:
    steps = [*growing(2).steps, Step(2000.0, "s", odd)]
    assert find_layouts(steps, ANTHROPIC, bytes_over_four, RECOGNISERS) is None


def test_without_a_cache_there_is_nothing_to_search() -> None:
    assert find_layouts(growing(2).steps, NONE, bytes_over_four, RECOGNISERS) is None
