"""The pages in proxy/settings know every key of the strict section, and their examples are right."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from proxy.app import factories
from proxy.settings import Environment, load
from proxy.settings.schema import ModelInfo, Stratiform

PAGES = sorted((Path(__file__).resolve().parents[2] / "proxy" / "settings").glob("*.md"))
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES)
EXAMPLES = re.findall(r"```yaml\n((?:model_list|general_settings|stratiform|# ).*?)```", TEXT, re.DOTALL)
VARIABLES = {name: f"x-{name}" for name in re.findall(r"os\.environ/([A-Z_]+)", TEXT)}


def keys(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield name
            yield from keys(field.annotation)
    for argument in get_args(annotation):
        yield from keys(argument)


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from keys_of(item)
    if isinstance(value, list):
        for item in value:
            yield from keys_of(item)


def test_the_examples_have_every_key_of_our_section_and_say_the_defaults() -> None:
    parts = [yaml.safe_load(text)["stratiform"] for text in EXAMPLES if text.startswith("stratiform:")]
    section = {key: value for part in parts for key, value in part.items()}
    assert set(keys(Stratiform)) <= set(keys_of(parts))
    defaults = Stratiform()
    for key in ("mode", "policy", "host", "port", "log_level", "clock"):
        assert section[key] == getattr(defaults, key)
    assert section["limits"]["max_body_mib"] == defaults.limits.max_body_mib
    assert section["budgets"]["on_store_error"] == defaults.budgets.on_store_error
    assert section["budgets"]["on_unknown_price"] == defaults.budgets.on_unknown_price


def test_every_key_of_model_info_is_explained() -> None:
    assert [name for name in ModelInfo.model_fields if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_can_be_used(example: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(example)
    settings = load(path, "http://localhost:9", Environment(VARIABLES))
    factories.model_table(settings, factories.price_map(settings))
    assert settings.unused == ()
