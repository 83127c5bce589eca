"""The pages in proxy/app/settings know every key of the strict section."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from proxy.app.settings.litellm_schema import ModelInfo
from proxy.app.settings.schema import Stratiform

PAGES = sorted((Path(__file__).resolve().parents[2] / "proxy" / "app" / "settings").glob("*.md"))
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES)
EXAMPLES = re.findall(r"```yaml\n(stratiform:.*?)```", TEXT, re.DOTALL)


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


def other_than_default(section: BaseModel, example: dict[str, Any], path: str = "stratiform") -> Iterator[str]:
    """The values of an example that are not the defaults. Where the default is nothing, the example shows a value."""
    for key, value in example.items():
        default = getattr(section, key)
        if isinstance(default, BaseModel):
            yield from other_than_default(default, value, f"{path}.{key}")
        elif default not in (None, [], {}, value):
            yield f"{path}.{key}: {value}, by default {default}"


def test_the_examples_have_every_key_of_our_section_and_say_the_defaults() -> None:
    parts = [yaml.safe_load(text)["stratiform"] for text in EXAMPLES]
    assert set(keys(Stratiform)) <= set(keys_of(parts))
    assert [found for part in parts for found in other_than_default(Stratiform(), part)] == []


def test_every_key_of_model_info_is_explained() -> None:
    assert [name for name in ModelInfo.model_fields if f"`{name}`" not in TEXT] == []
