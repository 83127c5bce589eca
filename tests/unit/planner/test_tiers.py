"""What the tracker of policy ``classic`` says besides what the vectors beside this file hold."""

import pytest

from proxy.planner.tiers import Change, Classic, ClassicPolicy, Item, Tier, Tracked, with_target


def pieces(*keys: str, digest: bytes = b"1") -> list[Tracked]:
    return [Tracked(key, digest, 100) for key in keys]


def put(tracker: Classic, key: str, tokens: int, tier: Tier, n: int) -> None:
    """A resident with a count of its own."""
    tracker.sequence += 1
    tracker.items[key] = Item(b"1", tokens, tier, n, tracker.sequence, tracker.sequence)


@pytest.mark.parametrize(("minimum", "target"), [(0, 1126), (1024, 1126), (4096, 4505), (512, 1126)])
def test_the_target_follows_the_models_minimum(minimum: int, target: int) -> None:
    assert with_target(ClassicPolicy(), minimum).target_tokens == target


def test_sending_order_is_the_order_of_arrival() -> None:
    tracker = Classic(ClassicPolicy(target_tokens=0))
    for keys in ("zy", "zy", "zya", "zya", "zya", "zya"):
        tracker.update(pieces(*keys))
    assert tracker.members(Tier.L3) == ["z", "y", "a"]
    assert tracker.entered("z") < tracker.entered("y") < tracker.entered("a")


def small(underfill: str) -> Classic:
    tracker = Classic(ClassicPolicy(target_tokens=1000, underfill=underfill))  # type: ignore[arg-type]
    put(tracker, "a", 100, Tier.L1, 9)
    return tracker


def test_an_underfilled_tier_stays_and_loses_its_marker() -> None:
    tracker = small("unmark")
    assert tracker.update(pieces("a")) == []
    assert tracker.tier("a") is Tier.L1
    assert tracker.unmarked(tracker.tokens()) == {Tier.L0, Tier.L1, Tier.L2, Tier.L3}
    put(tracker, "b", 900, Tier.L1, 9)
    assert tracker.unmarked(tracker.tokens()) == {Tier.L0, Tier.L2, Tier.L3}
    demoting = small("demote")
    assert demoting.unmarked(demoting.tokens()) == frozenset()


def test_pieces_of_an_underfilled_tier_go_one_tier_down_with_their_count() -> None:
    tracker = small("demote")
    assert tracker.update(pieces("a")) == [Change("a", Tier.L1, Tier.L2, "underfilled")]
    assert (tracker.tier("a"), tracker.n("a")) == (Tier.L2, 10)


def test_turns_are_purged_from_an_index_on_and_take_no_other_turn_along() -> None:
    tracker = Classic(ClassicPolicy(target_tokens=100, history="piggyback"))
    strange = ["history:x", "history:", "history:" + "9" * 5_000]
    for key in ("history:0", "history:1", "history:10", "a", *strange):
        put(tracker, key, 100, Tier.L3, 3)
    purged = [change.key for change in tracker.purge_history(2)]
    assert purged == ["history:10", *strange]
    assert list(tracker.items) == ["history:0", "history:1", "a"]
    assert tracker.purge_history()[0] == Change("history:0", Tier.L3, None, "purged")
    assert tracker.update(pieces("history:0", "history:1", "history:2", "a")) == []


def test_a_piece_that_is_placed_breaks_its_tier_until_the_next_update() -> None:
    tracker = Classic(ClassicPolicy(target_tokens=0))
    put(tracker, "a", 100, Tier.L3, 6)
    assert tracker.place(*pieces("b"), Tier.L3) == Change("b", Tier.ACTIVE, Tier.L3, "placed")
    assert tracker.update(pieces("a", "b")) == [Change("a", Tier.L3, Tier.L2, "promoted")]
    item = tracker.items["b"]
    assert (item.tier, item.n) == (Tier.L3, 4)


def test_where_counts_promote_each_tier_is_reached_with_its_count_whatever_else_happens() -> None:
    tracker = Classic(ClassicPolicy(target_tokens=100_000, promotion="count"))
    tiers = []
    for number in range(14):
        tracker.update([*pieces("a"), *pieces("b", digest=b"%d" % number)])
        tiers.append(tracker.tier("a"))
    assert tiers == [Tier.ACTIVE] * 3 + [Tier.L3] * 3 + [Tier.L2] * 3 + [Tier.L1] * 3 + [Tier.L0] * 2
    assert tracker.tier("b") is Tier.ACTIVE
    last = tracker.update([*pieces("a", digest=b"2"), *pieces("b", digest=b"13")])
    assert last[0] == Change("a", Tier.L0, Tier.ACTIVE, "changed")
