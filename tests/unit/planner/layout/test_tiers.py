from collections.abc import Sequence

import pytest

from proxy.planner.layout.tiers import Change, Classic, ClassicPolicy, Item, Tier, Tracked, with_target

FREE = ClassicPolicy(target_tokens=0)


def piece(key: str, digest: str = "1", tokens: int = 100) -> Tracked:
    return Tracked(key, digest.encode(), tokens)


def pieces(*keys: str, tokens: int = 100) -> list[Tracked]:
    return [piece(key, tokens=tokens) for key in keys]


def repeat(tracker: Classic, items: Sequence[Tracked], times: int) -> list[Change]:
    """The changes of so many equal responses."""
    return [change for _ in range(times) for change in tracker.update(items)]


def put(tracker: Classic, key: str, tokens: int, tier: Tier, n: int) -> None:
    """A resident with a count of its own."""
    tracker.sequence += 1
    tracker.items[key] = Item(b"1", tokens, tier, n, tracker.sequence, tracker.sequence)


@pytest.fixture
def tracker() -> Classic:
    return Classic(FREE)


class TestCounting:
    def test_what_was_never_seen_is_active(self) -> None:
        assert (Classic().tier("x"), Classic().n("x"), Classic().entered("x")) == (Tier.ACTIVE, 0, 0)

    def test_a_change_sends_a_piece_back(self, tracker: Classic) -> None:
        repeat(tracker, pieces("a"), 6)
        assert tracker.update([piece("a", "2")]) == [Change("a", Tier.L3, Tier.ACTIVE, "changed")]
        assert (tracker.n("a"), tracker.tier("a")) == (0, Tier.ACTIVE)

    def test_what_no_longer_exists_is_removed_with_a_reason(self, tracker: Classic) -> None:
        repeat(tracker, pieces("a", "b"), 4)
        assert tracker.update(pieces("a"))[0] == Change("b", Tier.L3, None, "removed")
        assert tracker.tier("b") is Tier.ACTIVE


class TestRipple:
    def test_an_arrival_below_opens_the_way_into_an_empty_tier(self, tracker: Classic) -> None:
        repeat(tracker, pieces("a"), 8)
        changes = repeat(tracker, pieces("a", "b"), 4)
        assert changes == [Change("b", Tier.ACTIVE, Tier.L3, "unchanged"), Change("a", Tier.L3, Tier.L2, "promoted")]
        assert (tracker.n("a"), tracker.n("b")) == (6, 3)

    def test_a_mark_between_updates_lives_until_the_next(self, tracker: Classic) -> None:
        put(tracker, "a", 100, Tier.L2, 6)
        put(tracker, "b", 100, Tier.L3, 6)
        tracker.mark_broken(Tier.L2)
        assert tracker.update(pieces("a", "b")) == [Change("b", Tier.L3, Tier.L2, "promoted")]
        put(tracker, "c", 100, Tier.L3, 6)
        assert tracker.update(pieces("a", "b", "c")) == []


class TestAnchoring:
    def test_where_all_are_anchors_nothing_promotes(self) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=1000))
        for key in "ab":
            put(tracker, key, 900, Tier.L3, 6)
        tracker.mark_broken(Tier.L3)
        assert tracker.update(pieces("a", "b", tokens=900)) == []

    @pytest.mark.parametrize(("minimum", "target"), [(0, 1126), (1024, 1126), (4096, 4505), (512, 1126)])
    def test_the_target_follows_the_models_minimum(self, minimum: int, target: int) -> None:
        assert with_target(ClassicPolicy(), minimum).target_tokens == target


class TestOrder:
    def test_sending_order_is_the_order_of_arrival(self, tracker: Classic) -> None:
        repeat(tracker, pieces("z", "y"), 2)
        repeat(tracker, pieces("z", "y", "a"), 4)
        assert tracker.members(Tier.L3) == ["z", "y", "a"]
        assert tracker.entered("z") < tracker.entered("y") < tracker.entered("a")

    def test_a_piece_that_comes_back_stands_last(self, tracker: Classic) -> None:
        repeat(tracker, pieces("a", "b"), 4)
        repeat(tracker, [piece("a", "2"), piece("b")], 4)
        assert tracker.members(Tier.L3)[-1] == "a"


class TestUnderfill:
    def small(self, underfill: str) -> Classic:
        tracker = Classic(ClassicPolicy(target_tokens=1000, underfill=underfill))  # type: ignore[arg-type]
        put(tracker, "a", 100, Tier.L1, 9)
        return tracker

    def test_the_tier_stays_and_loses_its_marker(self) -> None:
        tracker = self.small("unmark")
        assert tracker.update(pieces("a")) == []
        assert tracker.tier("a") is Tier.L1
        assert tracker.unmarked(tracker.tokens()) == {Tier.L0, Tier.L1, Tier.L2, Tier.L3}
        put(tracker, "b", 900, Tier.L1, 9)
        assert tracker.unmarked(tracker.tokens()) == {Tier.L0, Tier.L2, Tier.L3}
        demoting = self.small("demote")
        assert demoting.unmarked(demoting.tokens()) == frozenset()

    def test_pieces_of_an_underfilled_tier_go_one_tier_down_with_their_count(self) -> None:
        tracker = self.small("demote")
        assert tracker.update(pieces("a")) == [Change("a", Tier.L1, Tier.L2, "underfilled")]
        assert (tracker.tier("a"), tracker.n("a")) == (Tier.L2, 10)


class TestSeeds:
    def test_a_piece_is_as_large_as_it_was_last_measured(self) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=500))
        tracker.seed(piece("a", tokens=100), Tier.L1)
        assert Tier.L1 in tracker.unmarked(tracker.tokens())
        tracker.update([piece("a", tokens=900)])
        assert Tier.L1 not in tracker.unmarked(tracker.tokens())


def history(*tokens: int) -> list[Tracked]:
    return [Tracked(f"history:{index}", b"1", count) for index, count in enumerate(tokens)]


class TestHistory:
    def test_stays_active_by_default(self, tracker: Classic) -> None:
        repeat(tracker, [*history(100, 100), piece("a")], 30)
        assert {tracker.tier(f"history:{n}") for n in range(2)} == {Tier.ACTIVE}

    @pytest.mark.parametrize(
        ("tokens", "graduated"),
        [
            ((100,) * 6, {0}),
            ((100,) * 5, set()),
            ((600,), set()),
            ((300, 300, 300), {0, 1}),
            ((100, 800, 100, 200), {0, 1}),
        ],
    )
    def test_leaves_with_another_piece_but_for_the_newest(self, tokens: tuple[int, ...], graduated: set[int]) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=500, history="piggyback"))
        items = [*history(*tokens), piece("a")]
        repeat(tracker, items, 4)
        assert {n for n in range(len(tokens)) if tracker.tier(f"history:{n}") is Tier.L3} == graduated

    def test_needs_a_trigger(self) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=100, history="piggyback"))
        repeat(tracker, history(100, 100, 100), 20)
        assert tracker.tier("history:0") is Tier.ACTIVE
        tracker.mark_broken(Tier.L3)
        tracker.update(history(100, 100, 100))
        assert [tracker.tier(f"history:{n}") for n in range(3)] == [Tier.L3, Tier.L3, Tier.ACTIVE]

    def test_no_turn_is_more_stable_than_an_older_one(self) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=100, history="piggyback"))
        repeat(tracker, [*history(100, 100, 100), piece("a")], 4)
        changes = tracker.update([Tracked("history:0", b"2", 100), *history(100, 100, 100)[1:], piece("a")])
        assert changes == [
            Change("history:0", Tier.L3, Tier.ACTIVE, "changed"),
            Change("history:1", Tier.L3, Tier.ACTIVE, "behind an older turn"),
        ]
        tiers = [tracker.tier(f"history:{n}") for n in range(3)]
        assert tiers == sorted(tiers)
        assert tiers[0] is Tier.ACTIVE


class TestForgetting:
    def test_a_piece_is_forgotten_with_the_callers_reason_and_its_tier_is_broken(self, tracker: Classic) -> None:
        put(tracker, "a", 100, Tier.L2, 6)
        put(tracker, "b", 100, Tier.L3, 6)
        assert tracker.remove("a", "deselected") == Change("a", Tier.L2, None, "deselected")
        assert tracker.remove("a", "deselected") is None
        assert "a" not in tracker.items
        assert tracker.update(pieces("b")) == [Change("b", Tier.L3, Tier.L2, "promoted")]

    def test_turns_are_purged_from_an_index_on_and_take_no_other_turn_along(self) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=100, history="piggyback"))
        strange = ["history:x", "history:", "history:" + "9" * 5_000]
        for key in ("history:0", "history:1", "history:10", "a", *strange):
            put(tracker, key, 100, Tier.L3, 3)
        purged = [change.key for change in tracker.purge_history(2)]
        assert purged == ["history:10", *strange]
        assert list(tracker.items) == ["history:0", "history:1", "a"]
        assert tracker.purge_history()[0] == Change("history:0", Tier.L3, None, "purged")
        assert tracker.update([*history(100, 100, 100), piece("a")]) == []

    def test_a_piece_that_is_placed_breaks_its_tier_until_the_next_update(self, tracker: Classic) -> None:
        put(tracker, "a", 100, Tier.L3, 6)
        assert tracker.place(piece("b"), Tier.L3) == Change("b", Tier.ACTIVE, Tier.L3, "placed")
        assert tracker.update(pieces("a", "b")) == [Change("a", Tier.L3, Tier.L2, "promoted")]
        item = tracker.items["b"]
        assert (item.tier, item.n) == (Tier.L3, 4)


class TestPromotionByCount:
    def test_each_tier_is_reached_with_its_count_whatever_else_happens(self) -> None:
        tracker = Classic(ClassicPolicy(target_tokens=100_000, promotion="count"))
        tiers = []
        for number in range(14):
            tracker.update([piece("a"), piece("b", str(number))])
            tiers.append(tracker.tier("a"))
        assert tiers == [Tier.ACTIVE] * 3 + [Tier.L3] * 3 + [Tier.L2] * 3 + [Tier.L1] * 3 + [Tier.L0] * 2
        assert tracker.tier("b") is Tier.ACTIVE
        assert tracker.update([piece("a", "2"), piece("b", "13")])[0] == Change("a", Tier.L0, Tier.ACTIVE, "changed")
