"""The names of providers come from the litellm that is installed."""

import asyncio
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from proxy.deployments.provider_names import provider_names
from proxy.upstream.litellm_.library import Library

SOURCE = """
class LlmProviders(str, Enum):
    OPENAI = "openai"
    WITH_2 = 'with-2'

class Other(str, Enum):
    NONE = "none"
"""


def test_names_of_code_and_of_data_are_known() -> None:
    found = provider_names()
    assert {"openai", "anthropic", "bedrock", "vertex_ai", "hosted_vllm", "ollama", "openrouter", "publicai"} <= found
    assert not {"antrhopic", "", "chat", "embedded"} & found


@pytest.mark.slow
def test_litellm_itself_knows_the_same_names() -> None:
    litellm = asyncio.run(Library().module())
    assert {str(getattr(name, "value", name)) for name in litellm.provider_list} <= provider_names()


@pytest.mark.parametrize(
    ("source", "data", "expected"),
    [
        (SOURCE, '{"described": {}}', {"openai", "with-2", "described"}),
        (SOURCE.replace("LlmProviders", "Renamed"), "{}", set()),
        (SOURCE, "[]", set()),
        (SOURCE, "{", set()),
        (None, "{}", set()),
    ],
)
def test_files_of_another_form_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, data: str, expected: set[str]
) -> None:
    for name, text in (("types/utils.py", source), ("llms/openai_like/providers.json", data)):
        (tmp_path / name).parent.mkdir(parents=True)
        if text is not None:
            (tmp_path / name).write_text(text)
    spec = ModuleSpec("litellm", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert provider_names() == expected


def test_without_litellm_no_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert provider_names() == frozenset()
