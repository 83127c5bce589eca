"""Contexts together, paths in them, and their bounds; what counts as an empty composition."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.prompts import MOST_LEVELS, MOST_VALUES, ROOTS, Composition, Json, added, exceeded_bound, merged, value_at
from proxy.protocol.request import Inset
from tests.examples import for_every


def values() -> st.SearchStrategy[Json]:
    leaves: st.SearchStrategy[Json] = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=8)


def objects(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[dict[str, Json]]:
    return st.dictionaries(st.sampled_from("abc"), inner, max_size=3)


contexts = st.dictionaries(st.sampled_from(ROOTS), objects(values()), max_size=3)


def nested(levels: int) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found


def test_every_root_is_there() -> None:
    assert tuple(merged()) == ROOTS
    assert tuple(merged({"agent": {"a": 1}})) == ROOTS


def test_objects_are_merged_by_name_and_other_values_are_replaced() -> None:
    found = merged(
        {"agent": {"a": {"x": 1, "y": 1}, "b": [1, 2], "c": {"x": 1}}},
        {"agent": {"a": {"y": 2, "z": 2}, "b": [3], "c": 4}, "custom": {"d": None}},
    )

    assert found["agent"] == {"a": {"x": 1, "y": 2, "z": 2}, "b": [3], "c": 4}
    assert found["custom"] == {"d": None}


def test_contexts_that_are_added_stay_as_they_are() -> None:
    one: dict[str, dict[str, Json]] = {"agent": {"a": {"x": 1}}}
    other: dict[str, dict[str, Json]] = {"agent": {"a": {"y": 2}}}

    added(one, other)

    assert one == {"agent": {"a": {"x": 1}}}
    assert other == {"agent": {"a": {"y": 2}}}


@given(contexts)
def test_the_same_context_twice_is_that_context(context: dict[str, dict[str, Json]]) -> None:
    assert merged(context, context) == merged(context)


@given(contexts, contexts, contexts)
def test_contexts_merge_alike_in_whichever_groups(
    one: dict[str, dict[str, Json]], two: dict[str, dict[str, Json]], three: dict[str, dict[str, Json]]
) -> None:
    # A value that is no object ends what was there before it, so objects are kept apart by their names.
    def apart(context: dict[str, dict[str, Json]], prefix: str) -> dict[str, dict[str, Json]]:
        return {root: {prefix + name: value for name, value in inner.items()} for root, inner in context.items()}

    first, second, third = apart(one, "1"), apart(two, "2"), apart(three, "3")
    assert merged(first, merged(second, third)) == merged(merged(first, second), third)


@given(contexts, contexts)
def test_every_value_of_the_later_context_is_found_in_both_together(
    one: dict[str, dict[str, Json]], two: dict[str, dict[str, Json]]
) -> None:
    both = merged(one, two)
    for root, inner in two.items():
        for name, value in inner.items():
            if not isinstance(value, dict):
                assert value_at(both, f"{root}.{name}") == (True, value)


@for_every(
    [
        ("agent.a.b", (True, 1)),
        ("agent.a", (True, {"b": 1})),
        ("agent", (True, {"a": {"b": 1}, "none": None, "list": [1]})),
        ("agent.none", (True, None)),
        ("agent.none.x", (False, None)),
        ("agent.a.b.c", (False, None)),
        ("agent.list.0", (False, None)),
        ("agent.list[0]", (False, None)),
        ("agent..a", (False, None)),
        ("Agent.a", (False, None)),
        ("", (False, None)),
        ("time", (False, None)),
    ]
)
def test_a_path_finds_what_stands_at_its_names(path: str, expected: tuple[bool, Json]) -> None:
    context = merged({"agent": {"a": {"b": 1}, "none": None, "list": [1]}})

    assert value_at(context, path) == expected


def test_a_context_may_have_so_many_levels_and_values() -> None:
    assert exceeded_bound({}) == ""
    assert exceeded_bound({"custom": nested(MOST_LEVELS)}) == ""
    assert exceeded_bound({"custom": {"a": [1] * (MOST_VALUES - 2)}}) == ""
    assert exceeded_bound({"custom": {"a": 2**63 - 1, "b": -(2**63)}}) == ""


def test_what_exceeds_a_bound_is_named() -> None:
    assert "16 levels" in exceeded_bound({"custom": nested(MOST_LEVELS + 1)})
    assert "2000 values" in exceeded_bound({"custom": {"a": [1] * (MOST_VALUES - 1)}})
    assert "64 bits" in exceeded_bound({"custom": {"a": [2**63]}})
    assert "64 bits" in exceeded_bound({"custom": {"a": -(2**63) - 1}})


def test_a_context_that_is_nested_beyond_all_measure_is_looked_through_without_recursion() -> None:
    assert "16 levels" in exceeded_bound({"custom": nested(100_000)})


def test_a_composition_without_texts_is_empty() -> None:
    assert Composition(skipped={"one": "condition"}).is_empty


def test_a_composition_with_any_text_is_not_empty() -> None:
    assert not Composition(system="Be brief.").is_empty
    assert not Composition(inset=Inset(after="Close every block.")).is_empty


def test_an_inset_is_true_where_it_adds_a_text() -> None:
    assert not Inset()
    assert Inset(before="a")
    assert Inset(after="b")
