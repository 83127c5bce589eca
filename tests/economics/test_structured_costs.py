"""Structured context costs no more than the cheapest of the forms that its client could have sent."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.providers import PROFILES
from tests.economics.billing import Provider
from tests.economics.structured_costs import RULES, compared
from tests.economics.structured_sessions import Form, Spec, Thing, spec_of
from tests.examples import chosen, examples


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 32))
def test_a_random_session_costs_no_more_than_in_its_cheapest_form(seed: int) -> None:
    found = compared(spec_of(seed), RULES[seed % len(RULES)])
    assert found.excess <= 0, found


@pytest.mark.parametrize(("turns", "size"), chosen([(40, 2_000), (80, 1_000)], (40, 2_000)))
def test_a_long_chat_costs_with_panels_what_it_costs_without(turns: int, size: int) -> None:
    spec = Spec(1, turns, system=500, prompt=size // 2, answer=size // 2, calls=0)
    found = compared(spec, "anthropic")
    assert found.ours <= 1.01 * found.best, found


def test_small_panels_beside_long_turns_cost_little_more_than_their_words() -> None:
    panels = tuple(Thing(f"p{number}", 300, rate) for number, rate in enumerate((0.1, 0.3, 0.6, 1.0)))
    spec = Spec(2, 30, system=500, prompt=1_500, answer=1_500, calls=0, panels=panels)
    found = compared(spec, "anthropic")
    assert found.ours - found.words <= 1.01 * found.best, found


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["anthropic", "openai"])
def test_a_history_of_sixteen_files_a_commit_costs_no_more_than_its_flat_form(rules: str) -> None:
    files = tuple(Thing(f"src/f{number}.py", 300 + 100 * number, 1.0) for number in range(20))
    spec = Spec(3, 20, system=500, prompt=200, answer=1_000, calls=0, files=files, files_a_commit=16)
    found = compared(spec, rules)
    flat = min(cost for name, cost in found.others.items() if name.startswith(Form.FLAT))
    assert found.ours <= flat, found
    assert found.ours - found.words <= 1.025 * found.best, found


def test_the_provider_bills_what_it_has_stored() -> None:
    provider = Provider(PROFILES["anthropic"])
    text = "x" * 8_000
    mark = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    first = [{"role": "user", "content": [mark]}]
    more = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": "y" * 400}]
    bodies = [json.dumps({"messages": messages}).encode() for messages in (first, more)]
    written, read, late = (provider.send(bodies[at], 100.0 + 250.0 * at * (at + 1) / 2) for at in (0, 1, 1))
    assert (written.read, written.write_5m) == (0, written.prompt)
    assert (read.read, read.write_5m) == (written.prompt, 0)
    assert late.read == written.prompt
    assert provider.send(bodies[1], 1_000.0).read == 0
    assert provider.cost > 0.0

    stored = Provider(PROFILES["openai"])
    assert stored.send(bodies[0], 0.0).read == 0
    assert 0 < stored.send(bodies[1], 1.0).read <= written.prompt
    assert stored.send(bodies[1], 10_000.0).read == 0
