"""The tracker of structured context: where items stand before a request, and what an answer moves."""

import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import pytest

from proxy.context import ContextFile, StructuredContext
from proxy.context.blocks import file_block
from proxy.context.placement import ContextTracker, TierItems, TierPlacement
from proxy.kit.value import digest as digest_of
from proxy.planner.tiers import Change, ClassicPolicy, Tier, Tracked
from proxy.protocol.request.tokens import TokenCounter
from tests.growth import assert_linear

ACTIVE, L0, L1, L2, L3 = Tier.ACTIVE, Tier.L0, Tier.L1, Tier.L2, Tier.L3
FREE = ClassicPolicy(target_tokens=0)


def file(path: str, text: str | None = "1", *, selected: bool = True) -> ContextFile:
    return ContextFile(
        path, text, "" if text is None else sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), selected
    )


def context(selected: str = "", symbols: str = "", texts: Mapping[str, str] | None = None) -> StructuredContext:
    """Paths of one letter: ``selected`` are shown by their text, ``symbols`` by their symbols. ``texts`` are the texts
    by path, where they are other than "1"."""
    own = texts or {}
    return StructuredContext(
        files=tuple(file(p, own.get(p, "1"), selected=p in selected) for p in dict.fromkeys(selected + symbols)),
        symbols={p: f"{p}: {own.get(p, '1')}" for p in symbols},
    )


def turns(*tokens: int) -> list[Tracked]:
    return [Tracked(f"history:{index}", b"turn %d" % index, count) for index, count in enumerate(tokens)]


def answered(
    tracker: ContextTracker, wish: StructuredContext, times: int = 1, history: Sequence[Tracked] = ()
) -> list[Change]:
    """The changes of so many equal requests."""
    return [change for _ in range(times) for change in tracker.settle(wish, history)]


def shown(placement: TierPlacement) -> str:
    """``L1:~ab L3:c+d active:+e*01``: symbols behind ``~``, files behind ``+``, turns behind ``*``."""
    words = []
    for tier, items in placement.tiers.items():
        if items != TierItems():
            kinds = (("~", items.symbols), ("+", items.files), ("*", [str(index) for index in items.history]))
            text = "".join(sign + "".join(names) for sign, names in kinds if names)
            words.append(f"{tier.name.replace('ACTIVE', 'active')}:{text}")
    return " ".join(words)


def stands(tracker: ContextTracker, wish: StructuredContext, history: Sequence[Tracked] = ()) -> str:
    return shown(tracker.placement(wish, history))


def tracker_of(policy: ClassicPolicy = FREE) -> ContextTracker:
    return ContextTracker(TokenCounter(), policy)


class TestFirstRequest:
    def test_files_and_turns_are_active_and_symbols_are_spread_by_their_references(self) -> None:
        wish = replace(context("a", "bcde"), references={"b": frozenset("c"), "c": frozenset("b"), "a": frozenset("e")})
        tracker = tracker_of()
        assert stands(tracker, wish, turns(5)) == "L1:~bc L2:~d L3:~e active:+a*0"
        assert answered(tracker, wish, history=turns(5)) == []
        assert stands(tracker, wish, turns(5)) == "L1:~bc L2:~d L3:~e active:+a*0"
        assert (tracker.n("symbol:b"), tracker.n("symbol:d"), tracker.n("file:a")) == (10, 7, 0)

    def test_placement_is_the_same_until_a_request_is_settled(self) -> None:
        tracker, wish = tracker_of(), context("ab", "cdefghij")
        first = tracker.placement(wish, turns(5, 6))
        assert tracker.placement(wish, turns(5, 6)) == first
        assert tracker.size_bytes == 0

    def test_symbols_that_come_later_are_placed_by_their_references_then(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("a"), 2)
        wish = replace(context("a", "bc"), references={"b": frozenset("c"), "c": frozenset("b")})
        assert stands(tracker, wish) == "L1:~bc active:+a"
        answered(tracker, wish)
        assert tracker.tier("symbol:b") is L1

    def test_an_empty_request_places_nothing(self) -> None:
        tracker = tracker_of()
        assert stands(tracker, context()) == ""
        assert set(tracker.placement(context(), ()).tiers) == set(Tier)
        assert answered(tracker, context()) == []

    def test_l0_is_filled_where_the_policy_says_so(self) -> None:
        wish = replace(context("", "abc"), references={"a": frozenset("c")})
        assert stands(tracker_of(ClassicPolicy(target_tokens=1, first_l0="referenced")), wish) == "L0:~c L1:~a L2:~b"

    def test_what_the_client_calls_modified_is_not_placed_in_a_cached_tier(self) -> None:
        wish = replace(context("", "abcde"), modified=frozenset("a"))
        tracker = tracker_of()
        before = stands(tracker, wish)
        assert before == "L2:~bc L3:~de active:~a"
        assert answered(tracker, wish) == []
        assert stands(tracker, context("", "abcde")) == before


class TestFiles:
    def test_a_file_with_another_text_is_active_at_once(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("ab"), 4)
        edited = context("ab", texts={"a": "2"})
        assert stands(tracker, edited) == "L3:+b active:+a"
        assert answered(tracker, edited) == [Change("file:a", L3, ACTIVE, "changed")]
        assert stands(tracker, edited) == "L3:+b active:+a"

    def test_a_modified_file_is_active_though_its_text_is_the_same(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("ab"), 4)
        modified = replace(context("ab"), modified=frozenset("a"))
        assert stands(tracker, modified) == "L3:+b active:+a"
        assert answered(tracker, modified) == [Change("file:a", L3, ACTIVE, "modified")]
        assert tracker.n("file:a") == 0

    def test_a_deselected_file_is_forgotten_and_its_symbol_starts_anew(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("a", "bcdef"), 4)
        later = context("", "abcdef")
        assert stands(tracker, later).endswith("active:~a")
        assert answered(tracker, later) == [Change("file:a", L3, None, "deselected")]
        assert (tracker.tier("file:a"), tracker.tier("symbol:a"), tracker.n("symbol:a")) == (ACTIVE, ACTIVE, 0)
        assert stands(tracker, later).endswith("active:~a")
        assert answered(tracker, later, 3) == [Change("symbol:a", ACTIVE, L3, "unchanged")]

    def test_a_deselected_file_breaks_its_tier(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("a"), 8)
        answered(tracker, context("ab"), 4)
        assert (tracker.tier("file:a"), tracker.tier("file:b")) == (L2, L3)
        answered(tracker, context("ab"), 2)
        assert answered(tracker, context("b")) == [
            Change("file:a", L2, None, "deselected"),
            Change("file:b", L3, L2, "promoted"),
        ]

    def test_selecting_a_file_forgets_its_symbol_and_breaks_that_tier(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "abcde"), 7)
        assert stands(tracker, context("", "abcde")) == "L1:~a L2:~b L3:~cde"
        selected = context("a", "abcde")
        assert stands(tracker, selected) == "L2:~b L3:~cde active:+a"
        assert answered(tracker, selected)[:2] == [
            Change("symbol:a", L1, None, "selected"),
            Change("symbol:b", L2, L1, "promoted"),
        ]
        assert tracker.tier("symbol:a") is ACTIVE

    def test_a_file_that_cannot_be_read_is_skipped_and_neither_ages_nor_leaves(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("ab"), 5)
        unreadable = StructuredContext(files=(file("a", None), file("b")))
        assert stands(tracker, unreadable) == "L3:+b"
        assert answered(tracker, unreadable) == []
        assert (tracker.tier("file:a"), tracker.n("file:a"), tracker.n("file:b")) == (L3, 4, 5)
        assert stands(tracker, context("ab")) == "L3:+ab"

    def test_a_new_file_stands_behind_those_of_its_tier(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("z"), 4)
        answered(tracker, context("az"), 4)
        answered(tracker, context("abz"), 4)
        assert stands(tracker, context("abz")) == "L2:+z L3:+ab"

    def test_a_new_file_stands_behind_the_active_ones(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("z"))
        assert stands(tracker, context("ayz")) == "active:+zay"
        answered(tracker, context("ayz"))
        assert stands(tracker, context("yaz")) == "active:+zay"

    def test_the_digest_is_that_of_the_block_so_a_path_is_part_of_it(self) -> None:
        counted: list[bytes] = []

        class Counter(TokenCounter):
            def count(self, digest: bytes, text: str) -> int:
                assert digest == digest_of(text.encode())
                counted.append(digest)
                return super().count(digest, text)

        tracker = ContextTracker(Counter(), FREE)
        answered(tracker, context("ab", "c"), 3)
        assert {digest_of(text.encode()) for text in (file_block("a", "1"), file_block("b", "1"))} < set(counted)

    def test_texts_of_any_characters_are_tracked(self) -> None:
        tracker, wish = tracker_of(), context("ab", "c", texts={"a": "\ud800", "b": "", "c": "\udfff"})
        answered(tracker, wish, 4)
        assert stands(tracker, wish) == "L2:~c L3:+ab"


class TestSymbols:
    def test_an_untracked_symbol_stands_last_in_l3(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "bcdef"), 2)
        assert stands(tracker, context("", "abcdef")) == "L1:~b L2:~c L3:~defa"
        assert answered(tracker, context("", "abcdef")) == [Change("symbol:a", ACTIVE, L3, "placed")]
        assert stands(tracker, context("", "abcdef")) == "L1:~b L2:~c L3:~defa"
        assert tracker.n("symbol:a") == 4

    def test_a_changed_symbol_is_active_and_climbs_again(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "abcde"))
        changed = context("", "abcde", texts={"c": "2"})
        assert stands(tracker, changed) == "L1:~a L2:~b L3:~de active:~c"
        assert answered(tracker, changed) == [Change("symbol:c", L3, ACTIVE, "changed")]
        assert answered(tracker, changed, 3) == [Change("symbol:c", ACTIVE, L3, "unchanged")]
        assert stands(tracker, changed) == "L1:~a L2:~b L3:~dec"

    def test_a_symbol_that_is_no_longer_listed_is_forgotten(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "abcde"))
        assert answered(tracker, context("", "bcde")) == [Change("symbol:a", L1, None, "no longer listed")]

    def test_a_request_without_any_symbols_leaves_them_as_they_are(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "abcde"), 2)
        assert stands(tracker, context("x")) == "active:+x"
        assert answered(tracker, context("x")) == []
        assert stands(tracker, context("", "abcde")) == "L1:~a L2:~b L3:~cde"
        assert tracker.n("symbol:a") == 11

    def test_a_file_selected_without_symbols_in_the_request_forgets_its_symbol(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "abcde"))
        assert answered(tracker, context("a")) == [Change("symbol:a", L1, None, "selected")]


class TestRemoved:
    def test_both_items_of_a_removed_path_are_forgotten_and_their_tiers_broken(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("a", "bcdef"), 4)
        gone = replace(context("", "cdef"), removed=frozenset("ab"))
        assert answered(tracker, gone)[:2] == [
            Change("file:a", L3, None, "removed"),
            Change("symbol:b", L1, None, "removed"),
        ]

    def test_a_path_that_is_removed_and_listed_starts_anew(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("a", "bcdef"), 4)
        anew = replace(context("a", "bcdef"), removed=frozenset("ab"))
        assert stands(tracker, anew) == "L2:~c L3:~defb active:+a"
        assert [change.reason for change in answered(tracker, anew)][:3] == ["removed", "removed", "placed"]
        assert stands(tracker, context("a", "bcdef")).endswith("active:+a")

    def test_a_path_that_was_never_known_may_be_removed(self) -> None:
        assert answered(tracker_of(), replace(context("a"), removed=frozenset("xyz"))) == []


class TestBroken:
    def test_a_tier_that_the_client_calls_broken_opens(self) -> None:
        tracker = tracker_of()
        answered(tracker, context("", "abcde"), 6)
        assert answered(tracker, context("", "abcde")) == []
        opened = answered(tracker, replace(context("", "abcde"), broken=frozenset({L2})))
        assert {(change.source, change.target) for change in opened} == {(L3, L2)}


class TestHistory:
    PIGGYBACK = ClassicPolicy(target_tokens=200, history="piggyback")

    def moved(self) -> tuple[ContextTracker, list[Tracked]]:
        """Six turns of 100 tokens, four of which left with a file."""
        tracker, history = tracker_of(self.PIGGYBACK), turns(*[100] * 6)
        answered(tracker, context("a"), 4, history)
        assert stands(tracker, context("a"), history) == "L3:+a*0123 active:*45"
        return tracker, history

    def test_a_shorter_history_is_purged_from_its_end_on(self) -> None:
        tracker, history = self.moved()
        assert stands(tracker, context("a"), history[:2]) == "L3:+a*01"
        changes = answered(tracker, context("a"), history=history[:2])
        assert [(c.key, c.source, c.target, c.reason) for c in changes] == [
            ("history:2", L3, None, "purged"),
            ("history:3", L3, None, "purged"),
            ("history:4", ACTIVE, None, "purged"),
            ("history:5", ACTIVE, None, "purged"),
        ]
        assert tracker.tier("history:2") is ACTIVE

    def test_a_rewritten_turn_and_those_behind_it_start_anew(self) -> None:
        tracker, history = self.moved()
        rewritten = [*history[:2], Tracked("history:2", b"other", 100), *history[3:]]
        assert stands(tracker, context("a"), rewritten) == "L3:+a*01 active:*2345"
        changes = answered(tracker, context("a"), history=rewritten)
        assert {(change.key, change.reason) for change in changes} == {(f"history:{n}", "purged") for n in range(2, 6)}
        assert stands(tracker, context("a"), rewritten) == "L3:+a*01 active:*2345"
        assert (tracker.n("history:1"), tracker.n("history:3")) == (4, 0)

    def test_a_purge_takes_no_other_turn_along(self) -> None:
        tracker, history = self.moved()
        assert {change.reason for change in tracker.purge_history()} == {"purged"}
        assert answered(tracker, context("a"), 3, history) == []
        assert stands(tracker, context("a"), history) == "L3:+a active:*012345"

    def test_a_call_and_its_result_stay_in_one_tier(self) -> None:
        tracker = tracker_of(self.PIGGYBACK)
        history = turns(*[100] * 5)
        history[3] = replace(history[3], is_joined=True)
        answered(tracker, context("a"), 4, history)
        assert stands(tracker, context("a"), history) == "L3:+a*0123 active:*4"

    def test_a_rewritten_result_takes_its_call_along(self) -> None:
        tracker = tracker_of(self.PIGGYBACK)
        history = turns(*[100] * 6)
        history[2] = replace(history[2], is_joined=True)
        answered(tracker, context("a"), 4, history)
        rewritten = [*history[:2], Tracked("history:2", b"other", 100, is_joined=True), *history[3:]]
        assert stands(tracker, context("a"), rewritten) == "L3:+a*0 active:*12345"
        assert answered(tracker, context("a"), history=rewritten)[-1] == Change(
            "history:1", L3, ACTIVE, "behind an older turn"
        )
        assert stands(tracker, context("a"), rewritten) == "L3:+a*0 active:*12345"

    def test_a_first_turn_that_is_joined_begins_a_group_all_the_same(self) -> None:
        history = [Tracked("history:0", b"result", 10, is_joined=True), Tracked("history:1", b"turn 0", 10)]
        assert stands(tracker_of(), context(), history) == "active:*01"


class TestMarkers:
    def test_tiers_below_the_target_are_unmarked_and_the_head_counts_for_l0(self) -> None:
        tracker = tracker_of(ClassicPolicy(target_tokens=100))
        wish = context("", "ab", texts={"a": "x" * 600})
        assert tracker.placement(wish, ()).unmarked == {L0, L2, L3}
        answered(tracker, wish)
        assert tracker.placement(wish, (), head_tokens=100).unmarked == {L2, L3}
        assert tracker.placement(context(), ()).unmarked == {L0, L1, L2, L3}

    def test_no_tier_is_unmarked_without_a_target_or_where_small_tiers_fall(self) -> None:
        assert tracker_of().placement(context("a"), ()).unmarked == set()
        falling = tracker_of(ClassicPolicy(target_tokens=100, underfill="demote"))
        assert falling.placement(context("a"), ()).unmarked == set()


class TestCounts:
    def test_counts_are_those_of_what_is_tracked_and_sent(self) -> None:
        tracker = tracker_of()
        assert tracker.placement(context("a", "b"), turns(5)).counts == {}
        answered(tracker, context("a", "b"), 2, turns(5))
        edited = context("ac", "b", texts={"a": "2"})
        assert tracker.placement(edited, turns(5, 5)).counts == {"file:a": 0, "symbol:b": 5, "history:0": 1}


class TestGraduationByLeaving:
    def test_a_file_graduates_one_answer_after_it_has_counted_to_three(self) -> None:
        tracker = tracker_of(ClassicPolicy(target_tokens=0, graduation="leave"))
        assert answered(tracker, context("a"), 4) == []
        assert tracker.n("file:a") == 3
        assert answered(tracker, context("a")) == [Change("file:a", ACTIVE, L3, "unchanged")]
        assert answered(tracker, context("a"), 3) == []

    def test_a_changed_one_is_listed_again(self) -> None:
        tracker = tracker_of(ClassicPolicy(target_tokens=0, graduation="leave"))
        answered(tracker, context("a"), 4)
        assert answered(tracker, context("a", texts={"a": "2"})) == []
        assert (tracker.tier("file:a"), tracker.n("file:a")) == (ACTIVE, 0)

    def test_a_modified_one_is_listed_again(self) -> None:
        tracker = tracker_of(ClassicPolicy(target_tokens=0, graduation="leave"))
        answered(tracker, context("a"), 4)
        assert answered(tracker, replace(context("a"), modified=frozenset("a"))) == []
        assert tracker.n("file:a") == 0


def test_the_policy_may_be_set_later() -> None:
    tracker = tracker_of()
    tracker.policy = ClassicPolicy(target_tokens=77)
    assert tracker.policy.target_tokens == 77
    assert tracker.placement(context("a"), ()).unmarked == {L0, L1, L2, L3}


def test_the_size_grows_with_what_is_tracked() -> None:
    tracker = tracker_of()
    answered(tracker, context("abc", "defgh"), history=turns(1, 2))
    small = tracker.size_bytes
    answered(tracker, context("a"), history=turns(1))
    assert 0 < tracker.size_bytes < small < 10_000


def test_the_size_is_about_what_is_allocated() -> None:
    paths = [f"source/package/module_{number:04}.py" for number in range(1_000)]
    wish = StructuredContext(symbols={path: f"{path}: class" for path in paths})
    counter = TokenCounter()
    ContextTracker(counter, FREE).settle(wish, ())
    tracemalloc.start()
    try:
        tracker = ContextTracker(counter, FREE)
        tracker.settle(wish, ())
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.8 * allocated < tracker.size_bytes < 2 * allocated


@pytest.mark.slow
def test_time_grows_with_the_items() -> None:
    def wishes(number: int) -> list[StructuredContext]:
        paths = [f"{index:06}" for index in range(number)]
        files, swapped = (
            tuple(file(path, selected=(index % 4 == 0) is selects) for index, path in enumerate(paths))
            for selects in (True, False)
        )
        one = StructuredContext(files=files, symbols={path: path for path in paths})
        return [one, replace(one, files=swapped, removed=frozenset(paths[::3]))] * number

    def work(wishes: Sequence[StructuredContext]) -> None:
        tracker, history = tracker_of(TestHistory.PIGGYBACK), turns(*[9] * (len(wishes) // 2))
        for wish in wishes[:6]:
            tracker.placement(wish, history)
            tracker.settle(wish, history)
            history = [replace(turn, digest=b"x") if turn is history[3] else turn for turn in history]

    assert_linear(work, wishes, 800)
