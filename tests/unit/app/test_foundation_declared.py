"""From the sections ``prompts`` and ``window`` to their rules."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.app import factories, foundation
from proxy.app.composition import ConfigSource, LazyRegistry, Reload
from proxy.app.settings import ConfigError, Environment, Settings, load
from proxy.engine.telemetry.metrics import Metrics
from proxy.hookspecs import build_plugin_manager
from proxy.kit.tasks import Aside
from proxy.models.deployments import ModelTable
from proxy.prompts import Allowed, OnFailure, PromptLayer, PromptRules, PromptTerms
from proxy.prompts.window import BUILT_IN, WindowRules
from proxy.services.prompting import PromptComposer, PromptingRules
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Directory

MODELS = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m, api_base: "http://localhost:9/v1"}}
  - {model_name: "openai/*", litellm_params: {model: "openai/*", api_base: "http://localhost:9/v1"}}
router_settings: {model_group_alias: {best: m}}
"""


def read(folder: Path, section: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"{MODELS}stratiform: {section}\n")
    return load(path, environment=Environment({"HOME": str(folder)}))


def table(settings: Settings) -> ModelTable:
    return factories.model_table(settings, factories.price_map(settings))


def test_without_a_section_nobody_gets_anything(tmp_path: Path) -> None:
    found = read(tmp_path, "{}")

    assert foundation.rules_of(found).prompts.is_empty
    assert foundation.rules_of(found).windows.is_empty


def test_every_key_of_a_level_arrives(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """{prompts: {teams: {t: {use: [a, "b*"], persona: p, profile: q, override: o, tools: true, plugins: true,
        agents: true, context: {mission: {n: [1, null]}}, strict: true, on_failure: send_without,
        allowed: {override: true, extras: true, flags: true, personas: [x], profiles: [y], context: [memory]}}}}}""",
    )

    assert foundation.rules_of(found).prompts.terms_for("m", "t", "") == PromptTerms(
        use=("a", "b*"), persona="p", profile="q", override="o", tools=True, plugins=True, agents=True,
        context={"mission": {"n": [1, None]}}, strict=True, on_failure=OnFailure.SEND_WITHOUT,
        allowed=Allowed(True, True, True, ("x",), ("y",), frozenset({"memory"})),
    )  # fmt: skip


def test_levels_by_model_team_and_key_arrive(tmp_path: Path) -> None:
    section = """{prompts: {use: [all], persona: all, profile: all, models: {best: {tools: true}},
        teams: {red: {profile: red}}, keys: {key-123456789abc: {persona: "", allowed: {}}}, allowed: {extras: true}}}"""
    settings = read(tmp_path, section)
    rules = foundation.rules_of(settings, table(settings).spellings).prompts

    found = rules.terms_for("best", "red", "key-123456789abc")

    assert (found.use, found.persona, found.profile, found.tools) == (("all",), "", "red", True)
    assert (found.allowed.extras, rules.terms_for("m", "", "").allowed.extras) == (False, True)
    assert not rules.terms_for("m", "", "").tools, "an alias has prompts of its own"


@pytest.mark.parametrize("name", ["gpt-5", "openai/gpt-5"])
@pytest.mark.parametrize("configured", ["gpt-5", "openai/gpt-5", "openai/*", "*gpt*"])
def test_no_spelling_of_a_model_sheds_its_prompts_or_its_window(tmp_path: Path, name: str, configured: str) -> None:
    settings = read(tmp_path, f'{{prompts: {{models: {{"{configured}": {{override: rules}}}}}}, '
                    f'window: {{models: {{"{configured}": edit}}}}}}')  # fmt: skip
    names_of = table(settings).spellings

    assert foundation.rules_of(settings, names_of).prompts.terms_for(name, "", "").override == "rules"
    profile = foundation.rules_of(settings, names_of).windows.profile_for(name, "", "")
    assert profile is not None
    assert profile.name == "edit"
    assert foundation.rules_of(settings, names_of).prompts.terms_for("m", "", "").override == ""


def test_an_alias_has_the_prompts_of_its_model(tmp_path: Path) -> None:
    settings = read(tmp_path, "{prompts: {models: {m: {override: rules}}}}")

    assert (
        foundation.rules_of(settings, table(settings).spellings).prompts.terms_for("best", "", "").override == "rules"
    )


def test_window_rules_have_the_profiles_of_file_and_environment(tmp_path: Path) -> None:
    settings = read(tmp_path, "{window: {profile: mine, allowed: [edit], profiles: {mine: {capability: chat}}}}")

    found = foundation.rules_of(settings).windows

    assert found.profile_for("m", "", "") == settings.profiles["mine"]
    assert found.profile_for("m", "", "", "edit") == settings.profiles["edit"]


@pytest.mark.parametrize(
    ("section", "may_compose"),
    [
        ("{}", False),
        ("{shipped: false, look_s: 5, folders: [x]}", False),
        ("{use: [], tools: false, override: ''}", False),
        ("{use: [a]}", True),
        ("{override: a}", True),
        ("{persona: a}", True),
        ("{allowed: {extras: true}}", True),
        ("{teams: {t: {}}}", True),
    ],
)
def test_the_rules_compose_where_some_request_may_get_a_text(tmp_path: Path, section: str, may_compose: bool) -> None:
    found = read(tmp_path, f"{{prompts: {section}}}")

    assert foundation.rules_of(found).may_compose is may_compose


def test_places_that_name_prompts_are_found_with_their_paths(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "{prompts: {use: [a], teams: {t: {use: ['b*'], persona: p}}, keys: {key-123456789abc: {persona: ''}}}, "
        "window: {profiles: {chat: {template: c}}}}",
    )

    assert list(foundation.named_prompts(settings)) == [
        ("stratiform.prompts.use[0]", "a"),
        ("stratiform.prompts.teams.t.use[0]", "b*"),
        ("stratiform.prompts.teams.t.persona", "persona:p"),
        ("stratiform.window.profiles.chat.template", "c"),
    ]


def test_a_prompt_that_is_named_and_not_there_is_told(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "{prompts: {use: [system, sytem, 'house-*', 'x*', sk-SECRET], teams: {t: {persona: revewer}}}, "
        "window: {profiles: {chat: {template: lost}}}}",
    )

    assert list(foundation.missing_prompts(settings, ["system", "house-rules", "persona:reviewer"])) == [
        "stratiform.prompts.use[1]: there is no prompt `sytem`; did you mean `system`?",
        "stratiform.prompts.use[3]: there is no prompt `x*`",
        "stratiform.prompts.use[4]: there is no prompt `sk-...`",
        "stratiform.prompts.teams.t.persona: there is no prompt `persona:revewer`; did you mean `persona:reviewer`?",
        "stratiform.window.profiles.chat.template: there is no prompt `lost`",
    ]
    assert list(foundation.missing_prompts(read(tmp_path, "{}"), [])) == []


def test_a_reload_puts_new_rules_into_force_and_names_what_waits_for_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read(tmp_path, "{store: memory, prompts: {use: [old]}}")
    models, prices = table(settings), factories.price_map(settings)
    directory = Directory(foundation.declared(settings), MemoryStore())
    said = "{use: [new], look_s: 5, shipped: false, folders: [f], models: {m: {tools: true}}}"
    new = f"{{store: memory, prompts: {said}, window: {{profile: chat}}}}"
    source = ConfigSource(settings, lambda: read(tmp_path, new))
    prompts = LazyRegistry(settings, build_plugin_manager(), Metrics())
    composer = PromptComposer(foundation.rules_of(settings), prompts.snapshot, Metrics(), Aside())

    with caplog.at_level(logging.WARNING, "stratiform"):
        assert asyncio.run(Reload(models, prices, directory, composer, prompts).run(source))

    assert composer.rules.prompts.terms_for("best", "", "").use == ("new",)
    assert composer.rules.prompts.terms_for("best", "", "").tools
    profile = composer.rules.windows.profile_for("best", "", "")
    assert profile is not None
    assert profile.name == "chat"
    waits = "has changed: the change takes effect when the proxy is started again"
    assert [record.getMessage() for record in caplog.records] == [
        *(f"stratiform.prompts.{name} {waits}" for name in ("folders", "shipped", "look_s")),
        "stratiform.prompts.use[0]: there is no prompt `new`",
    ]


def test_a_reload_whose_prompts_cannot_be_read_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = "shipped: false, folders: [gone]"
    settings = read(tmp_path, f"{{store: memory, prompts: {{{folders}}}}}")
    models, prices = table(settings), factories.price_map(settings)
    directory = Directory(foundation.declared(settings), MemoryStore())
    before = foundation.rules_of(settings)
    new = f"{{store: memory, teams: [{{name: red, keys: [k]}}], prompts: {{{folders}, use: [own]}}}}"
    source = ConfigSource(settings, lambda: read(tmp_path, new))
    prompts = LazyRegistry(settings, build_plugin_manager(), Metrics())
    composer = PromptComposer(before, prompts.snapshot, Metrics(), Aside())

    assert not asyncio.run(Reload(models, prices, directory, composer, prompts).run(source))

    assert composer.rules is before
    assert "red" not in directory.snapshot.teams
    assert any("the configuration is not reloaded: " in record.getMessage() for record in caplog.records)


RULES = PromptingRules(PromptRules(PromptTerms(use=("*",))))
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


async def test_what_cannot_be_read_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(TEXT.format(id="a", text="{{ nothing"))
    prompts, settings = registry(tmp_path, Looks())
    with pytest.raises(ConfigError) as found:
        await prompts.open(settings, RULES)
    assert "a.md" in found.value.problems[0]


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
    assert PromptingRules(prompts, windows).may_compose is expected
