import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.planner.layout import Layout, Placement, PrefixSettings, honoured, mark_gain, place, place_given
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT, PROFILES, CacheProfile
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import Part, PartKind
from tests.growth import assert_linear

TINY = replace(ANTHROPIC, min_tokens=1)
SEED = PrefixSettings(b"scope", b"")


def layout(tokens: Sequence[int], unmarkable: Sequence[int] = (), tools: int = 0) -> Layout:
    """One element a position; the first ``tools`` positions are the tools."""
    parts = [Part(PartKind.TEXT, b"%d" % i, t, -1, i not in unmarkable) for i, t in enumerate(tokens)]
    first = [Element("tools", ElementKind.TOOLS, b"", tuple(parts[:tools]), sum(tokens[:tools]))] if tools else []
    rest = [Element("turn", ElementKind.MESSAGE, p.digest, (p,), p.tokens, "user", i) for i, p in enumerate(parts)]
    return Layout(SEED, [*first, *rest[tools:]])


def value(
    made: Layout, survival: Sequence[float], live: Sequence[int], profile: CacheProfile, marks: Sequence[int]
) -> float:
    """What markers are worth: expected reads of the next request, less the premium of what is written now."""
    stops = sorted({*marks, *live})
    expected = sum(
        (made.ends[p] - (made.ends[before] if before >= 0 else 0)) * survival[p]
        for before, p in itertools.pairwise([-1, *stops])
    )
    held = made.ends[live[-1]] if live else 0
    written = max(0, (made.ends[max(marks)] if marks else 0) - held)
    return expected * mark_gain(profile) - written * (profile.write - 1)


class TestHonoured:
    def marked(self) -> Layout:
        """A tool, a message with a marker beside its string, one with a marker on a part, a tool call."""
        kinds = ((PartKind.TEXT, -1), (PartKind.TEXT, -1), (PartKind.TEXT, 0), (PartKind.CALL, 0))
        parts = [Part(kind, b"%d" % i, 10, index, True, "5m") for i, (kind, index) in enumerate(kinds)]
        first = Element("tools", ElementKind.TOOLS, b"", (parts[0],), 10)
        rest = [Element("turn", ElementKind.MESSAGE, p.digest, (p,), 10, "user", i) for i, p in enumerate(parts[1:])]
        return Layout(SEED, [first, *rest])

    @pytest.mark.parametrize(
        ("profile", "positions"), [("anthropic", [0, 1, 2, 3]), ("qwen", [2]), ("openai-explicit", [2])]
    )
    def test_where_this_provider_reads_markers(self, profile: str, positions: list[int]) -> None:
        assert sorted(honoured(self.marked(), PROFILES[profile])) == positions


class TestPlace:
    def test_nothing_that_will_hardly_be_read_is_marked(self) -> None:
        # Break-even: (w - 1) / (gain of a read), 0.25 / 1.1 with the share that would be written again.
        assert place(layout([5000]), [0.2], [], TINY, 4).positions == ()
        assert place(layout([5000]), [0.3], [], TINY, 4).positions == (0,)

    def test_below_the_minimum_nothing_is_marked(self) -> None:
        assert place(layout([400, 400]), [1, 1], [], ANTHROPIC, 4).positions == ()
        placed = place(layout([500, 500, 500, 500]), [1, 0.9, 0.8, 0.7], [], ANTHROPIC, 4)
        assert placed.positions
        assert all(layout([500] * 4).ends[p] >= 1024 * 0.8 for p in placed.positions)

    def test_what_may_be_just_long_enough_is_marked(self) -> None:
        assert place(layout([500, 500]), [1, 1], [], ANTHROPIC, 4).positions == (1,)

    def test_many_positions_that_take_no_marker_cost_their_number(self) -> None:
        def placed(survival: Sequence[float]) -> None:
            made = layout([5000, *[4] * (len(survival) - 1)], unmarkable=range(1, len(survival)))
            assert place(made, survival, [], TINY, 4).positions == (0,)

        assert_linear(placed, lambda count: [0.98**position for position in range(count)], 1_250)

    def test_what_is_neither_marked_nor_held_reaches_nowhere(self) -> None:
        made = layout([1000] * 3)
        assert place(made, [0.9] * 3, [], TINY, 0).reached == -1
        assert place(made, [0.9] * 3, [1], TINY, 0).reached == 1
        assert place(made, [0.9] * 3, [0], TINY, 1).reached == 2

    @pytest.mark.parametrize(("distance", "reached"), [(TINY.lookback - 1, True), (TINY.lookback, False)])
    def test_an_entry_is_reached_from_the_last_place_that_finds_it_and_not_from_the_next(
        self, distance: int, reached: bool
    ) -> None:
        made = layout([100] * 60, unmarkable=[at for at in range(60) if at != 20 + distance])
        assert place(made, [0.01] * 60, [20], TINY, 4).positions == ((20 + distance,) if reached else ())

    def test_what_the_marker_that_reaches_an_entry_adds_is_expected_too(self) -> None:
        made = layout([100] * 60, unmarkable=[20, 21])
        placed = place(made, [0.6] * 21 + [0.1] * 39, [20], TINY, 1)
        assert placed == Placement((22,), pytest.approx(21 * 100 * 0.6 + 2 * 100 * 0.1), 22)

    def test_a_breakpoint_is_never_placed_on_tools(self) -> None:
        made = layout([2000, 2000, 2000], tools=2)
        assert place(made, [0.99, 0.99, 0.5], [], TINY, 4).positions == (1, 2)
        assert place(made, [0.99, 0.99, 0.5], [], OPENAI_EXPLICIT, 4).positions == (2,)

    @pytest.mark.parametrize("profile", [OPENAI, DEEPSEEK, NONE])
    def test_caches_without_markers_get_none(self, profile: CacheProfile) -> None:
        placed = place(layout([5000, 5000]), [0.9, 0.5], [], profile, 4)
        assert placed.positions == ()
        expected = 0 if profile is NONE else 5000 * 0.9 + 5000 * 0.5
        assert placed.expected == pytest.approx(expected)


class TestPlaceGiven:
    def test_the_clients_markers_are_judged_as_they_stand(self) -> None:
        made = layout([1000, 1000, 1000])
        placed = place_given(made, [0.9, 0.8, 0.1], [], TINY, [2])
        assert placed == Placement((2,), pytest.approx(300), 2)

    def test_live_entries_in_reach_count(self) -> None:
        made = layout([1000] * 3)
        assert place_given(made, [0.9, 0.8, 0.1], [0], TINY, [2]).expected == pytest.approx(900 + 200)
        assert place_given(made, [0.9, 0.8, 0.1], [2], TINY, [0]).reached == 0

    def test_an_entry_is_found_up_to_the_last_place_that_the_provider_looks_back_to(self) -> None:
        made, survival = layout([100] * 60), [0.9] + [0.5] * 59
        last = TINY.lookback - 1
        found, missed = (place_given(made, survival, [0], TINY, [mark]).expected for mark in (last, last + 1))
        assert found == pytest.approx(100 * 0.9 + 100 * last * 0.5)
        assert missed == pytest.approx(100 * (last + 2) * 0.5)

    def test_no_markers_promise_nothing(self) -> None:
        assert place_given(layout([1000]), [0.9], [0], TINY, []) == Placement((), 0.0, -1)

    def test_markers_below_the_minimum_do_not_count(self) -> None:
        assert place_given(layout([100]), [0.9], [], ANTHROPIC, [0]).positions == ()


@st.composite
def markets(draw: st.DrawFn, most: int = 9) -> tuple[Layout, list[float], list[int]]:
    """A layout, survival in steps that matter, and live entries."""
    count = draw(st.integers(1, most))
    tokens = draw(st.lists(st.integers(1, 3000), min_size=count, max_size=count))
    unmarkable = draw(st.lists(st.integers(0, count - 1), max_size=2))
    survival, chance = [], draw(st.sampled_from([1.0, 0.9, 0.5]))
    for _ in range(count):
        survival.append(chance)
        chance *= draw(st.sampled_from([1.0, 1.0, 0.9, 0.6, 0.2]))
    live = sorted(draw(st.sets(st.integers(0, count - 1), max_size=2)))
    return layout(tokens, unmarkable), survival, live


@given(markets(), st.integers(0, 4))
def test_places_equal_the_best_of_all(market: tuple[Layout, list[float], list[int]], slots: int) -> None:
    made, survival, live = market
    placed = place(made, survival, live, TINY, slots)
    assert len(placed.positions) <= slots
    assert all(made.parts[p].markable for p in placed.positions)
    markable = [p for p, part in enumerate(made.parts) if part.markable]

    def best(most: int) -> float:
        choices = itertools.chain.from_iterable(itertools.combinations(markable, n) for n in range(most + 1))
        return max(value(made, survival, live, TINY, marks) for marks in choices)

    mine = value(made, survival, live, TINY, placed.positions)
    assert mine <= best(slots) + 1e-6
    # One marker is spent on reaching the deepest live entry where none of the best ones does.
    if not live or live[-1] in markable:
        assert mine >= best(slots - 1 if live and slots else slots) - 1e-6
    assert placed.expected == pytest.approx(
        (value(made, survival, live, TINY, placed.positions)
         + max(0, (made.ends[placed.positions[-1]] if placed.positions else 0) - (made.ends[live[-1]] if live else 0))
         * (TINY.write - 1)) / mark_gain(TINY)
    )  # fmt: skip


@given(markets(most=60), st.integers(1, 4), st.sampled_from([ANTHROPIC, OPENAI_EXPLICIT, TINY]))
def test_every_placement_keeps_the_rules(
    market: tuple[Layout, list[float], list[int]], slots: int, profile: CacheProfile
) -> None:
    made, survival, live = market
    live = [p for p in live if made.ends[p] >= profile.min_tokens]
    placed = place(made, survival, live, profile, slots)
    assert len(placed.positions) <= slots
    assert list(placed.positions) == sorted(set(placed.positions))
    assert all(made.parts[p].markable and made.ends[p] >= profile.least_marked for p in placed.positions)
    if live and any(made.parts[p].markable for p in range(live[-1], min(live[-1] + profile.lookback, len(made.parts)))):
        assert any(0 <= p - live[-1] < profile.lookback for p in placed.positions)
