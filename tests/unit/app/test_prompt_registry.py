"""The registry of a running app is opened where prompts are composed, and followed until the app ends."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.app.prompt_registry import LazyRegistry
from proxy.core.prompts.terms import PromptLayer, PromptRules, PromptTerms
from proxy.core.window.profile import BUILT_IN, WindowRules
from proxy.plugins import build_plugin_manager
from proxy.prompting.rules import Rules
from proxy.settings import ConfigError, Environment, Settings, load
from proxy.telemetry.metrics import Metrics

MODELS = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m, api_base: "http://localhost:9/v1"}}
"""
RULES = Rules(PromptRules(PromptTerms(use=("*",))))
TEXT = "---\nid: {id}\nposition: system\n---\n{text}\n"


class Looks:
    """Waits until a test lets the next look happen."""

    def __init__(self) -> None:
        self.next = asyncio.Event()
        self.waits = 0

    async def __call__(self, seconds: float) -> None:
        self.waits += 1
        await self.next.wait()
        self.next.clear()


def registry(folder: Path, wait: Looks, metrics: Metrics | None = None) -> tuple[LazyRegistry, Settings]:
    path = folder / "config.yaml"
    path.write_text(f"{MODELS}stratiform: {{prompts: {{folders: [.], shipped: false}}}}")
    settings = load(path, environment=Environment({"HOME": str(folder)}))
    return LazyRegistry(settings, build_plugin_manager(), metrics or Metrics(), wait), settings


def test_what_cannot_be_read_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "a.md").write_text(TEXT.format(id="a", text="{{ nothing"))
        prompts, settings = registry(tmp_path, Looks())
        with pytest.raises(ConfigError) as found:
            await prompts.open(settings, RULES)
        assert "a.md" in found.value.problems[0]

    asyncio.run(run())


def test_files_are_followed_until_it_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        path, looks, metrics = tmp_path / "a.md", Looks(), Metrics()
        path.write_text(TEXT.format(id="a", text="One"))
        prompts, settings = registry(tmp_path, looks, metrics)
        await prompts.open(settings, RULES)
        before = prompts.snapshot()
        assert [prompt.text for prompt in before.prompts] == ["One"]
        await prompts.open(settings, RULES)
        assert prompts.snapshot() is before
        path.write_text(TEXT.format(id="a", text="Another"))
        while looks.waits < 2:
            looks.next.set()
            await asyncio.sleep(0)
        while prompts.snapshot() is before:
            await asyncio.sleep(0)
        assert [prompt.text for prompt in prompts.snapshot().prompts] == ["Another"]
        value = metrics.registry.get_sample_value("stratiform_prompt_set_version")
        assert value == int(prompts.snapshot().version, 16)
        await prompts.aclose()
        waits = looks.waits
        looks.next.set()
        await asyncio.sleep(0)
        assert looks.waits == waits

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("prompts", "windows", "expected"),
    [
        (PromptRules(), WindowRules(BUILT_IN), False),
        (PromptRules(PromptTerms(use=("a",))), WindowRules(), True),
        (PromptRules(teams={"red": PromptLayer(persona="a")}), WindowRules(), True),
        (PromptRules(), WindowRules({"chat": replace(BUILT_IN["chat"], template="a")}), False),
        (PromptRules(), WindowRules({"chat": replace(BUILT_IN["chat"], template="a")}, profile="chat"), True),
    ],
)
def test_the_registry_is_needed_where_a_request_may_be_composed(
    prompts: PromptRules, windows: WindowRules, expected: bool
) -> None:
    assert Rules(prompts, windows).may_compose is expected
