"""The sections ``stratiform.prompts`` and ``stratiform.window``: what is right, and what each mistake is called."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.settings import ConfigError, Environment, Settings, load
from proxy.app.settings.prompts import Prompts
from proxy.prompts import MOST_LEVELS, MOST_VALUES
from proxy.prompts.window import BUILT_IN, Capability, CapabilityProfile, OverBudget, PartCaps

MODEL = "model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: 'http://localhost:9/v1'}}]\n"
NO_KEY_ID = "names of keys are their ids, as `stratiform keys list` shows them: key- and 12 letters or digits"
NO_JSON = "holds what JSON does not have; write names, dates and times in quotes, and whole characters"


def read(folder: Path, section: str, more: str = "", *, name: str = "prompts", **variables: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"{MODEL}{more}stratiform: {{{name}: {section}}}\n")
    return load(path, environment=Environment({"HOME": str(folder), **variables}))


def problems(folder: Path, section: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, section, **variables)
    return list(caught.value.problems)


window, window_problems = partial(read, name="window"), partial(problems, name="window")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{use: system}", ".use: input should be a valid list"),
        ("{use: ['']}", ".use: must be names of 1 to 256 characters, with * for any text"),
        ("{use: [5]}", ".use[0]: input should be a valid string"),
        (r'{use: ["a\nb"]}', ".use: must be one line of at most 256 characters"),
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


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{profil: chat}", ".profil: unknown key; did you mean `profile`?"),
        ("{profile: chatt}", ".profile: is no profile; did you mean `chat`?"),
        ("{profile: SECRET}", ".profile: is no profile; there are chat, chat_ops, completion, edit"),
        ("{models: {m: chatt}}", ".models.m: is no profile; did you mean `chat`?"),
        ("{models: {m: null}}", ".models.m: input should be a valid string"),
        ("{teams: {t: {profile: chat}}}", ".teams.t: input should be a valid string"),
        ("{keys: {sk-SECRET: chat}}", f".keys: {NO_KEY_ID}"),
        ("{keys: {key-123456789abc: chatt}}", ".keys.key-123456789abc: is no profile; did you mean `chat`?"),
        ("{allowed: [chat, edt]}", ".allowed[1]: is no profile; did you mean `edit`?"),
        ("{allowed: chat}", ".allowed: input should be a valid list"),
        ("{profiles: {mine: {}}}", ".profiles.mine.capability: is required for a profile of your own"),
        ("{profile: mine, profiles: {mine: {}}}", ".profiles.mine.capability: is required for a profile of your own"),
        ("{profiles: {mine: {capability: chatty}}}",
         ".profiles.mine.capability: input should be 'completion', 'edit', 'chat' or 'chat_ops'"),
        ("{profiles: {chat: {windw_tokens: 5}}}",
         ".profiles.chat.windw_tokens: unknown key; did you mean `window_tokens`?"),
        ("{profiles: {chat: {caps: {sytem: 5}}}}", ".profiles.chat.caps.sytem: unknown key; did you mean `system`?"),
        ("{profiles: {chat: {caps: {system: -5}}}}",
         ".profiles.chat.caps.system: input should be greater than or equal to 0"),
        ("{profiles: {chat: {window_tokens: 0}}}",
         ".profiles.chat.window_tokens: input should be greater than or equal to 1"),
        ("{profiles: {chat: {tail_messages: 0}}}",
         ".profiles.chat.tail_messages: input should be greater than or equal to 1"),
        ("{profiles: {completion: {window_tokens: 512}}}",
         ".profiles.completion: the output and the margin leave nothing of the window for a prompt"),
        ("{profiles: {chat: {over_budget: ignore}}}",
         ".profiles.chat.over_budget: input should be 'empty', 'retry' or 'error'"),
        ("{profiles: {chat: {template: a b}}}",
         ".profiles.chat.template: string should match pattern '^(?:[A-Za-z0-9][A-Za-z0-9_.:/-]{0,118})?$'"),
        ("{profiles: {chat: null}}", ".profiles.chat: input should be a valid dictionary or instance of Profile"),
    ],
)  # fmt: skip
def test_a_mistake_about_windows_is_named_by_its_path(tmp_path: Path, section: str, message: str) -> None:
    assert window_problems(tmp_path, section) == [f"stratiform.window{message}"]


def test_names_of_profiles_are_taken_wherever_they_stand(tmp_path: Path) -> None:
    text = (
        "{profile: mine, models: {m: ''}, teams: {t: chat}, keys: {key-123456789abc: edit}, "
        "allowed: ['*', mine, 'x*'], profiles: {mine: {capability: chat}}}"
    )
    found = window(tmp_path, text).stratiform.window

    assert (found.profile, found.models, found.teams) == ("mine", {"m": ""}, {"t": "chat"})
    assert (found.keys, found.allowed) == ({"key-123456789abc": "edit"}, ["*", "mine", "x*"])


def test_a_window_of_one_token_more_than_output_and_margin_is_enough(tmp_path: Path) -> None:
    assert (
        window(tmp_path, "{profiles: {completion: {window_tokens: 513}}}").profiles["completion"].window_tokens == 513
    )


def test_without_a_word_the_profiles_are_the_built_in_ones(tmp_path: Path) -> None:
    assert window(tmp_path, "{}").profiles == BUILT_IN


def test_a_file_changes_single_values_and_no_other_profile(tmp_path: Path) -> None:
    found = window(
        tmp_path, "{profiles: {completion: {window_tokens: 8192, caps: {prefix: 9, suffix: null}}}}"
    ).profiles

    assert (found["completion"].window_tokens, found["completion"].output_tokens) == (8192, 256)
    assert found["completion"].caps == PartCaps(system=1024, prefix=9, suffix=None)
    assert {name: found[name] for name in ("edit", "chat", "chat_ops")} == {
        name: BUILT_IN[name] for name in ("edit", "chat", "chat_ops")
    }


def test_null_is_the_models_window_and_no_bound_of_messages(tmp_path: Path) -> None:
    text = "{profiles: {completion: {window_tokens: null, output_tokens: null}, chat: {tail_messages: null}}}"
    found = window(tmp_path, text).profiles

    assert (found["completion"].window_tokens, found["completion"].output_tokens) == (None, 256)
    assert found["chat"].tail_messages is None


def test_a_profile_of_ones_own_has_the_defaults_and_nothing_of_another_one(tmp_path: Path) -> None:
    found = window(
        tmp_path,
        "{profiles: {mine: {capability: completion, template: t, over_budget: retry}, chat: {margin_tokens: 1}}}",
    )

    assert found.profiles["mine"] == CapabilityProfile(
        "mine", Capability.COMPLETION, template="t", over_budget=OverBudget.RETRY
    )


def test_the_environment_wins_over_the_file_and_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    found = window(
        tmp_path,
        "{profiles: {completion: {window_tokens: 8192, margin_tokens: 7}, my-own: {capability: chat}}}",
        STRATIFORM_COMPLETION_WINDOW_TOKENS="16384",
        STRATIFORM_COMPLETION_MARGIN_TOKENS="",
        STRATIFORM_CHAT_WINDOW_TOKENS="5000",
        STRATIFORM_CHAT_OPS_CAPS_SYSTEM="16000",
        STRATIFORM_CHAT_TAIL_MESSAGES="null",
        STRATIFORM_EDIT_CAPS_SUFFIX="null",
        STRATIFORM_EDIT_MAY_SHORTEN_SYSTEM="true",
        STRATIFORM_EDIT_OVER_BUDGET="retry",
        STRATIFORM_EDIT_TEMPLATE="own/edit",
        STRATIFORM_MY_OWN_CAPABILITY="chat_ops",
    ).profiles

    assert (found["completion"].window_tokens, found["completion"].margin_tokens) == (16384, 7)
    assert (found["chat"].window_tokens, found["chat"].tail_messages, found["chat_ops"].window_tokens) == (
        5000,
        None,
        None,
    )
    assert (found["chat_ops"].caps.system, found["chat"].caps.system) == (16000, 8192)
    edit = found["edit"]
    assert (edit.caps.suffix, edit.caps.prefix, edit.may_shorten_system) == (None, 1024, True)
    assert (edit.over_budget, edit.template) == (OverBudget.RETRY, "own/edit")
    assert found["my-own"].capability is Capability.CHAT_OPS


def test_the_files_own_variables_count_as_well(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    found = window(tmp_path, "{}", more="environment_variables: {STRATIFORM_EDIT_OUTPUT_TOKENS: 99}\n")

    assert path.exists()
    assert found.profiles["edit"].output_tokens == 99


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("STRATIFORM_COMPLETION_WINDOW_TOKENS", "SECRET",
         "STRATIFORM_COMPLETION_WINDOW_TOKENS: input should be a valid integer, unable to parse string as an integer"),
        ("STRATIFORM_COMPLETION_WINDOW_TOKENS", "-1",
         "STRATIFORM_COMPLETION_WINDOW_TOKENS: input should be greater than or equal to 1"),
        ("STRATIFORM_COMPLETION_WINDOW_TOKENS", "9" * 5000,
         "STRATIFORM_COMPLETION_WINDOW_TOKENS: unable to parse input string as an integer, exceeded maximum size"),
        ("STRATIFORM_CHAT_CAPS_SYSTEM", "1e3",
         "STRATIFORM_CHAT_CAPS_SYSTEM: input should be a valid integer, unable to parse string as an integer"),
        ("STRATIFORM_CHAT_OVER_BUDGET", "SECRET",
         "STRATIFORM_CHAT_OVER_BUDGET: input should be 'empty', 'retry' or 'error'"),
        ("STRATIFORM_CHAT_CAPABILITY", "x",
         "STRATIFORM_CHAT_CAPABILITY: input should be 'completion', 'edit', 'chat' or 'chat_ops'"),
        ("STRATIFORM_COMPLETION_WINDOW_TOKENS", "512",
         "stratiform.window.profiles.completion: the output and the margin leave nothing of the window for a prompt"),
        ("STRATIFORM_CHAT_WINDOW_TOKEN", "1",
         "STRATIFORM_CHAT_WINDOW_TOKEN: is no variable of a profile; did you mean `STRATIFORM_CHAT_WINDOW_TOKENS`?"),
        ("STRATIFORM_CHAT_OPS_WINDOWS_TOKENS", "1",
         "STRATIFORM_CHAT_OPS_WINDOWS_TOKENS: is no variable of a profile; did you mean "
         "`STRATIFORM_CHAT_OPS_WINDOW_TOKENS`?"),
    ],
)  # fmt: skip
def test_a_mistake_of_a_variable_is_named_by_it_without_its_value(
    tmp_path: Path, variable: str, value: str, message: str
) -> None:
    assert window_problems(tmp_path, "{}", **{variable: value}) == [message]


@pytest.mark.parametrize(
    "variable", ["STRATIFORM_MASTER_KEY", "STRATIFORM_CHAT_URL", "STRATIFORM_WINDOW_TOKENS", "OTHER"]
)
def test_other_variables_are_left_alone(tmp_path: Path, variable: str) -> None:
    assert window(tmp_path, "{}", **{variable: "x"}).profiles == BUILT_IN


def test_two_profiles_do_not_share_variables(tmp_path: Path) -> None:
    assert window_problems(tmp_path, "{profiles: {chat-ops: {capability: chat}}}") == [
        "stratiform.window.profiles.chat-ops: has the variables of `chat_ops` (STRATIFORM_CHAT_OPS_...); give one of "
        "them another name"
    ]
