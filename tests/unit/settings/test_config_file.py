"""Every message names the path of the key; relative paths, includes, defaults."""

from pathlib import Path

import pytest

from proxy.core.profiles import PROFILES
from proxy.settings import ConfigError, Environment, Settings, load

MODEL = """
model_list:
  - model_name: m
    litellm_params: {model: openai/m, api_base: "http://localhost:9/v1"}
"""


def write(folder: Path, text: str, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, text: str, **variables: str) -> Settings:
    return load(write(folder, text), environment=Environment({"HOME": str(folder), **variables}))


def problems(folder: Path, text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, **variables)
    return list(caught.value.problems)


def ours(section: str) -> str:
    return f"{MODEL}stratiform: {section}\n"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{mod: tier}", "stratiform.mod: unknown key; did you mean `mode`?"),
        ("{holdout: 0.1}", "stratiform.holdout: unknown key; known are mode, policy, clock, host, port, log_level, "
         "limits, teams, budgets, store, prices"),
        ("{mode: teir}", "stratiform.mode: input should be 'passthrough', 'observe', 'mark' or 'tier'"),
        ("{policy: classical}", "stratiform.policy: input should be 'economic' or 'classic'"),
        ("{clock: wall}", "stratiform.clock: input should be 'system' or 'header'"),
        ("{port: 70000}", "stratiform.port: input should be less than or equal to 65535"),
        ("{limits: {max_body_mb: 1}}", "stratiform.limits.max_body_mb: unknown key; did you mean `max_body_mib`?"),
        ("{limits: {max_body_mib: 0}}", "stratiform.limits.max_body_mib: input should be greater than 0"),
        ("{teams: {}}", "stratiform.teams: input should be a valid list"),
        ("{teams: [{keys: [k]}]}", "stratiform.teams[0].name: is required"),
        ("{teams: [{name: a}]}", "stratiform.teams[0].keys: is required"),
        ("{teams: [{name: a, keys: []}]}",
         "stratiform.teams[0].keys: list should have at least 1 item after validation, not 0"),
        ("{teams: [{name: a, keys: ['']}]}", "stratiform.teams[0].keys: holds an empty key"),
        ("{teams: [{name: default, keys: [k]}]}",
         "stratiform.teams[0].name: `default` is the name for requests of no team; choose another"),
        ("{teams: [{name: a, keys: [k], budget: {usd: lots}}]}",
         "stratiform.teams[0].budget.usd: input should be a valid number, unable to parse string as a number"),
        ("{teams: [{name: a, keys: [k], budget: {usd: -1}}]}",
         "stratiform.teams[0].budget.usd: input should be greater than or equal to 0"),
        ("{teams: [{name: a, keys: [k], budget: {usd: .nan}}]}",
         "stratiform.teams[0].budget.usd: input should be a finite number"),
        ("{teams: [{name: a, keys: [k], budget: {eur: 1, usd: 1}}]}",
         "stratiform.teams[0].budget.eur: unknown key; known are usd, assumed_output_tokens"),
        ("{teams: [{name: a, keys: [k], budjet: {usd: 1}}]}",
         "stratiform.teams[0].budjet: unknown key; did you mean `budget`?"),
        ("{teams: [{name: a, keys: [k]}, {name: a, keys: [l]}]}",
         "stratiform.teams[1].name: another team has this name"),
        ("{teams: [{name: a, keys: [k]}, {name: b, keys: [j, k]}]}",
         "stratiform.teams[1].keys[1]: is the same key as stratiform.teams[0].keys[0]"),
        ("{budgets: {on_store_error: panic}}", "stratiform.budgets.on_store_error: input should be 'allow' or 'deny'"),
        ("{store: postgres}", "stratiform.store: must be memory or sqlite:PATH"),
        ("{store: 'sqlite:'}", "stratiform.store: must be memory or sqlite:PATH"),
        ("{prices: {m: {input_cost_per_token: 1}}}", "stratiform.prices.m.output_cost_per_token: is required"),
        ("{prices: {m: {input: 1, input_cost_per_token: 1, output_cost_per_token: 1}}}",
         "stratiform.prices.m.input: unknown key; known are input_cost_per_token, output_cost_per_token, "
         "cache_read_input_token_cost, cache_creation_input_token_cost, cache_creation_input_token_cost_above_1hr"),
        ("{host: os.environ/NO_SUCH_HOST}", "stratiform.host: the environment variable NO_SUCH_HOST is not set"),
        ("[]", "stratiform: input should be a valid dictionary or instance of Stratiform"),
    ],
)  # fmt: skip
def test_a_mistake_in_our_section_is_named_by_its_path(tmp_path: Path, section: str, message: str) -> None:
    assert problems(tmp_path, ours(section)) == [message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "model_list: is empty, and there is no --upstream: nothing to forward requests to"),
        ("model_list: [{litellm_params: {model: a/b}}]", "model_list[0].model_name: is required"),
        ("model_list: [{model_name: m}]", "model_list[0].litellm_params: is required"),
        ("model_list: [{model_name: m, litellm_params: {}}]", "model_list[0].litellm_params.model: is required"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, api_base: localhost}}]",
         "model_list[0].litellm_params.api_base: must be an http:// or https:// URL"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, api_key: ''}}]",
         "model_list[0].litellm_params.api_key: is empty; remove it to forward the client's own key, or set one"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, timeout: soon}}]",
         "model_list[0].litellm_params.timeout: input should be a valid number, unable to parse string as a number"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b}, model_info: {transport: htpp}}]",
         "model_list[0].model_info.transport: input should be 'http', 'litellm' or 'embedded'"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b}, model_info: {cache_profile: claude}}]",
         "model_list[0].model_info.cache_profile: must be one of " + ", ".join(PROFILES)),
        ("model_list: [{model_name: m, litellm_params: {model: a/b}, model_info: {mode: obsrve}}]",
         "model_list[0].model_info.mode: must be passthrough, observe, mark or tier "
         "(or one of LiteLLM's endpoint kinds)"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, litellm_credential_name: c}}]",
         "model_list[0].litellm_params.litellm_credential_name: no such entry in credential_list"),
        (MODEL + "stratifrom: {mode: mark}", "stratifrom: unknown section; did you mean `stratiform`?"),
        (MODEL + "general_setting: {}", "general_setting: unknown section; did you mean `general_settings`?"),
        (MODEL + "general_settings: {master_key: ''}",
         "general_settings.master_key: is empty; remove it to accept any key, or set one"),
        (MODEL + "general_settings: {master_key: k}\nstratiform: {teams: [{name: a, keys: [k]}]}",
         "stratiform.teams[0].keys[0]: is the same key as general_settings.master_key"),
        (MODEL + "router_settings: {model_group_alias: {a: [1]}}",
         "router_settings.model_group_alias.a: input should be a valid string"),
        (MODEL + "include: other.yaml", "include: must be a list of file names (in CONFIG)"),
    ],
)  # fmt: skip
def test_a_mistake_in_litellms_sections_is_named_by_its_path(tmp_path: Path, text: str, message: str) -> None:
    found = problems(tmp_path, text)
    assert found[0] == message.replace("CONFIG", str(tmp_path / "config.yaml"))


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = ours("{mode: x, port: y, teams: [{name: a, keys: [os.environ/NOT_SET]}]}")
    assert [problem.partition(":")[0] for problem in problems(tmp_path, text)] == [
        "stratiform.teams[0].keys[0]", "stratiform.mode", "stratiform.port",
    ]  # fmt: skip


def test_no_message_repeats_a_value(tmp_path: Path) -> None:
    secret = "sk-misplaced-secret"
    text = MODEL + f"general_settings: {{master_key: [{secret}]}}\n"
    text += f"stratiform: {{mode: {secret}, port: {secret}, store: {secret}, teams: [{{name: {secret} , keys: 1}}]}}\n"
    assert secret not in "\n".join(problems(tmp_path, text))


@pytest.mark.parametrize("secret", ["sk-in-the-broken-line"])
def test_broken_yaml_is_placed_and_not_quoted(tmp_path: Path, secret: str) -> None:
    (problem,) = problems(tmp_path, f"general_settings:\n  master_key: {secret}\n bad\n")
    assert problem.startswith(f"{tmp_path / 'config.yaml'}:3:2: is not valid YAML")
    assert secret not in problem


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert problems(tmp_path, "- a list")[0].endswith(
        "must be a mapping of sections (model_list, general_settings, stratiform, ...)"
    )
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\xfe")
    for path, complaint in (("gone.yaml", "cannot be read: No such file"), ("latin.yaml", "is not UTF-8 text")):
        with pytest.raises(ConfigError, match=complaint):
            load(tmp_path / path)


def test_included_files_join_lists_and_win_over_single_values(tmp_path: Path) -> None:
    write(tmp_path, "include: [more.yaml]\nmodel_list: [{model_name: n, litellm_params: {model: a/n}}]", "sub.yaml")
    write(tmp_path, "include: [sub.yaml, config.yaml]\nlitellm_settings: {request_timeout: 7}", "more.yaml")
    settings = read(tmp_path, MODEL + "include: [more.yaml]\nlitellm_settings: {request_timeout: 5}\n")
    assert [entry.model_name for entry in settings.models] == ["m", "n"]
    assert settings.timeout_s == 7


def test_a_credential_that_does_not_fit_is_reported_at_the_model(tmp_path: Path) -> None:
    text = """
credential_list: [{credential_name: c, credential_values: {api_base: nowhere}}]
model_list: [{model_name: m, litellm_params: {model: a/b, litellm_credential_name: c}}]
"""
    assert problems(tmp_path, text) == ["model_list[0].litellm_params.api_base: must be an http:// or https:// URL"]


def test_the_models_own_parameters_win_over_the_credential(tmp_path: Path) -> None:
    text = """
credential_list: [{credential_name: c, credential_values: {api_key: theirs, api_version: v}}]
model_list: [{model_name: m, litellm_params: {model: a/b, api_key: mine, litellm_credential_name: c}}]
"""
    params = read(tmp_path, text).models[0].litellm_params
    assert params.api_key is not None
    assert params.api_key.get_secret_value() == "mine"
    assert params.model_extra == {"api_version": "v"}


def test_sections_that_were_left_empty_are_fine(tmp_path: Path) -> None:
    settings = read(tmp_path, MODEL + "general_settings:\nlitellm_settings:\nstratiform:\n")
    assert settings.stratiform.mode == "tier"
    assert settings.master_key is None


def test_litellms_variable_for_the_master_key_counts(tmp_path: Path) -> None:
    settings = read(tmp_path, MODEL, LITELLM_MASTER_KEY="sk-env")
    assert settings.master_key is not None
    assert settings.master_key.get_secret_value() == "sk-env"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{}", None),
        ("{teams: [{name: a, keys: [k]}]}", "HOME/.local/state/stratiform/spend.sqlite"),
        ("{teams: [{name: a, keys: [k]}], store: memory}", None),
        ("{store: 'sqlite:spend.db'}", "HOME/spend.db"),
        ("{store: 'sqlite:/var/lib/x.sqlite'}", "/var/lib/x.sqlite"),
    ],
)
def test_where_spend_is_kept(tmp_path: Path, section: str, expected: str | None) -> None:
    path = read(tmp_path, ours(section)).store_path
    assert (path and str(path)) == (expected and expected.replace("HOME", str(tmp_path)))


def test_an_absolute_state_home_is_used_and_a_relative_one_is_not(tmp_path: Path) -> None:
    section = ours("{teams: [{name: a, keys: [k]}]}")
    assert read(tmp_path, section, XDG_STATE_HOME="/s").store_path == Path("/s/stratiform/spend.sqlite")
    assert read(tmp_path, section, XDG_STATE_HOME="s").store_path == tmp_path / ".local/state/stratiform/spend.sqlite"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
    ],
)
def test_an_upstream_url_may_come_with_or_without_v1(url: str, base: str) -> None:
    assert load(None, url, Environment({})).upstream == base


def test_without_a_file_the_environment_sets_no_master_key() -> None:
    assert load(None, "http://x", Environment({"LITELLM_MASTER_KEY": "k"})).master_key is None


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "https:///v1"])
def test_an_upstream_must_be_a_url(url: str) -> None:
    with pytest.raises(ConfigError, match="--upstream: must be an http:// or https:// URL"):
        load(None, url, Environment({}))


def test_something_must_be_forwarded_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --config FILE or --upstream URL"):
        load(None, "", Environment({}))
    with pytest.raises(ConfigError, match="has an entry for `\\*`"):
        load(write(tmp_path, MODEL.replace("model_name: m", "model_name: '*'")), "http://x", Environment({}))
    assert load(write(tmp_path, ""), "http://x", Environment({})).upstream == "http://x/v1"


def test_a_slip_in_model_info_is_a_warning_since_litellm_has_keys_of_its_own(tmp_path: Path) -> None:
    text = "model_list: [{model_name: m, litellm_params: {model: a/b}, rpm: 1, model_info: {transprot: http, id: x}}]"
    assert read(tmp_path, text).warnings == (
        "model_list[0].rpm: is not used by Stratiform",
        "model_list[0].model_info.transprot: is not used by Stratiform; did you mean `transport`?",
    )
