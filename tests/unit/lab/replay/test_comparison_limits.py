"""Bounds and waste, on cases that can be done by hand."""

from dataclasses import replace

import pytest

from proxy.lab import Step
from proxy.lab.replay import Account, Waste
from proxy.lab.replay.comparison import (
    Bagger,
    Rates,
    fixed_limit,
    free_limit,
    most_in_common,
    node_cost,
    paragraphs,
    prefix_share,
)
from proxy.protocol.caches import Bill, PromptPositions
from proxy.protocol.providers import ANTHROPIC, NONE, OPENAI
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import PromptReader
from tests.unit.lab.replay.sessions import MARK, body, growing, say, text

SHORT = Rates.of(ANTHROPIC, with_long=False)
BOTH = Rates.of(ANTHROPIC, with_long=True)


@pytest.mark.parametrize(
    ("times", "cost"),
    [
        ([0.0], 1.0),  # one use: never worth a write
        ([0.0, 299.0], 1.25 + 0.1),
        ([0.0, 300.0], 2.0),  # the entry has just died
        ([0.0, 200.0, 400.0], 1.25 + 0.1 + 0.1),  # a read prolongs
        ([0.0, 100.0, 1000.0], 1.25 + 0.1 + 1.0),
    ],
)
def test_a_piece_is_written_where_it_is_read_in_time(times: list[float], cost: float) -> None:
    assert node_cost(times, SHORT) == pytest.approx(cost)


def test_the_longer_life_pays_for_two_reads_across_pauses() -> None:
    times = [0.0, 1000.0, 2000.0]
    assert node_cost(times, SHORT) == 3.0
    assert node_cost(times, BOTH) == pytest.approx(2.0 + 0.1 + 0.1)
    assert node_cost([0.0, 1000.0], BOTH) == 2.0


def test_what_is_too_short_to_be_cached_belongs_to_the_first_prefix_that_is_not() -> None:
    one = PromptPositions(b"s", (b"1", b"2", b"3"), (100, 1024, 2000), (0, 1, 2))
    other = PromptPositions(b"s", (b"1", b"x"), (100, 1000), (0, 1))
    cost = fixed_limit([(0.0, one), (10.0, other), (20.0, one)], ANTHROPIC)
    assert cost == pytest.approx(2000 * (1.25 + 0.1) + 1000)


def test_nothing_is_cached_in_an_empty_scope() -> None:
    prompt = PromptPositions(b"", (b"1",), (2000,), (0,))
    assert fixed_limit([(0.0, prompt), (1.0, prompt)], ANTHROPIC) == 4000


def test_where_nothing_can_be_chosen_the_limit_is_what_the_order_costs() -> None:
    prompt = PromptPositions(b"s", (b"1",), (2000,), (0,))
    # 1920 of 2000 tokens are whole steps of 128 that were sent before.
    assert fixed_limit([(0.0, prompt), (1.0, prompt)], OPENAI) == pytest.approx(2000 + 80 + 192)


def test_a_text_is_cut_behind_blank_lines_that_text_at_the_margin_follows() -> None:
    assert paragraphs("a\nb\n\nc\n\n  d\n\n\ne") == ["a\nb\n\n", "c\n\n  d\n\n\n", "e"]
    assert paragraphs("") == ()


def test_copies_within_a_request_are_told_apart() -> None:
    bagger = Bagger(PromptReader(ANTHROPIC, bytes_over_four))
    twice = bagger.bag(body(say("user", "same words\n\nsame words\n\nother")), 0.0)
    once = bagger.bag(body(say("user", "same words\n\nother")), 1.0)
    assert len(twice.segments) == 3
    assert [shared for _, shared in most_in_common([twice, once])] == [0, sum(once.segments.values())]
    assert [shared for _, shared in most_in_common([once, twice])] == [0, sum(once.segments.values())]


def test_the_tokens_of_a_request_are_its_segments_and_the_rest() -> None:
    reader = PromptReader(ANTHROPIC, bytes_over_four)
    sent = body(
        say("system", text("a", 900)),
        say("user", [{"type": "text", "text": "b\n\nc", "cache_control": MARK}]),
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
    )
    bag = Bagger(reader).bag(sent, 0.0)
    assert bag.total == reader.prompt(sent).total
    assert 0 < bag.total - sum(bag.segments.values()) < 20


def test_without_a_cache_every_order_costs_the_same() -> None:
    bags = [Bagger(PromptReader(NONE, bytes_over_four)).bag(step.body, step.at) for step in growing(3).steps]
    assert free_limit(bags, NONE) == sum(bag.total for bag in bags)


@pytest.mark.parametrize(("gap_s", "is_append_only"), [(10.0, True), (400.0, False)])
def test_a_growing_conversation_is_append_only_while_it_goes_on_in_time(gap_s: float, is_append_only: bool) -> None:
    reader = PromptReader(ANTHROPIC, bytes_over_four)
    steps = growing(6, gap_s=gap_s).steps
    assert (_prefix_share(steps, reader) > 0.95) is is_append_only


def _prefix_share(steps: list[Step], reader: PromptReader) -> float:
    bagger = Bagger(reader)
    return prefix_share(
        [(step.at, reader.prompt(step.body)) for step in steps], [bagger.bag(step.body, step.at) for step in steps]
    )


def test_written_tokens_are_wasted_until_they_are_read() -> None:
    prompt = PromptPositions(b"s", (b"1", b"2", b"3"), (1000, 1500, 1800), (0, 1, 2))
    waste = Waste()
    assert waste.share is None
    waste.add(prompt, Bill(read=0, write_5m=1500, write_1h=0, plain=300))
    assert (waste.written, waste.share) == (1500, 1.0)
    waste.add(prompt, Bill(read=1000, write_5m=500, write_1h=0, plain=300, hit=0))
    # The second writing of position 1 buries the first one.
    assert (waste.written, waste.share) == (2000, 0.5)
    waste.add(prompt, Bill(read=1500, write_5m=0, write_1h=0, plain=300, hit=1))
    assert (waste.written, waste.share) == (2000, 0.25)


def test_an_account_counts_what_is_refused() -> None:
    account = Account(PromptReader(replace(ANTHROPIC), bytes_over_four))
    account.send(b'{"model": "m", "messages": []}', 0.0)
    assert (account.total.refused, account.total.prompt) == (1, 0)
