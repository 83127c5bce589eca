"""The bounds are what they claim: equal to exhaustive search where it is possible, and never above any way to send."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.value import chain, digest
from proxy.lab.replay import Account
from proxy.lab.replay.comparison import Bagger, fixed_limit, free_limit
from proxy.protocol.caches import Bill, Life, PromptPositions, make_cache, validate
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, OPENAI, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import TAIL_TOKENS, PromptReader
from tests.examples import examples

PROFILE = replace(ANTHROPIC, min_tokens=1000)
Timed = list[tuple[float, PromptPositions]]

BLOCKS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([300, 600, 1100]))
GAPS = st.sampled_from([10.0, 200.0, 299.0, 300.0, 700.0, 3599.0])


def prompt_of(blocks: Sequence[tuple[str, int]]) -> PromptPositions:
    state, total = b"", 0
    hashes, ends = [], []
    for name, tokens in blocks:
        state = chain(state, digest(name.encode(), b"%d" % tokens))
        total += tokens
        hashes.append(state)
        ends.append(total)
    return PromptPositions(b"scope", tuple(hashes), tuple(ends), tuple(range(len(hashes))))


@st.composite
def sessions(draw: st.DrawFn, requests: int, blocks: int) -> Timed:
    """Requests that often share a beginning."""
    at, found, before = 0.0, [], list[tuple[str, int]]()
    for _ in range(draw(st.integers(1, requests))):
        kept = before[: draw(st.integers(0, len(before)))]
        new = draw(st.lists(BLOCKS, max_size=blocks - len(kept)))
        before = [*kept, *new] or [draw(BLOCKS)]
        found.append((at, prompt_of(before)))
        at += draw(GAPS)
    return found


def cheapest(session: Timed, lives: Sequence[Life], sent: Timed = ()) -> float:
    """Every choice of markers for every request, behind those that were sent."""
    if not session:
        return 0.0
    (at, prompt), rest = session[0], session[1:]
    best = float("inf")
    for choice in product([None, *lives], repeat=len(prompt.ends)):
        marked = replace(prompt, marks={i: life for i, life in enumerate(choice) if life is not None})
        if validate(marked, PROFILE) is not None:
            continue
        cache, both = make_cache(PROFILE), (*sent, (at, marked))
        for then, one in both:
            bill = cache.bill(one, then)
            cache.store(one, then, then)
        best = min(best, cost(bill, PROFILE) + cheapest(rest, lives, both))
    return best


def cost(bill: Bill, profile: CacheProfile) -> float:
    return bill.read * profile.read + bill.write_5m * profile.write + bill.write_1h * profile.write_long + bill.plain


@settings(max_examples=examples(60), deadline=None)
@given(sessions(requests=4, blocks=3))
def test_the_limit_of_an_order_is_what_exhaustive_search_finds(session: Timed) -> None:
    assert fixed_limit(session, PROFILE) == pytest.approx(cheapest(session, ["5m"]))


@settings(max_examples=examples(40), deadline=None)
@given(sessions(requests=3, blocks=2))
def test_with_two_lives_on_sale_no_choice_is_below_the_limit(session: Timed) -> None:
    limit = fixed_limit(session, PROFILE, with_long=True)
    assert limit <= cheapest(session, ["5m", "1h"]) + 1e-6
    assert limit <= fixed_limit(session, PROFILE) + 1e-6


TEXTS = st.lists(
    st.sampled_from([f"{name} paragraph " * size for name in "abcd" for size in (40, 120, 300)]), min_size=1, max_size=3
).map("\n\n".join)
MESSAGES = st.lists(st.tuples(st.sampled_from(["system", "user"]), TEXTS), min_size=1, max_size=4)


def body_of(messages: Sequence[tuple[str, str]], marked: Sequence[int] = ()) -> bytes:
    written: list[dict[str, Any]] = []
    for index, (role, text) in enumerate(messages):
        part = {"type": "text", "text": text}
        if index in marked:
            part["cache_control"] = {"type": "ephemeral"}  # type: ignore[assignment]
        written.append({"role": role, "content": [part]})
    return orjson.dumps({"model": "m", "messages": written})


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(GAPS, MESSAGES), min_size=1, max_size=5), st.randoms(use_true_random=False))
@pytest.mark.parametrize("profile", [PROFILE, OPENAI, DEEPSEEK], ids=lambda p: p.name)
def test_no_order_with_any_markers_is_below_the_bound(
    profile: CacheProfile, session: list[tuple[float, list[tuple[str, str]]]], random: Random
) -> None:
    reader = PromptReader(profile, bytes_over_four)
    bagger, account = Bagger(reader), Account(reader)
    bags, prompts, at = [], [], 0.0
    for gap, messages in session:
        bags.append(bagger.bag(body_of(messages), at))
        prompts.append((at, reader.prompt(body_of(messages))))
        order = random.sample(messages, len(messages))
        places = list(range(len(messages))) if profile is PROFILE else []
        marked = random.choice([some for size in range(len(places) + 1) for some in combinations(places, size)])
        account.send(body_of(order, marked), at)
        at += gap
    assert account.total.refused == 0
    paid = account.total.cost(profile) - TAIL_TOKENS * len(session)
    assert free_limit(bags, profile) <= paid + 1e-6
    assert free_limit(bags, profile) <= fixed_limit(prompts, profile) + 1e-6
