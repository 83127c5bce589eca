"""The section ``stratiform.window``: what each mistake is called."""

from pathlib import Path

import pytest

from proxy.core.window.profile import BUILT_IN, Capability, CapabilityProfile, OverBudget, PartCaps
from proxy.settings import ConfigError, Environment, Settings, load
from tests.unit.settings.test_prompts import MODEL, NO_KEY_ID


def read(folder: Path, section: str, more: str = "", **variables: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(f"{MODEL}{more}stratiform: {{window: {section}}}\n")
    return load(path, environment=Environment({"HOME": str(folder), **variables}))


def problems(folder: Path, section: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, section, **variables)
    return list(caught.value.problems)


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
def test_a_mistake_is_named_by_its_path(tmp_path: Path, section: str, message: str) -> None:
    assert problems(tmp_path, section) == [f"stratiform.window{message}"]


def test_names_of_profiles_are_taken_wherever_they_stand(tmp_path: Path) -> None:
    text = (
        "{profile: mine, models: {m: ''}, teams: {t: chat}, keys: {key-123456789abc: edit}, "
        "allowed: ['*', mine, 'x*'], profiles: {mine: {capability: chat}}}"
    )
    found = read(tmp_path, text).stratiform.window

    assert (found.profile, found.models, found.teams) == ("mine", {"m": ""}, {"t": "chat"})
    assert (found.keys, found.allowed) == ({"key-123456789abc": "edit"}, ["*", "mine", "x*"])


def test_a_window_of_one_token_more_than_output_and_margin_is_enough(tmp_path: Path) -> None:
    assert read(tmp_path, "{profiles: {completion: {window_tokens: 513}}}").profiles["completion"].window_tokens == 513


def test_without_a_word_the_profiles_are_the_built_in_ones(tmp_path: Path) -> None:
    assert read(tmp_path, "{}").profiles == BUILT_IN


def test_a_file_changes_single_values_and_no_other_profile(tmp_path: Path) -> None:
    found = read(tmp_path, "{profiles: {completion: {window_tokens: 8192, caps: {prefix: 9, suffix: null}}}}").profiles

    assert (found["completion"].window_tokens, found["completion"].output_tokens) == (8192, 256)
    assert found["completion"].caps == PartCaps(system=1024, prefix=9, suffix=None)
    assert {name: found[name] for name in ("edit", "chat", "chat_ops")} == {
        name: BUILT_IN[name] for name in ("edit", "chat", "chat_ops")
    }


def test_null_is_the_models_window_and_no_bound_of_messages(tmp_path: Path) -> None:
    text = "{profiles: {completion: {window_tokens: null, output_tokens: null}, chat: {tail_messages: null}}}"
    found = read(tmp_path, text).profiles

    assert (found["completion"].window_tokens, found["completion"].output_tokens) == (None, 256)
    assert found["chat"].tail_messages is None


def test_a_profile_of_ones_own_has_the_defaults_and_nothing_of_another_one(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "{profiles: {mine: {capability: completion, template: t, over_budget: retry}, chat: {margin_tokens: 1}}}",
    )

    assert found.profiles["mine"] == CapabilityProfile(
        "mine", Capability.COMPLETION, template="t", over_budget=OverBudget.RETRY
    )


def test_the_environment_wins_over_the_file_and_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    found = read(
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
    found = read(tmp_path, "{}", more="environment_variables: {STRATIFORM_EDIT_OUTPUT_TOKENS: 99}\n")

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
    assert problems(tmp_path, "{}", **{variable: value}) == [message]


@pytest.mark.parametrize(
    "variable", ["STRATIFORM_MASTER_KEY", "STRATIFORM_CHAT_URL", "STRATIFORM_WINDOW_TOKENS", "OTHER"]
)
def test_other_variables_are_left_alone(tmp_path: Path, variable: str) -> None:
    assert read(tmp_path, "{}", **{variable: "x"}).profiles == BUILT_IN


def test_two_profiles_do_not_share_variables(tmp_path: Path) -> None:
    assert problems(tmp_path, "{profiles: {chat-ops: {capability: chat}}}") == [
        "stratiform.window.profiles.chat-ops: has the variables of `chat_ops` (STRATIFORM_CHAT_OPS_...); give one of "
        "them another name"
    ]
