"""Whatever the prompts, the terms and the context are: what composing promises."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.prompts import (
    ROOTS,
    Composition,
    Condition,
    ConditionError,
    Json,
    Position,
    Prompt,
    PromptContext,
    PromptFailure,
    PromptTerms,
    RenderError,
    merged,
    value_at,
)
from proxy.prompts.assembler import OPERATORS, assemble, checked, holds

leaves: st.SearchStrategy[Json] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(("", "a", "ab", "(", "a+"))
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
contexts = st.dictionaries(
    st.sampled_from(ROOTS[:2]), st.dictionaries(st.sampled_from("ab"), values, max_size=2), max_size=2
).map(lambda found: merged(found))
fields = st.sampled_from(("mission", "mission.a", "mission.b", "mission.a.b", "target.a", "target.b.a"))
conditions = st.builds(Condition, fields, st.sampled_from((*sorted(OPERATORS), "like")), values)
texts = st.sampled_from(("", " ", "one", " two\n", "\n\nthree  four", "broken"))
prompts = st.builds(
    Prompt,
    st.sampled_from(("a", "b", "c", "d", "persona:x", "persona:y")),
    st.sampled_from(Position),
    texts,
    st.integers(-1, 1),
    st.lists(conditions, max_size=2).map(tuple),
    profile=st.sampled_from(("", "", "edit")),
    is_literal=st.booleans(),
)
registries = st.lists(prompts, max_size=8, unique_by=lambda prompt: prompt.id)
terms_of = st.builds(
    PromptTerms,
    use=st.sampled_from((("*",), ("a", "b*"), ())),
    persona=st.sampled_from(("", "x", "z")),
    profile=st.sampled_from(("", "edit")),
    override=st.sampled_from(("", "", " over \n")),
    tools=st.booleans(),
    plugins=st.booleans(),
    agents=st.booleans(),
    extras=st.lists(prompts, max_size=3).map(tuple),
)


def render(prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
    if prompt.text == "broken":
        raise RenderError("the template is broken")
    return prompt.text


def composed(registry: list[Prompt], terms: PromptTerms, context: PromptContext) -> Composition:
    return assemble(registry, terms, context, render)


def outcome(condition: Condition, context: PromptContext) -> bool | str:
    """Whether it holds, or the code of what is wrong with it."""
    try:
        return holds(condition, context)
    except ConditionError as error:
        return error.code


def is_loaded(condition: Condition) -> bool:
    """Whether nothing is wrong with the condition in every context."""
    try:
        return checked(condition) is condition
    except ConditionError:
        return False


@given(registries, terms_of, contexts)
def test_equal_values_give_equal_texts(registry: list[Prompt], terms: PromptTerms, context: PromptContext) -> None:
    again = [replace(prompt) for prompt in registry]

    assert composed(again, replace(terms), merged(context)) == composed(registry, terms, context)


@given(registries, terms_of, contexts)
def test_parts_stand_in_order_and_make_the_texts(
    registry: list[Prompt], terms: PromptTerms, context: PromptContext
) -> None:
    found = composed(registry, terms, context)

    places = [list(Position).index(part.position) for part in found.parts]
    assert places == sorted(places)
    assert all(part.text == part.text.strip() != "" for part in found.parts)
    system = [part.text for part in found.parts if part.position.is_system]
    user = [part.text for part in found.parts if not part.position.is_system]
    assert found.system == (terms.override or "\n\n".join(system))
    assert "\n\n".join(filter(None, (found.inset.before, found.inset.after))) == "\n\n".join(user)
    assert not (terms.override and system)


@given(registries, terms_of, contexts)
def test_every_prompt_is_in_the_texts_or_skipped_and_never_both(
    registry: list[Prompt], terms: PromptTerms, context: PromptContext
) -> None:
    found = composed(registry, terms, context)

    used = [part.id for part in found.parts]
    assert len(set(used)) == len(used)
    assert not set(used) & set(found.skipped)
    known = {prompt.id for prompt in (*registry, *terms.extras)} | {f"persona:{terms.persona}"}
    assert {*used, *found.skipped} <= known


@given(registries, terms_of, contexts, st.randoms(use_true_random=False))
def test_the_order_of_registration_matters_for_equal_priorities_only(
    registry: list[Prompt], terms: PromptTerms, context: PromptContext, random: Random
) -> None:
    distinct = [replace(prompt, priority=rank) for rank, prompt in enumerate(registry)]
    extras = tuple(replace(extra, priority=-1 - rank) for rank, extra in enumerate(terms.extras))
    assume(len({extra.id for extra in extras}) == len(extras))
    shuffled = list(distinct)
    random.shuffle(shuffled)
    terms = replace(terms, extras=extras)

    assert composed(shuffled, terms, context).parts == composed(distinct, terms, context).parts


@given(registries, terms_of, contexts, prompts)
def test_a_prompt_that_is_not_used_changes_nothing(
    registry: list[Prompt], terms: PromptTerms, context: PromptContext, other: Prompt
) -> None:
    terms = replace(terms, use=("a", "b*"))

    added = [*registry, replace(other, id="unused")]

    assert composed(added, terms, context) == composed(registry, terms, context)


@given(registries, terms_of, contexts)
def test_strict_mode_gives_the_same_texts_or_names_a_prompt_that_is_skipped_otherwise(
    registry: list[Prompt], terms: PromptTerms, context: PromptContext
) -> None:
    lenient = composed(registry, terms, context)
    try:
        strict: Composition | PromptFailure = composed(registry, replace(terms, strict=True), context)
    except PromptFailure as failure:
        strict = failure

    faults = {prompt_id for prompt_id, why in lenient.skipped.items() if why in ("bad_condition", "render_error")}
    if isinstance(strict, Composition):
        assert not faults
        assert strict == lenient
    else:
        assert strict.prompt_id in faults


@given(conditions, contexts)
def test_a_condition_holds_or_not_or_is_refused_with_a_code(condition: Condition, context: PromptContext) -> None:
    codes = {"invalid_operator", "invalid_type", "invalid_pattern"}

    assert outcome(condition, context) in {True, False, *codes}


@given(conditions, contexts)
def test_what_cannot_be_loaded_never_holds(condition: Condition, context: PromptContext) -> None:
    assert is_loaded(condition) or outcome(condition, context) is not True


@given(fields, values, contexts)
def test_operators_agree_with_each_other(field: str, value: Json, context: PromptContext) -> None:
    def holding(operator: str, compared: Json = value) -> bool | str:
        return outcome(Condition(field, operator, compared), context)

    is_there, found = value_at(context, field)
    assert holding("exists") is is_there
    assert holding("not_exists") is not is_there
    if not is_there:
        assert {holding(operator) for operator in OPERATORS - {"not_exists"}} == {False}
        return
    assert holding("eq") is not holding("ne")
    assert holding("eq", found) is True
    assert holding("in", [value]) is holding("eq")
    assert holding("in", [found, value]) is True
    if holding("gt") != "invalid_type":
        assert [holding("gt"), holding("eq"), holding("lt")].count(True) == 1
        assert holding("gte") is not holding("lt")
        assert holding("lte") is not holding("gt")
    if isinstance(found, list):
        assert all(holding("contains", each) is True for each in found)
