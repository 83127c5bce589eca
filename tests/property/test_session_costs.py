"""No session costs more than the best fixed markers on the client's own order, and the allowance.

The sessions are drawn at random: those of which no byte ever changes (``tests.append_only``), and those whose context
changes in any place (``tests.changing``).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode
from proxy.protocol.providers import ANTHROPIC, PROFILES, Family
from tests.append_only import Message, Sent, append_only, by_itself, singles, unkept, with_pauses
from tests.changing import changing
from tests.changing_lines import with_changing_line
from tests.client_marks import marked_by_client
from tests.economics.measure import encode
from tests.examples import examples
from tests.session_costs import (
    ALLOWANCE,
    TOLERANCE,
    Provider,
    cost_of_best,
    cost_of_ours,
    excess,
    excess_over_own,
)

seeds = st.integers(0, 10**9)
CACHES = sorted(name for name, each in PROFILES.items() if each.family is not Family.NONE)
# A smaller seed is no simpler session: nothing is gained by looking for one.
without_shrinking = [Phase.explicit, Phase.generate]


def hold(seed: int) -> None:
    """Both readings of system messages within a conversation."""
    for hoists in (False, True):
        assert excess(append_only(seed), hoists=hoists) <= ALLOWANCE, f"hoists: {hoists}"


def hold_by_itself(seed: int) -> None:
    sent = by_itself(seed)
    assert excess(sent) <= 0.3
    assert excess(sent, hoists=True) <= ALLOWANCE


def hold_with_pauses(seed: int) -> None:
    assert excess(with_pauses(seed)) <= ALLOWANCE


def hold_unkept(seed: int) -> None:
    """The conversation is recognised as if the client had named it, from its second request on."""
    sent = unkept(seed)
    ours, named = (
        cost_of_ours(sent, ANTHROPIC),
        cost_of_ours(sent, ANTHROPIC, hint=lambda number: "named" if number else ""),
    )
    assert ours <= TOLERANCE * named + encode()(sent[1].body.decode())


def hold_single(seed: int) -> None:
    """Nothing tells before the second request that none is gone on with, nor before the third what they share: the
    first is written in vain, and of the second what may be shared."""
    sent = singles(seed)
    provider = Provider(ANTHROPIC, hoists=False)
    costs = []
    for one in sent:
        before = provider.cost
        provider.send(one.body, one.at)
        costs.append(provider.cost - before)
    assert cost_of_ours(sent, ANTHROPIC) <= sum(costs) + (ANTHROPIC.write - 1.0) * sum(costs[:2])


@pytest.mark.parametrize("holds", [hold_by_itself, hold_with_pauses, hold_unkept, hold_single])
@settings(max_examples=examples(15, least=2), phases=without_shrinking)
@given(seed=seeds)
def test_no_agent_no_early_hour_and_no_single_request_is_dearer_than_it_may(
    holds: Callable[[int], None], seed: int
) -> None:
    holds(seed)


def test_all_of_them_together_cost_no_more_than_the_best_markers() -> None:
    sessions = [append_only(seed) for seed in range(12)]
    ours = sum(cost_of_ours(sent, ANTHROPIC) for sent in sessions)
    assert ours <= sum(cost_of_best(sent, ANTHROPIC) for sent in sessions)


@pytest.mark.slow
@settings(max_examples=examples(40), phases=without_shrinking)
@given(seeds)
@example(176)  # tokens of tools and texts are not counted by one scale, and what is reported must tell all the same
@example(1389)
def test_no_session_is_dearer_than_the_best_markers_and_the_allowance(seed: int) -> None:
    hold(seed)


@settings(max_examples=examples(60), phases=without_shrinking, deadline=None)
@given(seeds, st.sampled_from(CACHES))
def test_no_session_whose_context_changes_is_dearer_than_the_best_markers_and_the_learning(
    seed: int, name: str
) -> None:
    """One in a thousand of these conversations is not recognised each time, and pays for learning more than once."""
    assert excess(changing(seed), PROFILES[name]) <= 2 * ALLOWANCE


@pytest.mark.parametrize(("make", "most"), [(append_only, ALLOWANCE), (changing, 2 * ALLOWANCE)])
@settings(max_examples=examples(40, least=3), phases=without_shrinking, deadline=None)
@given(seeds, st.sampled_from([Mode.TIER, Mode.MARK]))
def test_no_session_is_dearer_than_with_the_markers_of_its_client(
    make: Callable[[int], list[Sent]], most: float, seed: int, mode: Mode
) -> None:
    assert excess_over_own(marked_by_client(make(seed), seed), mode) <= most


IDS: Mapping[str, Callable[[int], str]] = {
    "another in each request": lambda number: f"id {number}",
    "another now and then": lambda number: f"id {number // 7}",
    "not in each request": lambda number: "id" if number % 3 else "",
    "one of two": lambda number: f"id {number % 2}",
}


@pytest.mark.parametrize("make", [append_only, changing])
@settings(max_examples=examples(40, least=3), phases=without_shrinking, deadline=None)
@given(seeds, st.sampled_from(sorted(IDS)))
def test_no_session_is_dearer_because_of_the_ids_that_its_client_gives(
    make: Callable[[int], list[Sent]], seed: int, ids: str
) -> None:
    sent = make(seed)
    most = max(encode()(one.body.decode()) for one in sent)
    best = TOLERANCE * cost_of_best(sent, ANTHROPIC)
    assert cost_of_ours(sent, ANTHROPIC, hint=IDS[ids]) <= best + 2 * ALLOWANCE * most


@pytest.mark.parametrize("make", [append_only, changing])
@settings(max_examples=examples(60, least=4), phases=without_shrinking, deadline=None)
@given(seeds, st.sampled_from(["anthropic", "openai"]))
def test_no_session_is_dearer_because_of_a_line_that_changes(
    make: Callable[[int], list[Sent]], seed: int, name: str
) -> None:
    """Under rules without markers, a session that is not recognised still finds the beginning of its prompt."""
    assert excess(with_changing_line(make(seed), seed), PROFILES[name]) <= 2 * ALLOWANCE


@settings(max_examples=examples(40, least=3), phases=without_shrinking, deadline=None)
@given(seeds)
def test_conversations_that_begin_alike_and_have_ids_of_their_own_learn_nothing_wrong_of_each_other(seed: int) -> None:
    """A client that measures a model begins the same conversation many times, and each goes on in another way."""
    chance, begins = Random(seed), append_only(seed)[:2]
    sent: list[tuple[Sent, str]] = []
    for run in range(4):
        at, messages = chance.uniform(0, 200), json.loads(begins[0].body)["messages"]
        for turn in range(4):
            body = json.dumps({"model": "m", "messages": messages}).encode()
            sent.append((Sent(begins[0].at + at, body), f"run {run}"))
            at += chance.uniform(2, 60)
            said = f"{chance.random()} of run {run}, {turn}"
            messages = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": f"And {said}?"}]
    sent.sort(key=lambda one: one[0].at)
    requests, ids = [one for one, _ in sent], [name for _, name in sent]
    most = max(encode()(one.body.decode()) for one in requests)
    ours = cost_of_ours(requests, ANTHROPIC, hint=ids.__getitem__)
    assert ours <= TOLERANCE * cost_of_best(requests, ANTHROPIC) + 0.5 * most


def written_otherwise(sent: Sequence[Sent], chance: Random) -> list[Sent]:
    """The same requests. Each message is written in a way that says the same, and in another one in each request."""
    return [replace(one, body=_otherwise(json.loads(one.body), chance)) for one in sent]


def _otherwise(body: Message, chance: Random) -> bytes:
    for message in body["messages"]:
        content, calls = message.get("content"), message.get("tool_calls")
        if content and isinstance(content, str) and chance.random() < 0.5:
            message["content"] = [{"type": "text", "text": content}]
        if calls and not content:
            message["content"] = chance.choice([None, "", []])
        if message["role"] in ("assistant", "tool") and chance.random() < 0.3:
            empty = ["refusal", "name", "annotations", *([] if calls else ["tool_calls"])]
            message[chance.choice(empty)] = chance.choice([None, []])
    body["messages"] = _shuffled(body["messages"], chance)
    return json.dumps(body, indent=chance.choice([None, 1]), ensure_ascii=chance.random() < 0.5).encode()


def _shuffled(said: object, chance: Random) -> object:
    if isinstance(said, list):
        return [_shuffled(one, chance) for one in said]
    if not isinstance(said, dict):
        return said
    return {name: _shuffled(value, chance) for name, value in chance.sample(list(said.items()), len(said))}


@pytest.mark.parametrize(("make", "more"), [(append_only, 0.1), (changing, ALLOWANCE)])
@settings(max_examples=examples(40, least=3), phases=without_shrinking, deadline=None)
@given(seed=seeds)
def test_a_session_costs_hardly_more_where_its_client_writes_the_same_in_other_ways(
    make: Callable[[int], list[Sent]], more: float, seed: int
) -> None:
    sent = make(seed)
    most = max(encode()(one.body.decode()) for one in sent)
    otherwise = cost_of_ours(written_otherwise(sent, Random(seed)), ANTHROPIC)
    assert otherwise <= TOLERANCE * cost_of_ours(sent, ANTHROPIC) + more * most


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHES)
def test_no_session_is_dearer_in_a_cache_of_any_kind(name: str) -> None:
    for seed in range(3):
        assert excess(append_only(seed), PROFILES[name]) <= ALLOWANCE, seed
