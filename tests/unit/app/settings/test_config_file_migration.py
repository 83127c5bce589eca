"""What of an existing configuration of LiteLLM's goes on working, key by key."""

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from proxy.app import factories
from proxy.app.foundation import declared
from proxy.app.settings import ConfigError, Effect, Environment, Settings, load
from proxy.cli.check_config import check
from proxy.kit.resilience import Failure, Kind, Option, next_step
from proxy.models import RateLimit
from proxy.models.deployments import ModelTable

MODELS = """
model_list:
  - {model_name: m, litellm_params: {model: openai/a, api_base: "http://a/v1", api_key: k}, model_info: {id: 7}}
  - {model_name: m, litellm_params: {model: openai/b, api_base: "http://b/v1", api_key: k}, model_info: {id: second}}
  - {model_name: n, litellm_params: {model: openai/n, api_base: "http://n/v1", api_key: k}}
"""


def shipped() -> list[Path]:
    """The example configurations in LiteLLM's wheel. Its word lists for guardrails are YAML, too, and none."""
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    found = sorted((Path(spec.origin).parent / "proxy").rglob("*.yaml"))
    return [one for one in found if re.search(r"config|example|model", one.name)]


def read(tmp_path: Path, text: str, models: str = MODELS) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(models + text)
    return load(path, environment=Environment({}))


def table_of(settings: Settings) -> ModelTable:
    return factories.model_table(settings, factories.price_map(settings))


def consequences(settings: Settings) -> list[str]:
    told = (Effect.RESTRICTS, Effect.CHANGES, Effect.UNKNOWN)
    return [one.path for one in settings.unused if one.effect in told]


def problems_of(path: Path) -> Sequence[str]:
    try:
        report = check(path)
    except ConfigError as error:
        return error.problems
    return report["errors"] if "errors" in report else [] if report["models"] else ["no model"]


@pytest.mark.parametrize("path", shipped(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_of_litellms_starts_or_is_refused_with_the_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r"os\.environ/(\w+)", path.read_text()):
        if name not in os.environ:
            monkeypatch.setenv(name, "https://x.example/v1")
    keys = r"(?:guardrails|policies|policy_attachments|(?:general|litellm|router)_settings\.\w+|model_list\S*): .{9}"
    assert all(re.match(keys, problem) for problem in problems_of(path))


def test_litellms_wheel_has_examples() -> None:
    assert len(shipped()) > 25


def test_each_organization_of_a_list_is_a_deployment(tmp_path: Path) -> None:
    text = "model_list: [{model_name: m, litellm_params: {model: openai/a, organization: [one, two], weight: 3}}]"
    (level,) = table_of(read(tmp_path, "", text)).levels("m")
    assert [(one.id, list(one.headers), one.weight) for one in level] == [
        ("m#1", [("openai-organization", "one")], 1.5),
        ("m#2", [("openai-organization", "two")], 1.5),
    ]


def test_a_fallback_is_a_name_an_id_or_has_the_long_form(tmp_path: Path) -> None:
    found = read(tmp_path, "router_settings: {fallbacks: [{n: [second, {model: m, temperature: 0}]}]}")
    table = table_of(found)
    assert [[one.id for one in level] for level in table.levels("n")] == [["n"], ["m#2"], ["m#1", "m#2"]]
    assert table.resolve("7").id == "m#1"
    assert consequences(found) == ["router_settings.fallbacks[0].n[1].temperature"]


def test_a_fallback_alone_stands_in_for_every_name(tmp_path: Path) -> None:
    table = table_of(read(tmp_path, "router_settings: {fallbacks: [n]}"))
    assert [[one.id for one in level] for level in table.levels("m")] == [["m#1", "m#2"], ["n"]]


RETRIES = "router_settings: {num_retries: 1, retry_policy: {TimeoutErrorRetries: 0, RateLimitErrorRetries: 3}}"


@pytest.mark.parametrize(
    ("kind", "retries"), [("timeout", 0), ("rate-limited", 3), ("server-error", 1), ("unavailable", 1)]
)
def test_retries_follow_the_policy_of_the_error(kind: Kind, retries: int, tmp_path: Path) -> None:
    found = read(tmp_path, RETRIES)
    policy = factories.request_rules(found).retries
    made = next(n for n in range(1, 9) if next_step(policy, [Option(0, n, True)], 0, Failure(kind), 0.0, 0.5) is None)
    assert made - 1 == retries
    assert consequences(found) == []


@pytest.mark.parametrize(
    ("policy", "retries"),
    [
        ("{DefaultRetries: 4}", {"timeout": 4, "rate-limited": 4, "server-error": 4, "unavailable": 4}),
        ("{InternalServerErrorRetries: 2, ServiceUnavailableErrorRetries: 1}", {"server-error": 1}),
        ("{BadRequestErrorRetries: 0}", {}),
    ],
)
def test_the_classes_of_a_retry_policy(policy: str, retries: dict[Kind, int], tmp_path: Path) -> None:
    assert read(tmp_path, f"router_settings: {{retry_policy: {policy}}}").routing.retries.retries_after == retries


def test_a_name_may_have_a_retry_policy_of_its_own(tmp_path: Path) -> None:
    text = "{retry_policy: {TimeoutErrorRetries: 3}, model_group_retry_policy: {n: {RateLimitErrorRetries: 1}}}"
    found = read(tmp_path, f"router_settings: {text}")
    policy = factories.request_rules(found).retries
    assert policy.of("m").retries_after == {"timeout": 3}
    assert policy.of("n").retries_after == {"rate-limited": 1}
    assert consequences(found) == []
    for given, paths in (("BadRequestErrorRetries: 2", ["BadRequestErrorRetries"]), ("BadRequestErrorRetries: 0", [])):
        found = read(tmp_path, f"router_settings: {{model_group_retry_policy: {{n: {{{given}}}}}}}")
        assert consequences(found) == [f"router_settings.model_group_retry_policy.n.{key}" for key in paths]


LIMITED = """
model_list:
  - {model_name: a, litellm_params: {model: openai/a, rpm: 60}, model_info: {rpm: 7, tpm: 1000}}
  - {model_name: b, litellm_params: {model: openai/b}}
"""


@pytest.mark.parametrize(
    ("text", "rates", "told"),
    [
        (
            "",
            None,
            ["model_list[0].litellm_params.rpm", "model_list[0].model_info.rpm", "model_list[0].model_info.tpm"],
        ),
        ("router_settings: {optional_pre_call_checks: [enforce_model_rate_limits]}", RateLimit("a", 60, 1000), []),
        (
            "router_settings: {optional_pre_call_checks: [enforce_model_rate_limits, prompt_caching]}",
            RateLimit("a", 60, 1000),
            ["router_settings.optional_pre_call_checks"],
        ),
        (
            "router_settings: {optional_pre_call_checks: [enforce_model_rate_limits]}\n"
            "stratiform: {teams: [{name: red, keys: [sk-red]}]}",
            RateLimit("a", 60, 1000),
            ["router_settings.optional_pre_call_checks"],
        ),
    ],
)
def test_the_rates_of_deployments_are_limits_where_the_configuration_says_so(
    text: str, rates: RateLimit | None, told: list[str], tmp_path: Path
) -> None:
    found = read(tmp_path, text, LIMITED)
    assert [table_of(found).resolve(name).rates for name in ("a", "b")] == [rates, None]
    assert consequences(found) == told


def test_a_hidden_alias_serves_and_is_not_listed(tmp_path: Path) -> None:
    table = table_of(
        read(tmp_path, "router_settings: {model_group_alias: {x: {model: m, hidden: true}, y: {model: m}}}")
    )
    assert list(table.names()) == ["m", "n", "y"]
    assert table.resolve("x").id == "m#1"


def test_the_groups_of_a_model_are_known(tmp_path: Path) -> None:
    text = "model_list: [{model_name: m, litellm_params: {model: openai/a}, model_info: {access_groups: [beta]}}]"
    found = read(tmp_path, "", text)
    assert table_of(found).resolve("m").groups == ("beta",)
    assert consequences(found) == []


@pytest.mark.parametrize(
    ("duration", "window"),
    [
        ("null", "total"), ("1d", "day"), ("monthly", "month"), ("7d", "week"), ("45d", "rolling:3888000"),
        ("15m", "rolling:900"), ("1mo", "month"),
    ],
)  # fmt: skip
def test_the_budget_of_all_requests_is_that_of_the_default_team(duration: str, window: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"litellm_settings: {{max_budget: 12.5, budget_duration: {duration}}}")
    (budget,) = declared(found).budgets
    assert (budget.team, budget.scope, budget.hard, budget.window) == ("default", "team", 12_500_000_000, window)
    assert found.store_path is not None
    assert consequences(found) == []


def test_the_budget_of_all_requests_is_refused_beside_teams(tmp_path: Path) -> None:
    text = "litellm_settings: {max_budget: 1}\nstratiform: {teams: [{name: red, keys: [sk-red]}]}"
    assert consequences(read(tmp_path, text)) == ["litellm_settings.max_budget"]


def test_a_budgets_duration_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"litellm_settings\.budget_duration: must be a length"):
        read(tmp_path, "litellm_settings: {max_budget: 1, budget_duration: sometimes}")


@pytest.mark.parametrize(
    ("teams", "told"),
    [
        ("[{team_id: a, success_callback: [langfuse], langfuse_public_key: x}]", []),
        ("[{team_id: a, max_budget: 5}]", ["litellm_settings.default_team_settings"]),
        ("{team_id: a}", ["litellm_settings.default_team_settings"]),
    ],
)
def test_where_teams_are_logged_changes_nothing_here(teams: str, told: list[str], tmp_path: Path) -> None:
    assert consequences(read(tmp_path, f"litellm_settings: {{default_team_settings: {teams}}}")) == told
