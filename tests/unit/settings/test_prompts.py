"""The section ``stratiform.prompts``: what is right, and what each mistake is called."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.prompts.prompt import MOST_LEVELS, MOST_VALUES
from proxy.settings import ConfigError, Environment, Settings, load
from proxy.settings.prompts import Prompts

MODEL = "model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: 'http://localhost:9/v1'}}]\n"
NO_KEY_ID = "names of keys are their ids, as `stratiform keys list` shows them: key- and 12 letters or digits"
NO_JSON = "holds what JSON does not have; write names, dates and times in quotes, and whole characters"


def read(folder: Path, section: str, **variables: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"{MODEL}stratiform: {{prompts: {section}}}\n")
    return load(path, environment=Environment({"HOME": str(folder), **variables}))


def problems(folder: Path, section: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, section, **variables)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{use: system}", ".use: input should be a valid list"),
        ("{use: ['']}", ".use: must be names of 1 to 256 characters, with * for any text"),
        ("{use: [5]}", ".use[0]: input should be a valid string"),
        (r'{use: ["a\nb"]}', ".use: must be one line of at most 256 characters"),
        (r'{use: ["\ud83d"]}', ".use: holds half of a surrogate pair, which cannot be sent"),
        ("{personna: x}", ".personna: unknown key; did you mean `persona`?"),
        ("{persona: a b}", ".persona: string should match pattern '^(?:[A-Za-z0-9][A-Za-z0-9_.:/-]{0,118})?$'"),
        ("{override: 5}", ".override: input should be a valid string"),
        ("{tools: 3}", ".tools: input should be a valid boolean, unable to interpret input"),
        ("{on_failure: ignore}", ".on_failure: input should be 'refuse' or 'send_without'"),
        ("{look_s: 0}", ".look_s: input should be greater than or equal to 0.1"),
        ("{look_s: .inf}", ".look_s: input should be a finite number"),
        ("{folders: here}", ".folders: input should be a valid list"),
        ("{folders: ['']}", ".folders[0]: string should have at least 1 character"),
        ("{models: [m]}", ".models: input should be a valid dictionary"),
        ("{models: {m: null}}", ".models.m: input should be a valid dictionary or instance of PromptLevel"),
        ("{models: {m: {folders: [x]}}}", ".models.m.folders: unknown key; known are use, persona, profile, override, "
         "tools, plugins, agents, context, strict, on_failure, allowed"),
        ("{teams: {a b: {}}}", ".teams.a b: string should match pattern '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'"),
        ("{teams: {a: {alowed: {}}}}", ".teams.a.alowed: unknown key; did you mean `allowed`?"),
        ("{teams: {a: {allowed: {overide: true}}}}", ".teams.a.allowed.overide: unknown key; did you mean `override`?"),
        ("{keys: {key-123456789abc: {usee: [x]}}}", ".keys.key-123456789abc.usee: unknown key; did you mean `use`?"),
        ("{allowed: true}", ".allowed: input should be a valid dictionary or instance of AllowedPrompts"),
        ("{allowed: {context: [time]}}",
         ".allowed.context[0]: input should be 'mission', 'target', 'agent', 'memory', 'variables' or 'custom'"),
        ("{allowed: {personas: x}}", ".allowed.personas: input should be a valid list"),
        ("{context: {missoin: {}}}", ".context: has a root that there is not; did you mean `mission`?"),
        ("{context: {time: {}}}",
         ".context: has a root that there is not; there are mission, target, agent, memory, variables, custom"),
        ("{context: {mission: 5}}", ".context.mission: input should be a valid dictionary"),
        ("{context: {mission: {1: a}}}", ".context.mission[1]: input should be a valid string"),
        ("{context: {mission: {a: {1: a}}}}", f".context: {NO_JSON}"),
        ("{context: {mission: {a: 2026-01-01}}}", f".context: {NO_JSON}"),
        ("{context: {mission: {a: [.nan]}}}", f".context: {NO_JSON}"),
        ("{context: {mission: {a: -.inf}}}", f".context: {NO_JSON}"),
        ("{context: {mission: {a: 9223372036854775808}}}", ".context: holds a whole number of more than 64 bits"),
        (r'{context: {mission: {a: ["\ud83d"]}}}', f".context: {NO_JSON}"),
        (r'{context: {mission: {a: {"\ud83d": 1}}}}', f".context: {NO_JSON}"),
        ("{context: {mission: {a: os.environ/GONE}}}",
         ".context.mission.a: the environment variable GONE is not set"),
        ("5", ": input should be a valid dictionary or instance of Prompts"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_its_path(tmp_path: Path, section: str, message: str) -> None:
    assert problems(tmp_path, section) == [f"stratiform.prompts{message}"]


@pytest.mark.parametrize("section", ["{keys: {KEY: {usee: [x]}}}", "{keys: {KEY: {}}}", "{keys: {KEY: 5}}"])
@pytest.mark.parametrize("key", ["sk-1234567890abcdef", "a-key-of-ours", "key-123456789abc-more", "key-ABCDEF123456"])
def test_a_key_in_the_place_of_its_id_is_refused_and_not_shown(tmp_path: Path, section: str, key: str) -> None:
    assert problems(tmp_path, section.replace("KEY", key)) == [f"stratiform.prompts.keys: {NO_KEY_ID}"]


@pytest.mark.parametrize(
    "section",
    [
        "{keys: {sk-SECRET: {override: os.environ/GONE}}}",
        "{teams: {sk-SECRET: {usee: 1}}}",
        "{models: {sk-SECRET: {usee: 1}}}",
        "{keys: {sk-SECRET: {use: []}, sk-SECRET: {use: []}}}",
        "{context: {mission: {a: SECRET, b: .nan}}}",
        "{persona: 'sk- SECRET'}",
        "{use: [SECRET, 5]}",
        "{override: [SECRET]}",
        "{on_failure: SECRET}",
        "{context: {sk-SECRET: {}}}",
    ],
)
def test_no_value_and_no_key_stands_in_a_message(tmp_path: Path, section: str) -> None:
    assert not any("SECRET" in problem for problem in problems(tmp_path, section))


def test_texts_stand_in_no_repr(tmp_path: Path) -> None:
    found = read(tmp_path, "{override: SECRET, context: {memory: {a: SECRET}}, teams: {t: {override: SECRET}}}")

    assert "SECRET" not in repr(found.stratiform.prompts)
    assert found.stratiform.prompts.override == "SECRET"


def test_folders_are_relative_to_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, "{folders: [prompts, /srv/prompts]}")

    assert found.prompt_folders == [tmp_path / "prompts", Path("/srv/prompts")]


def test_values_come_from_the_environment_by_reference(tmp_path: Path) -> None:
    found = read(tmp_path, "{override: 'Be os.environ/HOW.'}", HOW="brief")

    assert found.stratiform.prompts.override == "Be brief."


def test_a_context_has_bounds() -> None:
    def context(value: object) -> Prompts:
        return Prompts.model_validate({"context": {"memory": {"a": value}}})

    deep: Any = 1
    for _ in range(MOST_LEVELS - 2):
        deep = [deep]
    assert context(deep).context == {"memory": {"a": deep}}
    with pytest.raises(ValueError, match="more than 16 levels"):
        context([[deep]])
    assert context([1] * (MOST_VALUES - 2)).context
    with pytest.raises(ValueError, match="more than 2000 values"):
        context([1] * (MOST_VALUES - 1))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(_JSON)
def test_every_json_value_can_be_context_and_stays_as_it_is(value: Any) -> None:
    assert Prompts.model_validate({"context": {"custom": {"a": value}}}).context == {"custom": {"a": value}}


@given(st.text("ab/.-*{}[]:\n", max_size=30))
def test_no_section_breaks_the_reader(text: str) -> None:
    for value in (text, {text: text}, [text]):
        try:
            Prompts.model_validate(yaml.safe_load(yaml.safe_dump({"use": value, "models": {text: {"use": [text]}}})))
        except ValueError:
            continue
