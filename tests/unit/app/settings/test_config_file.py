"""Every message names the path of the key; relative paths, includes, defaults."""

import hashlib
from pathlib import Path
from tempfile import gettempdir

import pytest

from proxy.app.settings import ConfigError, Environment, Settings, load
from proxy.app.settings.schema import PriceEntry
from proxy.kit.messages import own_folder
from proxy.protocol.prices import price_of
from proxy.protocol.providers import PROFILES

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
        ("{holdout: 1.5}", "stratiform.holdout: input should be less than or equal to 1"),
        ("{holdout: 0.1, clock: header}",
         "stratiform.holdout: is for live traffic; a replay (clock: header) has no controls"),
        ("{quux: 0.1}", "stratiform.quux: unknown key; known are mode, policy, holdout, routing_keys, steady_tools, "
         "ask_provider_for_cause, fingerprints, fingerprints_file, default_model, clock, host, port, open_to_network, "
         "log_level, log_format, request_id, otel, limits, "
         "client_keys, teams, budgets, "
         "workers, store, store_ca, spool, spool_max_mib, spool_fsync, spool_fallback, ledger, metrics, ui, objects, "
         "keep_alive, structured, prompts, window, callback, prices"),
        ("{mode: teir}", "stratiform.mode: input should be 'passthrough', 'observe', 'mark' or 'tier'"),
        ("{policy: classical}", "stratiform.policy: input should be 'economic' or 'classic'"),
        ("{clock: wall}", "stratiform.clock: input should be 'system' or 'header'"),
        ("{port: 70000}", "stratiform.port: input should be less than or equal to 65535"),
        ("{limits: {max_body_mb: 1}}", "stratiform.limits.max_body_mb: unknown key; did you mean `max_body_mib`?"),
        ("{limits: {max_body_mib: 0}}", "stratiform.limits.max_body_mib: input should be greater than 0"),
        ("{teams: {}}", "stratiform.teams: input should be a valid list"),
        ("{teams: [{keys: [k]}]}", "stratiform.teams[0].name: is required"),
        ("{teams: [{name: a, keys: ['']}]}", "stratiform.teams[0].keys[0]: is empty"),
        ("{teams: [{name: a, keys: [{key: ' '}]}]}", "stratiform.teams[0].keys[0]: is empty"),
        ("{teams: [{name: a, keys: [{user: u}]}]}",
         "stratiform.teams[0].keys[0]: must have either `key` or `sha256`"),
        ("{teams: [{name: a, keys: [{sha256: abc}]}]}",
         "stratiform.teams[0].keys[0].sha256: string should match pattern '^[0-9a-fA-F]{64}$'"),
        ("{teams: [{name: a, keys: [{key: k, moddels: [m]}]}]}",
         "stratiform.teams[0].keys[0].moddels: unknown key; did you mean `models`?"),
        ("{teams: [{name: a, keys: [{key: k, requests_per_minute: 0}]}]}",
         "stratiform.teams[0].keys[0].requests_per_minute: input should be greater than or equal to 1"),
        ("{teams: [{name: a b}]}",
         "stratiform.teams[0].name: string should match pattern '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'"),
        ("{client_keys: maybe}", "stratiform.client_keys: input should be 'refuse' or 'forward'"),
        ("{teams: [{name: default, keys: [k]}]}",
         "stratiform.teams[0].name: `default` is the name for requests of no team; choose another"),
        ("{teams: [{name: a, keys: [k], budget: {usd: lots}}]}",
         "stratiform.teams[0].budget.usd: input should be a valid number, unable to parse string as a number"),
        ("{teams: [{name: a, keys: [k], budget: {usd: -1}}]}",
         "stratiform.teams[0].budget.usd: must be between 0 and 9000000"),
        ("{teams: [{name: a, keys: [k], budget: {usd: .nan}}]}",
         "stratiform.teams[0].budget.usd: input should be a finite number"),
        ("{teams: [{name: a, keys: [k], budget: {subject: alice, usd: 1}}]}",
         "stratiform.teams[0].budget: has a subject, which holds for scope key, user or model: set the scope, too"),
        ("{budgets: {webhook: {url: 'https://h', secret: ' '}}}",
         "stratiform.budgets.webhook.secret: is empty; remove it to send notices unsigned, or set one"),
        ("{ui: {hosts: ['https://h/']}}", "stratiform.ui.hosts[0]: must be names of hosts such as proxy.example.com, "
         "without a scheme, a port or a path"),
        ("{store: 'sqlite:///spend.sqlite'}",
         "stratiform.store: is a path and no URL: write sqlite:PATH, as in sqlite:spend.sqlite"),
        ("{teams: [{name: a, keys: [k], budget: {eur: 1, usd: 1}}]}",
         "stratiform.teams[0].budget.eur: unknown key; known are name, scope, subject, usd, soft_usd, tokens, "
         "soft_tokens, window, timezone, assumed_output_tokens, webhook"),
        ("{teams: [{name: a, budgets: [{window: month}]}]}",
         "stratiform.teams[0].budgets[0]: must have usd, soft_usd, tokens or soft_tokens"),
        ("{teams: [{name: a, budgets: [{usd: 1, tokens: 1}]}]}",
         "stratiform.teams[0].budgets[0]: must be in USD or in tokens, not in both: make two budgets of it"),
        ("{teams: [{name: a, budgets: [{usd: 1, soft_usd: 2}]}]}",
         "stratiform.teams[0].budgets[0]: must have a soft limit that is no higher than the hard one"),
        ("{teams: [{name: a, budgets: [{usd: 1, window: yearly}]}]}",
         "stratiform.teams[0].budgets[0].window: must be total, hour, day, week, month, or rolling: and a length as in "
         "rolling:30d, rolling:12h"),
        ("{teams: [{name: a, budgets: [{usd: 1, timezone: Berlin}]}]}",
         "stratiform.teams[0].budgets[0].timezone: must be a time zone as in Europe/Berlin, or UTC"),
        ("{teams: [{name: a, budgets: [{usd: 1, webhook: 'ftp://x'}]}]}",
         "stratiform.teams[0].budgets[0].webhook: must be an http:// or https:// URL without a user name"),
        ("{teams: [{name: a, budget: {usd: 1}, budgets: [{usd: 2}]}]}",
         "stratiform.teams[0].budgets: two are called `total`; give one a `name`"),
        ("{budgets: {webhook: {url: x}}}",
         "stratiform.budgets.webhook.url: must be an http:// or https:// URL without a user name"),
        ("{teams: [{name: a, keys: [k], budjet: {usd: 1}}]}",
         "stratiform.teams[0].budjet: unknown key; did you mean `budget`?"),
        ("{teams: [{name: a, keys: [k]}, {name: a, keys: [l]}]}",
         "stratiform.teams[1].name: another team has this name"),
        ("{teams: [{name: a, keys: [k]}, {name: b, keys: [j, k]}]}",
         "stratiform.teams[1].keys[1]: is the same key as stratiform.teams[0].keys[0]"),
        ("{budgets: {on_store_error: panic}}", "stratiform.budgets.on_store_error: input should be 'allow' or 'deny'"),
        ("{store: postgres}",
         "stratiform.store: must be memory, sqlite:PATH, redis://HOST:PORT/DB or rediss://HOST:PORT/DB"),
        ("{store: 'sqlite:'}",
         "stratiform.store: must be memory, sqlite:PATH, redis://HOST:PORT/DB or rediss://HOST:PORT/DB"),
        ("{prices: {m: {input_cost_per_token: 1}}}",
         "stratiform.prices.m: input_cost_per_token and output_cost_per_token belong together"),
        ("{prices: {m: {}}}",
         "stratiform.prices.m: has no price: set input_cost_per_token and output_cost_per_token"),
        ("{prices: {m: {input: 1, input_cost_per_token: 1, output_cost_per_token: 1}}}",
         f"stratiform.prices.m.input: unknown key; known are {', '.join(PriceEntry.model_fields)}"),
        ("{holdout: yes}", "stratiform.holdout: must be a number, not true or false"),
        ("{keep_alive: {teams: {backend: off}}}",
         "stratiform.keep_alive.teams: must be a number, not true or false"),
        ("{limits: {state_mib: .inf}}", "stratiform.limits.state_mib: input should be a finite number"),
        ("{limits: {state_mib: 1.0e+308}}",
         "stratiform.limits.state_mib: input should be less than or equal to 16777216"),
        ("{limits: {drain_s: 1.0e+308}}", "stratiform.limits.drain_s: input should be less than or equal to 86400"),
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
        ("model_list: [{model_name: m, litellm_parms: {model: a/b}}]",
         "model_list[0].litellm_params: is required; did you write `litellm_parms` for it?"),
        ("model_list: [{model_name: m, litellm_params: {}}]", "model_list[0].litellm_params.model: is required"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, api_base: localhost}}]",
         "model_list[0].litellm_params.api_base: must be an http:// or https:// URL"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, api_key: ''}}]",
         "model_list[0].litellm_params.api_key: is empty; remove it to forward the client's own key, or set one"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, timeout: soon}}]",
         "model_list[0].litellm_params.timeout: input should be a valid number, unable to parse string as a number"),
        ("model_list: [{model_name: m, litellm_params: {model: a/b, input_cost_per_token: cheap}}]",
         "model_list[0].litellm_params: input_cost_per_token must be a number of USD, not below 0"),
        *((f"model_list: [{{model_name: m, litellm_params: {{model: m, {key}: 1}}}}]",
           "model_list[0].litellm_params: keys should be strings") for key in ("on", "null", "7")),
        ("model_list: [{model_name: m, litellm_params: {model: m, additional_drop_params: true}}]",
         "model_list[0].litellm_params: additional_drop_params must be a list of parameters' names"),
        ("model_list: [{model_name: m, litellm_params: {model: m, allowed_openai_params: seed}}]",
         "model_list[0].litellm_params: allowed_openai_params must be a list of parameters' names"),
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
        (MODEL + "router_settings: {num_retries: -1}",
         "router_settings.num_retries: input should be greater than or equal to 0"),
        (MODEL + "router_settings: {cooldown_time: soon}",
         "router_settings.cooldown_time: input should be a valid number, unable to parse string as a number"),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stratiform: {teams: [{name: a, keys: [k]}]}\nstratiform: {mode: mark}", ["stratiform|3 and 4"]),
        ("stratiform:\n  mode: mark\n  port: 1\n  mode: tier\n", ["stratiform.mode|4 and 6"]),
        ("stratiform:\n  teams:\n  - name: a\n    keys: [k]\n    keys: []\n", ["stratiform.teams[0].keys|6 and 7"]),
        ("x: {y: 1, y: 2, y: 3}\n'x': 2", ["x|3 and 4", "x.y|3 and 3 and 3"]),
        ("x: &a {y: &b {z: 1, z: 2}}\nw: *a\nv: {<<: *a, y: 1}", ["x.y.z|3 and 3"]),
        ("x: {<<: {y: 1}, <<: {y: 2}}", ["x.<<|3 and 3"]),
        ("x: {1: a, '1': b, c: [{d: 1, d: 2}]}", ["x.c[0].d|3 and 3"]),
    ],
)
def test_a_key_that_stands_twice_is_refused_at_any_depth(tmp_path: Path, text: str, expected: list[str]) -> None:
    found = problems(tmp_path, "\n\n" + text)
    path = tmp_path / "config.yaml"
    assert sorted(found) == sorted(
        f"{place}: stands {lines.count('and') + 1} times (lines {lines} of {path}); keep one"
        for place, _, lines in (text.partition("|") for text in expected)
    )


def test_what_is_included_may_not_undo_the_keys_that_clients_need(tmp_path: Path) -> None:
    write(tmp_path, "stratiform: {mode: mark}\ngeneral_settings: {other: 1}\n", "more.yaml")
    more = f"{tmp_path / 'more.yaml'}, which is included and would undo it; keep one"
    for section in ("stratiform: {teams: [{name: a, keys: [k]}]}", "general_settings: {master_key: k}"):
        text = MODEL + f"include: [more.yaml]\n{section}\n"
        assert problems(tmp_path, text) == [f"{section.partition(':')[0]}: also stands in {more}"]
    assert read(tmp_path, MODEL + "include: [more.yaml]\ngeneral_settings: {x: 1}\n").stratiform.mode == "mark"


def test_a_credential_that_does_not_fit_is_reported_at_the_model(tmp_path: Path) -> None:
    text = """
credential_list: [{credential_name: c, credential_values: {api_base: nowhere}}]
model_list: [{model_name: m, litellm_params: {model: a/b, litellm_credential_name: c}}]
"""
    assert problems(tmp_path, text) == ["model_list[0].litellm_params.api_base: must be an http:// or https:// URL"]


@pytest.mark.parametrize(
    "address",
    [
        "http://[",
        "http://[::1",
        "http://h:99999",
        "http://h:x",
        "http://:1",
        "http://h:0",
        "https://",
        "h",
        "http://h/a b",
    ],
)
def test_an_address_that_no_request_can_be_sent_to_is_a_mistake(address: str, tmp_path: Path) -> None:
    text = f"model_list: [{{model_name: m, litellm_params: {{model: a/b, api_base: '{address}'}}}}]"
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


@pytest.mark.parametrize("written", ["3e-6", "'0.000003'", "3.0e-6", "0.000003"])
def test_a_price_is_a_number_however_it_is_written(tmp_path: Path, written: str) -> None:
    params = f"{{model: a/b, api_base: 'http://h', input_cost_per_token: {written}, output_cost_per_token: 1e-5}}"
    settings = read(tmp_path, f"model_list: [{{model_name: m, litellm_params: {params}}}]")
    found = price_of(settings.models[0].litellm_params.model_extra or {})
    assert found is not None
    assert (found.input, found.output) == (3e-6, 1e-5)


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
        ("{teams: [{name: a, keys: [k]}]}", "OWN/spend.sqlite"),
        ("{teams: [{name: a, keys: [k]}], store: memory}", None),
        ("{store: 'sqlite:spend.db'}", "HOME/spend.db"),
        ("{store: 'sqlite:/var/lib/x.sqlite'}", "/var/lib/x.sqlite"),
    ],
)
def test_where_spend_is_kept(tmp_path: Path, section: str, expected: str | None) -> None:
    path = read(tmp_path, ours(section)).store_path
    own = own_folder(tmp_path / ".local/state/stratiform", tmp_path / "config.yaml")
    assert (path and str(path)) == (expected and expected.replace("OWN", str(own)).replace("HOME", str(tmp_path)))


def test_with_a_master_key_teams_can_be_made_and_are_kept(tmp_path: Path) -> None:
    text = MODEL + "general_settings: {master_key: sk-m}\n"
    path = read(tmp_path, text).store_path
    assert path is not None
    assert path.relative_to(tmp_path / ".local/state/stratiform").name == "spend.sqlite"
    assert read(tmp_path, text + "stratiform: {store: memory}\n").store_path is None


def test_a_key_may_be_given_by_its_digest_and_is_the_same_key(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"k").hexdigest()
    (message,) = problems(
        tmp_path, ours(f"{{teams: [{{name: a, keys: [k]}}, {{name: b, keys: [{{sha256: {digest.upper()}}}]}}]}}")
    )
    assert message == "stratiform.teams[1].keys[0]: is the same key as stratiform.teams[0].keys[0]"


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("2027-01-01", 1798761600.0),
        ("2027-01-01T01:00:00+01:00", 1798761600.0),
        ("'2027-01-01T00:00:00'", 1798761600.0),
    ],
)
def test_a_key_expires_at_the_beginning_of_a_day_or_at_a_time(tmp_path: Path, written: str, at: float) -> None:
    settings = read(tmp_path, ours(f"{{teams: [{{name: a, keys: [{{key: k, expires: {written}}}]}}]}}"))
    assert settings.stratiform.teams[0].keys[0].expires_at == at


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        ("{usd: 1}", "total"),
        ("{usd: 1, window: month}", "month"),
        ("{soft_tokens: 1, window: day}", "day-tokens"),
        ("{usd: 1, scope: user, window: 'rolling:1d'}", "user-rolling-86400"),
        ("{usd: 1, name: mine}", "mine"),
    ],
)
def test_a_budget_is_called_what_it_is(tmp_path: Path, budget: str, name: str) -> None:
    (read_budget,) = read(tmp_path, ours(f"{{teams: [{{name: a, budget: {budget}}}]}}")).stratiform.teams[0].all_budgets
    assert read_budget.given_name == name


def test_an_absolute_state_home_is_used_and_a_relative_one_is_not(tmp_path: Path) -> None:
    section = ours("{teams: [{name: a, keys: [k]}]}")
    assert read(tmp_path, section, XDG_STATE_HOME="/s").state_folder.parent == Path("/s/stratiform")
    assert read(tmp_path, section, XDG_STATE_HOME="s").state_folder.parent == tmp_path / ".local/state/stratiform"


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


@pytest.mark.parametrize("url", ["http://h/v1?key=x", "http://h/v1#x", "http://h/v1/chat/completions/"])
def test_an_upstream_is_an_address_that_paths_are_appended_to(url: str) -> None:
    with pytest.raises(
        ConfigError, match="--upstream: must have no `[?]` and no `#`, and not end in /chat/completions"
    ):
        load(None, url, Environment({}))


def test_something_must_be_forwarded_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --config FILE or --upstream URL"):
        load(None, "", Environment({}))
    with pytest.raises(ConfigError, match="has an entry for `\\*`"):
        load(write(tmp_path, MODEL.replace("model_name: m", "model_name: '*'")), "http://x", Environment({}))
    assert load(write(tmp_path, ""), "http://x", Environment({})).upstream == "http://x/v1"


def test_a_slip_in_model_info_is_a_warning_since_litellm_has_keys_of_its_own(tmp_path: Path) -> None:
    text = "model_list: [{model_name: m, litellm_params: {model: a/b}, rpm: 1, model_info: {transprot: http, id: x}}]"
    assert [str(one) for one in read(tmp_path, text).unused] == [
        "model_list[0].rpm: is not known, and not used by Stratiform",
        "model_list[0].model_info.transprot: is not known, and not used by Stratiform; did you mean `transport`?",
    ]
    slips = "litellm_params: {model: a/b, api_bas: http://h}, model_info: {acces_groups: [x]}"
    text = f"model_list: [{{model_name: m, {slips}}}]"
    assert [one.path for one in read(tmp_path, text).unused if "did you mean" in one.note] == [
        "model_list[0].litellm_params.api_bas", "model_list[0].model_info.acces_groups",
    ]  # fmt: skip


def test_each_spool_has_a_fallback_of_its_own(tmp_path: Path) -> None:
    def fallback(name: str, spool: str) -> Path:
        path = tmp_path / name
        path.write_text(f"stratiform: {{{spool}}}\nmodel_list: []\n")
        return load(path, "http://127.0.0.1:1").spool_fallback

    own, other = fallback("a.yaml", "spool: one"), fallback("b.yaml", "spool: two")
    assert own == fallback("c.yaml", "spool: one")
    assert own != other
    assert own.parent == other.parent == Path(gettempdir())
    assert fallback("d.yaml", "spool: one, spool_fallback: second") == tmp_path / "second"


@pytest.mark.parametrize("host", ["proxy.example.com", "proxy", "10.0.0.1", "::1"])
def test_a_page_may_be_reached_by_names_and_addresses(tmp_path: Path, host: str) -> None:
    assert read(tmp_path, ours(f"{{ui: {{hosts: ['{host}']}}}}")).stratiform.ui.hosts == [host]
