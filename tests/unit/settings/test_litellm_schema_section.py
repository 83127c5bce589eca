"""Every number of a configuration is finite, and no switch is taken for a number."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from proxy.settings import ConfigError, Environment, load
from proxy.settings.litellm_schema import Section
from proxy.settings.schema import ConfigFile

_NUMBERS = (int, float)


def parts(annotation: Any) -> Iterator[Any]:
    """The members of an annotation's unions, lists and mappings."""
    match get_origin(annotation):
        case None:
            yield annotation
        case origin if origin in (Union, UnionType, list, dict):
            for member in get_args(annotation):
                yield from parts(member)
        case origin if origin is Annotated:
            yield from parts(get_args(annotation)[0])


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from sections(part)


SECTIONS = list(dict.fromkeys(sections(ConfigFile)))
COUNTS = [
    (section, name)
    for section in SECTIONS
    for name, field in section.model_fields.items()
    if set(parts(field.annotation)) & set(_NUMBERS) and bool not in parts(field.annotation)
]


@pytest.mark.parametrize(("section", "name"), COUNTS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("value", [True, False, math.inf, -math.inf, math.nan])
def test_a_number_is_finite_and_no_switch(section: type[BaseModel], name: str, value: object) -> None:
    of_teams = get_origin(section.model_fields[name].annotation) is dict
    with pytest.raises(ValidationError) as caught:
        section.model_validate({name: {"backend": value} if of_teams else value})
    assert name in [problem["loc"][0] for problem in caught.value.errors() if problem["loc"]]


def test_every_section_follows_the_rule() -> None:
    assert all(issubclass(section, Section) for section in SECTIONS)
    assert len(COUNTS) > 60


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("{holdout: yes}", "stratiform.holdout"),
        ("{keep_alive: {teams: {backend: off}}}", "stratiform.keep_alive.teams"),
        ("{limits: {state_mib: .inf}}", "stratiform.limits.state_mib"),
        ("{limits: {state_mib: 1.0e+308}}", "stratiform.limits.state_mib"),
        ("{limits: {drain_s: 1.0e+308}}", "stratiform.limits.drain_s"),
    ],
)
def test_a_mistake_is_named_by_its_path(tmp_path: Path, section: str, path: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "model_list: [{model_name: m, litellm_params: {model: embedded/claude-sonnet-4-5}}]\n"
        f"stratiform: {section}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, environment=Environment({"HOME": str(tmp_path)}))
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == [path]
