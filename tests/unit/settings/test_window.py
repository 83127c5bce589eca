"""The section ``stratiform.window``: what each mistake is called."""

from pathlib import Path

import pytest

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
