"""``stratiform check-config``: what it says, and what it never shows."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli import main
from tests.config_lines import bare

SECRETS = ("sk-master-secret", "sk-team-secret", "sk-upstream-secret", "header-secret", "user:pass")
CONFIG = """
model_list:
  - model_name: sonnet
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: sk-upstream-secret}
    model_info: {mode: observe, system_reminder: true}
  - model_name: local
    litellm_params:
      model: openai/claude-local
      api_base: http://user:pass@localhost:8000
      rpm: 3
      extra_headers: {x-extra: header-secret}
  - model_name: local
    litellm_params: {model: openai/other, api_base: "https://api.anthropic.com/v1", api_key: sk-upstream-secret}
  - model_name: compat
    litellm_params: {model: openai/claude-x, api_base: "https://api.anthropic.com/v1", api_key: sk-upstream-secret}
  - model_name: "openai/*"
    litellm_params: {model: "openai/*"}
router_settings: {model_group_alias: {best: sonnet}}
general_settings: {master_key: sk-master-secret, database_url: x}
stratiform:
  mode: mark
  clock: header
  store: memory
  prices: {claude-local: {input_cost_per_token: 1.0e-6, output_cost_per_token: 2.0e-6}}
  teams: [{name: red, keys: [sk-team-secret], budget: {usd: 5}, mode: observe}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def checked(file: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Checks a configuration; the report."""

    def run(text: str = CONFIG) -> Any:
        file.write_text(text)
        assert main(["check-config", str(file), "--json"]) == 0
        return orjson.loads(capsys.readouterr().out)

    return run


def test_json_shows_what_the_configuration_comes_to(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file), "--json"]) == 0
    shown = capsys.readouterr().out
    report = orjson.loads(shown)
    assert report["ok"] is True
    assert [row["name"] for row in report["models"]] == ["sonnet", "local", "local", "compat", "best", "openai/*"]
    assert report["models"][0] == {
        "name": "sonnet", "model": "anthropic/claude-sonnet-4-5", "transport": "litellm", "profile": "anthropic",
        "min_tokens": 1024, "host": "", "mode": "observe", "price_known": True, "reminder": True,
    }  # fmt: skip
    assert report["models"][1] == {
        "name": "local", "model": "claude-local", "transport": "http", "profile": "none",
        "min_tokens": None, "host": "localhost", "mode": "mark", "price_known": True, "reminder": False,
    }  # fmt: skip
    assert report["models"][5]["profile"] is None
    assert report["models"][5]["price_known"] is None
    assert report["teams"] == [
        {"name": "red", "keys": 1, "mode": "observe", "models": None, "budgets": ["total: 5 USD"]}
    ]
    assert (report["store"], report["keys"], report["listen"]) == ("memory", "configured", "127.0.0.1:4000")
    assert [secret for secret in SECRETS if secret in shown] == []


def test_warnings_name_what_will_not_do_what_it_seems_to(checked: Callable[..., Any]) -> None:
    report = checked()
    assert report["not_honoured"][:1] == [
        "general_settings.database_url: is not honoured by Stratiform: keys live in this proxy's own store, "
        "and not in that database",
    ]
    assert bare(report["warnings"]) == [
        "stratiform.clock: clients set the time: use this for replays only",
        "stratiform.metrics.key: is not set: /metrics names teams and models to everyone who reaches it",
        "stratiform.store: is memory: keys, teams and budgets that are made while the proxy runs end with its process",
        "model_list[1].litellm_params.api_base: has no path, so requests go to "
        "http://localhost:8000/chat/completions; most servers want /v1",
        "model_list[1].litellm_params.api_key: is missing; requests are refused, for the proxy's keys are not sent on",
        "model_list[1]: set model_info.cache_profile: anthropic if this server takes cache_control; otherwise no "
        "markers are sent",
        "model_list[2]: has no weight, rpm or tpm, and others have: it serves `local` only when those failed",
        "model_list[2]: its price is not known: teams with a budget cannot use it (see stratiform.prices)",
        "model_list[3]: Anthropic's OpenAI-compatible endpoint does not cache; use `model: anthropic/...`",
        "model_list[3]: its price is not known: teams with a budget cannot use it (see stratiform.prices)",
    ]


def test_what_is_old_or_not_known_of_a_model_is_named(
    checked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class InSummer:
        def now(self) -> float:
            return datetime(2027, 6, 1, tzinfo=UTC).timestamp()

    monkeypatch.setattr("proxy.cli.check_config.SystemClock", InSummer)
    report = checked(
        "model_list:\n"
        "  - {model_name: a, litellm_params: {model: anthropic/claude-fable-5-2, api_key: k}}\n"
        "  - {model_name: b, litellm_params: {model: openai/nobody-knows, api_base: http://localhost/v1, api_key: k}}\n"
        "  - {model_name: c, litellm_params: {model: openai/qwen, api_base: http://gpu/v1, api_key: k},\n"
        "     model_info: {cache_profile: llamacpp}}\n"
    )
    warnings = [line for line in bare(report["warnings"]) if "was read on" in line or "price is" in line]
    assert [line.partition(":")[0] for line in warnings] == ["model_list[0]"] * 3 + ["model_list[1]"]
    assert all("was read on 2026-" in line and "https://platform.claude.com/" in line for line in warnings[:3])
    assert warnings[3].endswith("its tokens are counted, its cost is not (see stratiform.prices)")
    assert report["models"][0]["price_known"]


def test_the_table_shows_the_same_to_people(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file)]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("local ")][0].split() == [
        "local", "claude-local", "http", "none", "localhost", "mark", "known",
    ]  # fmt: skip
    assert "team: name red, keys 1, mode observe, budgets total: 5 USD" in shown
    assert "warning: stratiform.clock: clients set the time: use this for replays only" in shown
    assert [secret for secret in SECRETS if secret in shown] == []


MODEL = "model_list: [{model_name: m, litellm_params: {model: embedded/claude-sonnet-4-5}}]\n"


@pytest.mark.parametrize("rest", ["", r'router_settings: {model_group_alias: {a: "\e[2J"}}'])
def test_names_in_the_file_cannot_command_a_terminal(
    rest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = r'"m\e[2J"'
    models = f"model_list: [{{model_name: {name}, litellm_params: {{model: embedded/claude, {name}: 1}}}}]\n"
    (tmp_path / "config.yaml").write_text(models + rest)
    assert main(["check-config", str(tmp_path / "config.yaml")]) == bool(rest)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err


def test_a_wrong_file_is_told_and_counts_as_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"stratiform: {{mode: x}}\n{MODEL}")
    message = "stratiform.mode: input should be 'passthrough', 'observe', 'mark' or 'tier' (line 1)"
    assert main(["check-config", str(path)]) == 1
    assert capsys.readouterr().err == f"error: {message}\n"
    assert main(["check-config", str(path), "--json"]) == 1
    assert orjson.loads(capsys.readouterr().out) == {"ok": False, "errors": [message], "warnings": []}


TEAMS = """
model_list: [{model_name: sonnet, litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: k}}]
stratiform:
  store: memory
  client_keys: forward
  teams:
    - name: red
      models: [sonet, "son*"]
      keys: [{key: sk-red, models: [opus]}]
      budgets:
        - {usd: 500, soft_usd: 400, window: month}
        - {scope: user, tokens: 1000000, window: day}
        - {scope: model, subject: sonnet, soft_usd: 2.5}
"""
SLIPS = """
model_list:
  - {model_name: sonnet, litellm_params: {model: embedded/claude-sonnet-4-5, output_cost_per_token: 15}}
stratiform:
  metrics: {key: k}
  prices: {other: {input_cost_per_token: 3, output_cost_per_token: 0.000015}}
  keep_alive: {teams: {rde: 0}}
  teams:
    - {name: red, keys: [sk-red], budgets: [{scope: model, subject: sonet, usd: 2.5}]}
"""


def test_values_that_would_do_nothing_or_far_too_much_are_named(checked: Callable[..., Any]) -> None:
    assert bare(checked(SLIPS)["warnings"]) == [
        "stratiform.prices.other.input_cost_per_token: is the price of one token; did you mean 3e-06, for 3 a million?",
        "model_list[0].litellm_params.output_cost_per_token: is the price of one token; did you mean 1.5e-05, for 15 a "
        "million?",
        "stratiform.teams[0].budgets[0].subject: `sonet` is no model of model_list",
        "stratiform.keep_alive.teams: `rde` is no team of this file; one that is made while the proxy runs will have "
        "it",
    ]


def test_budgets_and_allow_lists_are_shown_as_they_are_meant(checked: Callable[..., Any]) -> None:
    report = checked(f"{TEAMS}general_settings: {{master_key: sk-master}}\n")
    assert report["keys"] == "configured, and the provider's"
    assert report["teams"][0]["budgets"] == [
        "month: 500 USD (soft 400)", "user-day-tokens: 1000000 tokens for each user",
        "model-total: soft 2.5 USD for model sonnet",
    ]  # fmt: skip
    assert bare(report["warnings"]) == [
        "stratiform.metrics.key: is not set: /metrics names teams and models to everyone who reaches it",
        "stratiform.store: is memory: keys, teams and budgets that are made while the proxy runs end with its process",
        "stratiform.teams[0].models: `sonet` is no model of model_list",
        "stratiform.teams[0].keys[0].models: `opus` is no model of model_list",
    ]


TIGHT = """
model_list:
  - model_name: long
    litellm_params: {model: openai/long, api_base: "http://localhost:8000/v1"}
  - model_name: short
    litellm_params: {model: openai/short, api_base: "http://localhost:8000/v1"}
  - model_name: unknown
    litellm_params: {model: openai/nobodys, api_base: "http://localhost:8000/v1"}
stratiform:
  prices:
    long: {input_cost_per_token: 1.0e-6, output_cost_per_token: 1.0e-4}
    short: {input_cost_per_token: 1.0e-6, output_cost_per_token: 1.0e-5}
  teams:
    - name: a
      models: MODELS
      budget: BUDGET
      budgets: BUDGETS
"""


@pytest.mark.parametrize(
    ("models", "budget", "budgets", "expected"),
    [
        ("[]", "{usd: 0.5}", "[]", [("budget", "$0.82", "`long`")]),
        ("['s*']", "{usd: 0.5}", "[]", []),
        ("[]", "{usd: 0.82}", "[]", []),
        ("[]", "{usd: 0}", "[]", []),
        ("[]", "{soft_usd: 0.5}", "[]", []),
        ("[]", "{usd: 0.5, assumed_output_tokens: 5000}", "[]", []),
        ("[]", "{usd: 0.5, assumed_output_tokens: 5001}", "[]", [("budget", "$0.50", "`long`")]),
        ("[]", "{usd: 0.5, assumed_output_tokens: 9}", "[{usd: 90, window: day}]", [("budget", "$0.82", "`long`")]),
        ("[]", "{usd: 90}", "[{tokens: 999}]", [("budgets[0]", "8192 tokens", "`long`, `short`, `unknown`")]),
        ("[]", "{usd: 90}", "[{usd: 0.5, scope: model, subject: short}]", []),
        ("[]", "{usd: 90}", "[{usd: 0.001, scope: model, subject: short}]", [("budgets[0]", "$0.08", "`short`")]),
    ],
)
def test_a_budget_that_is_smaller_than_one_request_is_named(
    checked: Callable[..., Any], models: str, budget: str, budgets: str, expected: list[tuple[str, str, str]]
) -> None:
    report = checked(TIGHT.replace("MODELS", models).replace("BUDGETS", budgets).replace("BUDGET", budget))
    assert [line for line in bare(report["warnings"]) if "max_tokens" in line] == [
        f"stratiform.teams[0].{place}: one request without max_tokens sets aside up to {amount}, which is more than "
        f"all of it, and is refused ({whom}); set assumed_output_tokens"
        for place, amount, whom in expected
    ]


@pytest.mark.parametrize(
    ("info", "is_told"), [("{}", True), ("{cache_profile: none}", False), ("{cache_profile: vllm}", False)]
)
def test_a_server_of_whose_cache_nothing_is_known(info: str, is_told: bool, checked: Callable[..., Any]) -> None:
    given = "{model: openai/mine, api_base: 'http://localhost:8000/v1', api_key: k}"
    report = checked(f"model_list: [{{model_name: mine, litellm_params: {given}, model_info: {info}}}]")
    assert any("set model_info.cache_profile" in warning for warning in report["warnings"]) is is_told


def test_fallbacks_and_pre_call_checks_are_shown(
    checked: Callable[..., Any], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = checked(
        "model_list:\n"
        "  - {model_name: small, litellm_params: {model: embedded/claude-haiku-4-5}}\n"
        "  - {model_name: large, litellm_params: {model: embedded/claude-sonnet-4-5}}\n"
        "router_settings:\n"
        "  {fallbacks: [{small: [large]}], context_window_fallbacks: [{small: [large, small]}],"
        " enable_pre_call_checks: true}\n"
    )
    assert (report["fallbacks"], report["pre_call_checks"]) == ({"small": ["large"]}, True)
    assert report["context_window_fallbacks"] == {"small": ["large", "small"]}
    assert main(["check-config", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"fallbacks of small: large", "context window fallbacks of small: large, small"} <= set(lines)
    assert "pre-call checks: yes" in lines
