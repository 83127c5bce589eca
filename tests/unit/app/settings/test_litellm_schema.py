"""Every number of a configuration is finite and no switch, and routing is read as LiteLLM writes it."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from proxy.app import factories
from proxy.app.settings import ConfigError, Environment, FailureRules, Settings, load
from proxy.app.settings.litellm_schema import ConfigSection
from proxy.app.settings.schema import ConfigFile
from proxy.kit.resilience import BreakerPolicy, RetryPolicy

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
    assert all(issubclass(section, ConfigSection) for section in SECTIONS)
    assert len(COUNTS) > 60


MODELS = """
model_list:
  - {model_name: m, litellm_params: {model: openai/a, rpm: 60}}
  - {model_name: m, litellm_params: {model: openai/b, rpm: 20, order: 1}}
  - {model_name: m, litellm_params: {model: openai/c}}
  - {model_name: "w-*", litellm_params: {model: "openai/*"}}
  - {model_name: n, litellm_params: {model: openai/d}}
"""


def settings(text: str, tmp_path: Path, **variables: str) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(MODELS + text)
    return load(path, environment=Environment(variables))


def test_the_defaults_are_litellms(tmp_path: Path) -> None:
    assert settings("", tmp_path).routing == FailureRules(RetryPolicy(2), BreakerPolicy(3, 5.0), {}, {}, False)


def test_router_settings_win_over_litellm_settings(tmp_path: Path) -> None:
    found = settings(
        """
router_settings: {num_retries: 0, retry_after: 1.5, cooldown_time: 30, disable_cooldowns: true}
litellm_settings: {num_retries: os.environ/RETRIES, allowed_fails: 9, fallbacks: [{m: [n]}, {m: [w-1]}, {n: [m]}]}
""",
        tmp_path,
        RETRIES="5",
    )
    expected = {"m": ("n", "w-1"), "n": ("m",)}
    at = "litellm_settings.fallbacks"
    targets = ((f"{at}[0].m[0]", "n"), (f"{at}[1].m[0]", "w-1"), (f"{at}[2].n[0]", "m"))
    assert found.routing == FailureRules(RetryPolicy(0, least_wait_s=1.5), None, expected, targets=targets)
    assert [one.path for one in found.unused if not one.path.startswith("model_list")] == []


def test_default_fallbacks_stand_in_for_any_name(tmp_path: Path) -> None:
    found = settings("router_settings: {fallbacks: [{m: [n]}], default_fallbacks: [w-2]}", tmp_path)
    assert found.routing.fallbacks == {"m": ("n",), "*": ("w-2",)}
    table = factories.model_table(found, factories.price_map(found))
    assert [[d.id for d in level] for level in table.levels("m")] == [["m#1", "m#3"], ["m#2"], ["n"]]
    assert [[d.id for d in level] for level in table.levels("n")] == [["n"], ["w-2"]]


def test_context_window_fallbacks_are_kept_apart_from_the_others(tmp_path: Path) -> None:
    found = settings(
        """
router_settings: {enable_pre_call_checks: true, fallbacks: [{m: [n]}]}
litellm_settings: {context_window_fallbacks: [{m: [w-1]}, {m: [n]}]}
""",
        tmp_path,
    )
    assert found.routing.context_window_fallbacks == {"m": ("w-1", "n")}
    assert found.routing.checks_windows
    assert [one.path for one in found.unused if not one.path.startswith("model_list")] == []
    table = factories.model_table(found, factories.price_map(found))
    assert [[d.id for d in level] for level in table.wider("m")] == [["w-1"], ["n"]]
    assert table.wider("n") == ()


def test_router_settings_win_where_both_have_context_window_fallbacks(tmp_path: Path) -> None:
    found = settings(
        """
router_settings: {context_window_fallbacks: [{m: [n]}]}
litellm_settings: {context_window_fallbacks: [{m: [w-1]}]}
""",
        tmp_path,
    )
    assert found.routing.context_window_fallbacks == {"m": ("n",)}
    assert not found.routing.checks_windows


@pytest.mark.parametrize("value", ["[[m]]", "{m: [n]}", "[{m: n}]", "3"])
def test_context_window_fallbacks_of_another_form_are_a_mistake(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(f"router_settings: {{context_window_fallbacks: {value}}}", tmp_path)
    assert caught.value.problems[0].startswith("router_settings.context_window_fallbacks")


def test_a_context_window_fallback_must_exist(tmp_path: Path) -> None:
    found = settings("router_settings: {context_window_fallbacks: [{m: [gone]}]}", tmp_path)
    _, (problem,) = factories.entries_with(found)
    assert problem == "router_settings.context_window_fallbacks[0].m[0]: leads to `gone`, which is not in model_list"


def test_a_models_window_is_the_configurations_or_the_price_maps(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        """
model_list:
  - {model_name: told, litellm_params: {model: openai/gpt-4o}, model_info: {max_input_tokens: 5}}
  - {model_name: known, litellm_params: {model: openai/gpt-4o}}
  - {model_name: unknown, litellm_params: {model: openai/nobody-knows-it}}
  - {model_name: told-alone, litellm_params: {model: openai/nobody-knows-it}, model_info: {max_input_tokens: 7}}
router_settings: {enable_pre_call_checks: true}
"""
    )
    found = load(path, environment=Environment({}))
    prices = factories.price_map(found)
    table, window_of = factories.model_table(found, prices), factories.request_rules(found).window_of
    assert window_of is not None
    assert [window_of(table.resolve(name)) for name in ("told", "known", "unknown", "told-alone")] == [
        5,
        128000,
        None,
        7,
    ]


def test_a_fallback_must_exist(tmp_path: Path) -> None:
    found = settings("router_settings: {fallbacks: [{m: [gone]}]}", tmp_path)
    _, problems = factories.entries_with(found)
    assert problems == ["router_settings.fallbacks[0].m[0]: leads to `gone`, which is not in model_list"]


def test_weights_are_a_groups_own(tmp_path: Path) -> None:
    found, _ = factories.entries_with(settings("", tmp_path))
    assert [entry.weight for entry in found] == [60.0, 20.0, 0.0, 1.0, 1.0]
    assert [entry.order for entry in found] == [0, 1, 0, 0, 0]
    assert all("rpm" not in entry.params for entry in found)


def test_what_is_not_honoured_is_said(tmp_path: Path) -> None:
    found = settings(
        "router_settings: {routing_strategy: latency-based-routing, retry_policy: {a: 1, BadRequestErrorRetries: 1}}",
        tmp_path,
    )
    assert [one.path for one in found.unused if not one.path.startswith("model_list")] == [
        "router_settings.routing_strategy",
        "router_settings.retry_policy.a",
        "router_settings.retry_policy.BadRequestErrorRetries",
    ]
