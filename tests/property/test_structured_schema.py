"""The documented schema of structured context and the reader agree: what the schema refuses, the reader refuses, and
valid sections pass both."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import split
from proxy.context.form import read_form
from proxy.kit.errors import InvalidRequest
from proxy.prompts.assembler import read_wish
from proxy.prompts.window import read_parts
from tests.structured_forms import PROMPTS, WINDOWS, forms

CLIENT = Path(__file__).parents[2] / "proxy" / "client"
SCHEMA = json.loads((CLIENT / "schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def is_read(section: object) -> bool:
    try:
        found = split(json.dumps(section).encode())
        read_wish(found.prompts or b"null")
        read_parts(found.window or b"null")
        read_form(found.rest)
    except InvalidRequest:
        return False
    return True


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


OTHERS = st.fixed_dictionaries(
    {}, optional={"prompts": PROMPTS, "window": WINDOWS, "return_usage": st.booleans(), "return_break": st.booleans()}
)


@given(forms(), OTHERS)
def test_a_valid_section_passes_the_schema_and_the_reader(form: dict[str, Any], others: dict[str, Any]) -> None:
    form |= others
    VALIDATOR.validate(form)
    assert is_read(form)


NAMES = st.sampled_from(
    ["path", "content", "digest", "selected", "block", "url", "files", "review", "panels", "tree", "commits", "x"]
    + ["id", "kind", "header", "index", "status", "tl_dr", "messages_meta", "detach", "keep_tokens", "compaction"]
)
VALUES = st.sampled_from(
    [None, True, False, 0, 1.5, "", "x", "L4", "a" * 64, "A" * 64, "a\nb", "a\0", "p" * 4097, [], ["a"], [1], [[]], {}]
) | st.sampled_from(
    [{"path": "a"}, {"path": "a", "selected": True}, {"digest": "a" * 64}, ["L0"], [None], {"a": 1}]
    + [{"id": "a", "content": "x"}, {"id": "footer", "content": ""}, {"id": "history_1", "content": ""}, -1, 1]
    + [{"persona": "a"}, {"persona": "a b"}, {"context": {"time": {}}}, {"context": {"custom": 1}}, {"prefix": "a"}]
    + [
        {"extra": [{"id": "a", "position": "system", "text": "x"}]},
        {"extra": [{"id": "a", "position": "x", "text": ""}]},
    ]
    + [{"virtual_files": [{"id": "a", "content": ""}]}, {"virtual_files": [{"id": "", "content": ""}]}]
    + [{"profile": 1}]
    + [{"index": 0, "status": "summarized"}, {"index": 1, "status": "deleted", "tl_dr": "x"}, {"chunk_tokens": 0}]
)


def places(value: Any) -> list[Any]:
    """Each object and array within the value, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, (dict, list)) else []
    return own + [place for each in inner for place in places(each)]


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A section in which one to three members were put in, replaced or taken out."""
    section: dict[str, Any] = copy.deepcopy(draw(forms()) | draw(OTHERS))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(section)))
        value = copy.deepcopy(draw(VALUES))
        if isinstance(place, list):
            place.insert(draw(st.integers(0, len(place))), value)
        elif place and draw(st.booleans()):
            name = draw(st.sampled_from(sorted(place)))
            if draw(st.booleans()):
                del place[name]
            else:
                place[name] = value
        else:
            place[draw(NAMES)] = value
    return section


@given(damaged())
def test_what_the_schema_refuses_the_reader_refuses(section: dict[str, Any]) -> None:
    if not VALIDATOR.is_valid(section):
        assert not is_read(section)


@pytest.mark.parametrize("name", sorted(SCHEMA["properties"]))
@given(value=VALUES)
def test_each_field_of_the_schema_is_one_of_the_reader(name: str, value: object) -> None:
    if not VALIDATOR.is_valid({name: value}):
        assert not is_read({name: value})
    assert is_read({name: None})


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("files", {"path": "{}"}), ("tree", "{}"), ("urls", {"url": "{}", "content": ""}), ("images", "x:{}"),
        ("panels", {"id": "P{}", "content": ""}), ("messages_meta", {"index": "{}", "status": "active"}),
    ],
)  # fmt: skip
def test_bounds_are_the_same(name: str, element: Any) -> None:
    schema = SCHEMA["properties"][name]
    most = schema.get("maxItems") or SCHEMA["$defs"]["paths"]["maxItems"]
    text = json.dumps(element).replace('"index": "{}"', '"index": {}')
    elements = [json.loads(text.replace("{}", str(number))) for number in range(most + 1)]
    assert is_read({name: elements[:most]})
    assert not is_read({name: elements})


def documentation() -> str:
    return "\n".join(page.read_text("utf-8") for page in sorted(CLIENT.glob("*.md")))


def examples() -> list[str]:
    """The requests of the pages: what is sent by each ``curl``."""
    return re.findall(r"<<'JSON'\n(.*?)\nJSON\n", documentation(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(examples())))
def test_examples_of_the_documentation_are_valid(number: int) -> None:
    section = json.loads(examples()[number])["stratiform"]
    VALIDATOR.validate(section)
    assert is_read(section)


def test_the_documentation_has_examples_and_names_every_field() -> None:
    text = documentation()
    assert len(examples()) >= 2
    assert [name for name in SCHEMA["properties"] if f"`{name}`" not in text] == []
