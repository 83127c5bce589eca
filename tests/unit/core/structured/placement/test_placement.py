"""Whatever a placement says, each item that a request shows stands in one tier."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.layout.tiers import Tier
from proxy.core.structured.blocks.blocks import Skip, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages import Turn
from proxy.core.structured.placement.placement import Placement, TierItems, standing
from tests.contexts import a_file, conversation_of, exchanges, placed
from tests.talk import Body, as_parts, assistant, calling, result, user

NO_TURNS: tuple[Turn, ...] = ()


def stands(context: StructuredContext, placement: Placement) -> dict[Tier, TierItems]:
    return dict(standing(context, NO_TURNS, placement, Skipped()))


def test_untracked_symbols_stand_in_l3_behind_the_tracked_ones_and_untracked_files_are_active() -> None:
    context = StructuredContext(
        files=(a_file("c.py"), a_file("a.py"), a_file("b.py")), symbols=dict.fromkeys(("x", "y", "z"), "block")
    )
    found = stands(context, placed(L3=TierItems(symbols=("z",), files=("b.py",)), ACTIVE=TierItems(files=("a.py",))))

    assert found[Tier.L3] == TierItems(symbols=("z", "x", "y"), files=("b.py",))
    assert found[Tier.ACTIVE] == TierItems(files=("a.py", "c.py"))


def test_symbols_of_a_selected_file_are_never_shown_wherever_they_are_tracked() -> None:
    context = StructuredContext(files=(a_file("a.py"),), symbols={"a.py": "a"})
    found = stands(context, placed(L1=TierItems(symbols=("a.py",)), L2=TierItems(files=("a.py",))))

    assert found[Tier.L1] == TierItems()
    assert found[Tier.L2] == TierItems(files=("a.py",))


def test_what_stands_in_two_tiers_stays_in_the_more_stable_one() -> None:
    context = StructuredContext(files=(a_file("a.py"),), symbols={"x": "x"})
    twice = TierItems(symbols=("x", "x"), files=("a.py", "a.py"))
    found = stands(context, placed(L1=twice, L3=twice, ACTIVE=twice))

    assert found[Tier.L1] == TierItems(symbols=("x",), files=("a.py",))
    assert all(found[tier] == TierItems() for tier in Tier if tier is not Tier.L1)


def test_what_the_request_does_not_list_is_not_shown_and_not_counted() -> None:
    skipped = Skipped()
    found = standing(StructuredContext(), NO_TURNS, placed(L0=TierItems(symbols=("x",), files=("a.py",))), skipped)

    assert all(items == TierItems() for items in found.values())
    assert not skipped


def test_unreadable_files_and_missing_symbols_are_counted_by_their_reason() -> None:
    files = (a_file("a.bin", None), a_file("b.bin", None), a_file("c.bin", None, is_selected=False), a_file("d.py"))
    context = StructuredContext(files=files, symbols={"a.bin": "", "c.bin": "", "d.py": ""})
    skipped = Skipped()
    found = standing(context, NO_TURNS, placed(L2=TierItems(symbols=("c.bin",), files=("a.bin",))), skipped)

    assert skipped == {Skip.UNREADABLE: 2, Skip.NO_SYMBOLS: 1}
    assert found[Tier.L2] == TierItems()


def history_of(*tiers: TierItems, turns: tuple[Turn, ...]) -> tuple[list[tuple[int, ...]], Skipped]:
    names = ("L0", "L1", "L2", "L3", "ACTIVE")
    skipped = Skipped()
    found = standing(StructuredContext(), turns, placed(**dict(zip(names, tiers, strict=False))), skipped)
    return [found[tier].history for tier in Tier], skipped


def test_no_turn_stands_in_a_more_stable_tier_than_an_older_one() -> None:
    turns = conversation_of(*exchanges(3), user("now?")).history
    found, _ = history_of(TierItems(history=(0, 3)), TierItems(history=(1,)), TierItems(history=(2,)), turns=turns)

    assert found == [(0,), (1,), (2, 3), (), (4, 5)]


def test_results_stay_with_their_calls() -> None:
    turns = conversation_of(user("q"), calling("1", "2"), result("1", "r"), result("2", "r"), user("now?")).history
    found, _ = history_of(TierItems(history=(0, 1)), TierItems(history=(2,)), turns=turns)

    assert found == [(0,), (), (), (), (1, 2, 3)]


def test_turns_that_the_request_does_not_have_are_counted() -> None:
    turns = conversation_of(*exchanges(1), user("now?")).history
    found, skipped = history_of(TierItems(history=(0, -1, 2)), turns=turns)

    assert found == [(0,), (), (), (), (1,)]
    assert skipped == {Skip.UNKNOWN_TURN: 2}


PATHS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=4).map(tuple)
ITEMS = st.builds(TierItems, PATHS, PATHS, st.lists(st.integers(-1, 7), max_size=6).map(tuple))


RESULTS = as_parts(calling("1"), result("1", "d"))[1]


@given(
    st.dictionaries(st.sampled_from(list(Tier)), ITEMS).map(Placement),
    st.lists(st.sampled_from([user("a"), assistant("b"), result("1", "c"), RESULTS]), max_size=6),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "block"])),
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.sampled_from([None, "text"]), st.booleans())),
)
def test_each_shown_item_stands_in_exactly_one_tier(
    placement: Placement, talk: list[Body], symbols: dict[str, str], files: dict[str, tuple[str | None, bool]]
) -> None:
    turns = tuple(Turn.of(orjson.dumps(message)) for message in talk)
    listed = tuple(a_file(path, text, is_selected=selected) for path, (text, selected) in files.items())
    context = StructuredContext(files=listed, symbols=symbols)
    found = [standing(context, turns, placement, Skipped())[tier] for tier in Tier]

    assert sorted(path for items in found for path in items.symbols) == sorted(context.mapped())
    assert sorted(path for items in found for path in items.files) == sorted(f.path for f in context.selected())
    assert [index for items in found for index in items.history] == list(range(len(turns)))
    starts = [items.history[0] for items in found if items.history]
    assert not any(turns[start].has_results for start in starts if start)
