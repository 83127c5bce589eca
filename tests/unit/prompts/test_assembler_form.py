"""The section ``stratiform.prompts``: what each field becomes, and what a mistake in it is called."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.prompts import ClientWish, Condition, Position, Prompt
from proxy.prompts.assembler import (
    MOST_CONDITIONS,
    MOST_EXTRAS,
    MOST_FORM_BYTES,
    MOST_PATTERNS,
    checked_persona,
    read_wish,
)
from tests.examples import for_every

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("persona", "override", "tools", "plugins", "agents", "context", "extra")


def read(**fields: Any) -> ClientWish:
    return read_wish(json.dumps(fields, ensure_ascii=False).encode())


def refused(raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        read_wish(raw)
    assert error.value.status == 400
    return error.value


def refusal(**fields: Any) -> tuple[str | None, str | None]:
    """Where the mistake is, and what it is called."""
    error = refused(json.dumps(fields).encode())
    return (error.param or "").removeprefix("stratiform.prompts"), error.code


def extra(**fields: Any) -> dict[str, Any]:
    return {"id": "e", "position": "system", "text": "text", **fields}


def extra_if(*conditions: tuple[Any, ...]) -> dict[str, Any]:
    return extra(conditions=[dict(zip(("field", "operator", "value"), each, strict=False)) for each in conditions])


@pytest.mark.parametrize("raw", [b"null", b" null ", b"{}", b" {} "])
def test_a_section_without_fields_asks_for_nothing(raw: bytes) -> None:
    assert read_wish(raw) == ClientWish()


def test_a_field_of_null_counts_as_left_out() -> None:
    assert read(**dict.fromkeys(NAMES)) == ClientWish()
    assert read(extra=[extra(priority=None, conditions=None)]).extras[0].priority == 0


def test_every_field_is_read() -> None:
    wish = read(
        persona="helper",
        override=" mine ",
        tools=True,
        plugins=False,
        agents=True,
        context={"agent": {"debug": True}, "custom": {"é": [1, 1.5, None]}},
        extra=[
            {
                "id": "rules:a",
                "position": "last_user",
                "text": "{{ literal }}",
                "priority": -5,
                "conditions": [{"field": "agent.debug", "operator": "eq", "value": True}],
            },
            {"id": "b", "position": "user", "text": ""},
        ],
    )

    assert wish == ClientWish(
        persona="helper",
        override=" mine ",
        tools=True,
        plugins=False,
        agents=True,
        context={"agent": {"debug": True}, "custom": {"é": [1, 1.5, None]}},
        extras=(
            Prompt(
                "rules:a",
                Position.LAST_USER,
                "{{ literal }}",
                -5,
                (Condition("agent.debug", "eq", True),),
                is_literal=True,
                origin="the request",
            ),
            Prompt("b", Position.USER, "", is_literal=True, origin="the request"),
        ),
    )


@for_every(
    [
        ({"profile": "edit"}, ".profile", "unknown_field"),
        ({"persona": 1}, ".persona", "invalid_type"),
        ({"persona": "a b"}, ".persona", "invalid_value"),
        ({"persona": "p" * 129}, ".persona", "invalid_value"),
        ({"override": ["a"]}, ".override", "invalid_type"),
        ({"tools": "true"}, ".tools", "invalid_type"),
        ({"tools": 1}, ".tools", "invalid_type"),
        ({"context": []}, ".context", "invalid_type"),
        ({"context": {"agent": 1}}, ".context[...]", "invalid_type"),
        ({"context": {"time": {}}}, ".context.time", "unknown_field"),
        ({"context": {"custom": {"a": "x" * 65_536}}}, ".context", "too_long"),
        ({"context": {"custom": {"a": [0] * 2_000}}}, ".context", "too_many_items"),
        ({"context": {"custom": {"a": 2**64}}}, ".context", "too_many_items"),
        ({"extra": {}}, ".extra", "invalid_type"),
        ({"extra": [{"id": "a", "position": "system"}]}, ".extra[0].text", "missing_field"),
        ({"extra": [extra(position="first")]}, ".extra[0].position", "invalid_value"),
        ({"extra": [extra(id="")]}, ".extra[0].id", "invalid_value"),
        ({"extra": [extra(id="a\n")]}, ".extra[0].id", "invalid_value"),
        ({"extra": [extra(), extra()]}, ".extra[1].id", "duplicate_id"),
        ({"extra": [extra(priority=True)]}, ".extra[0].priority", "invalid_type"),
        ({"extra": [extra(priority=1_000_001)]}, ".extra[0].priority", "invalid_value"),
        ({"extra": [extra(priority=10**30)]}, ".extra[0].priority", "invalid_value"),
        ({"extra": [extra(variables=[])]}, ".extra[0].variables", "unknown_field"),
        ({"extra": [extra_if(("agent.a", "like", 1))]}, ".extra[0].conditions[0]", "invalid_operator"),
        ({"extra": [extra_if(("agent.a", "exists"), ("time", "exists"))]}, ".extra[0].conditions[1]", "invalid_path"),
        ({"extra": [extra_if(("agent.a", "matches", "("))]}, ".extra[0].conditions[0]", "invalid_pattern"),
        ({"extra": [extra_if(("agent.a", "matches", "a{300}"))]}, ".extra[0].conditions[0]", "invalid_pattern"),
        ({"extra": [extra_if(("agent.a", "gt", "1"))]}, ".extra[0].conditions[0]", "invalid_type"),
        ({"extra": [extra_if(("agent.a", "eq", 2**64))]}, ".extra[0].conditions[0].value", "too_many_items"),
    ]
)
def test_a_mistake_is_named_with_its_field(fields: dict[str, Any], param: str, code: str) -> None:
    assert refusal(**fields) == (param, code)


def test_there_are_so_many_extra_prompts_conditions_and_patterns_at_most() -> None:
    many = [extra(id=f"e{number}") for number in range(MOST_EXTRAS + 1)]
    pattern = ("agent.a", "matches", "a")
    some = [{**extra_if(pattern), "id": f"e{number}"} for number in range(MOST_PATTERNS + 1)]

    assert len(read(extra=many[1:]).extras) == MOST_EXTRAS
    assert refusal(extra=many) == (".extra", "too_many_items")
    assert read(extra=[extra_if(*[("agent.a", "exists")] * MOST_CONDITIONS)]).extras
    assert refusal(extra=[extra_if(*[("agent.a", "exists")] * (MOST_CONDITIONS + 1))])[1] == "too_many_items"
    assert read(extra=some[1:]).extras
    assert refusal(extra=some) == (".extra", "too_many_items")


def test_the_section_has_so_many_bytes_at_most() -> None:
    frame = len(json.dumps({"override": ""}))

    assert len(read(override="x" * (MOST_FORM_BYTES - frame)).override) == MOST_FORM_BYTES - frame
    assert refusal(override="x" * (MOST_FORM_BYTES - frame + 1)) == ("", "too_long")


@pytest.mark.parametrize("raw", [b"", b"{", b"{}x", b"\xff", b'{"persona": "\xff"}'])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    assert refused(raw).code == "invalid_json"


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    error = refused(b'{"extra": [{"id": "a", "position": "user", "text": "\\ud83d"}]}')

    assert (error.code, error.param) == ("invalid_unicode", "stratiform.prompts.extra[0].text")


@pytest.mark.parametrize(
    "opening", [b'{"context":' + b"[" * 100_000, b'{"context":{"custom":{"a":' + b'{"a":' * 12_000]
)
def test_a_section_that_is_nested_beyond_all_measure_is_refused(opening: bytes) -> None:
    assert refused(opening).param in ("stratiform.prompts", "stratiform.prompts.context")


def test_deep_values_are_refused() -> None:
    deep: Any = 1
    for _ in range(20):
        deep = [deep]

    assert refusal(context={"custom": {"a": deep}}) == (".context", "too_many_items")
    assert refusal(extra=[extra_if(("agent.a", "eq", deep))]) == (".extra[0].conditions[0].value", "too_many_items")


def test_no_message_quotes_a_text_of_the_client() -> None:
    secret = "s3cr3t"
    for fields in (
        {"persona": f"{secret} "},
        {"override": [secret]},
        {"extra": [extra(id=f"{secret} ")]},
        {"extra": [extra(position=secret)]},
        {"extra": [extra_if(("agent.a", secret))]},
        {"extra": [extra_if(("agent.a", "matches", f"({secret}"))]},
        {"extra": [extra_if((secret, "exists"))]},
    ):
        assert secret not in str(refused(json.dumps(fields).encode()).message)


@pytest.mark.parametrize("name", ["a", "persona:helper", "rules/one.v2", "_dev", ".x", "x" * 128])
def test_a_persona_may_begin_with_any_character_of_an_id(name: str) -> None:
    assert checked_persona(name, "p") == read(persona=name).persona == name


@pytest.mark.parametrize("name", ["persona:_dev", "rules/one.v2", "x" * 128])
def test_a_prompt_of_the_request_has_an_id_as_in_the_registry(name: str) -> None:
    assert [one.id for one in read(extra=[extra(id=name)]).extras] == [name]


@pytest.mark.parametrize("name", ["", "_dev", ".x", "x" * 129])
def test_a_prompt_of_the_request_may_not_have_another_id_than_in_the_registry(name: str) -> None:
    assert refusal(extra=[extra(id=name)]) == (".extra[0].id", "invalid_value")


def outcome(raw: bytes) -> ClientWish | str:
    """The wish, or where the mistake is."""
    try:
        return read_wish(raw)
    except InvalidRequest as error:
        return error.param or ""


@given(st.dictionaries(st.sampled_from(NAMES), json_values) | json_values)
def test_any_json_is_read_or_refused_as_the_clients_mistake(value: Any) -> None:
    found = outcome(json.dumps(value).encode())

    assert isinstance(found, ClientWish) or found.startswith("stratiform.prompts")


EXTRA = b'{"id":"a","position":"system","text":"x"'


@pytest.mark.parametrize(
    "raw",
    [
        b'{"persona":"a","persona":"b"}',
        b'{"tools":null,"tools":true}',
        b'{"context":{"custom":{"a":1,"a":2}}}',
        b'{"context":{},"context":{"custom":{}}}',
        b'{"extra":[' + EXTRA + b',"text":"y"}]}',
        b'{"extra":[' + EXTRA + b',"conditions":[{"field":"custom.a","operator":"eq","value":1,"value":2}]}]}',
        b'{"extra":[' + EXTRA + b',"conditions":[{"field":"custom.a","operator":"eq","value":{"b":1,"b":2}}]}]}',
    ],
)
def test_a_field_that_stands_twice_is_refused(raw: bytes) -> None:
    error = refused(raw)
    assert (error.param, error.code) == ("stratiform.prompts", "duplicate_field")


def test_fields_that_stand_once_are_no_repetition_whatever_they_hold() -> None:
    conditions = [{"field": "custom.a", "operator": "in", "value": [{"a": 1}, {"a": {"b": None}}]}]
    extra = {"id": "a", "position": "system", "text": '{"text":""}', "priority": None, "conditions": conditions}
    found = read(
        persona=None,
        override='"a":',
        tools=None,
        plugins=False,
        agents=True,
        context={"custom": {"a": [{"b": 1}], "c": {"d": {}}}, "memory": {}},
        extra=[extra, {"id": "b", "position": "system", "text": "", "conditions": None}],
    )
    assert (found.tools, found.plugins, found.agents, len(found.extras)) == (None, False, True, 2)
