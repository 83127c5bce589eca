"""An existing LiteLLM file works as it is."""

from pathlib import Path

import pytest

from proxy.app import factories
from proxy.app.settings import ConfigError, Environment, Settings, load, unused_on_http
from proxy.kit.modes import Mode
from proxy.models import Transport
from proxy.models.deployments import ModelTable

FILE = Path(__file__).parent / "litellm_config.yaml"
VARIABLES = {
    "OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-ant", "AWS_SECRET": "aws-secret",
    "AZURE_API_KEY": "azure-secret", "LITELLM_MASTER_KEY": "sk-master", "HOME": "/home/someone",
}  # fmt: skip
SECRETS = ("sk-openai", "sk-ant", "aws-secret", "azure-secret", "sk-master", "sk-or-from-file")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(FILE, environment=Environment(VARIABLES))


@pytest.fixture(scope="module")
def table(settings: Settings) -> ModelTable:
    return factories.model_table(settings, factories.price_map(settings))


def test_every_name_and_alias_is_served(table: ModelTable) -> None:
    assert list(table.names()) == [
        "gpt-4o", "claude", "in-house", "shared", "text-embedding-3-small", "gpt-4",
    ]  # fmt: skip
    assert table.resolve("gpt-4").model == "openai/gpt-4o"
    assert table.resolve("hidden-claude").model == "anthropic/claude-sonnet-4-5"
    assert [d.model.partition("/")[0] for d in table.candidates("claude")] == ["anthropic", "bedrock"]


def test_a_server_with_an_address_is_reached_directly_all_else_through_litellm(table: ModelTable) -> None:
    server = table.resolve("in-house")
    assert (server.transport, server.model) == (Transport.HTTP, "qwen3-coder")
    assert server.base_url == "http://gpu.internal:8000/v1"
    assert (server.api_key, server.timeout_s) == ("none", 120.0)
    assert list(server.headers) == [("openai-organization", "acme")]
    claude = table.resolve("claude")
    assert (claude.transport, claude.model, claude.timeout_s) == (Transport.LITELLM, "anthropic/claude-sonnet-4-5", 300)
    assert list(claude.headers) == [("anthropic-beta", "context-1m-2025-08-07")]


def test_what_is_litellms_own_reaches_the_litellm_transport(table: ModelTable) -> None:
    bedrock = table.candidates("claude")[1]
    assert bedrock.params == {
        "aws_region_name": "us-east-1", "aws_secret_access_key": "aws-secret", "drop_params": True,
    }  # fmt: skip
    shared = table.resolve("shared")
    assert (shared.api_key, shared.base_url) == ("azure-secret", "https://acme-eu.openai.azure.com")
    assert shared.params["api_version"] == "2026-02-01"


def test_prices_and_base_models_of_the_file_are_used(settings: Settings, table: ModelTable) -> None:
    prices = factories.price_map(settings)
    own = factories.price_source(prices)(table.resolve("in-house"))
    assert own is not None
    assert (own.input, own.output) == (1e-7, 2e-7)
    assert table.resolve("gpt-4o").price_key == "openai/gpt-4o-2024-08-06"
    assert factories.price_source(prices)(table.resolve("claude")) is not None


def test_litellms_kind_of_endpoint_is_not_taken_for_a_mode(table: ModelTable) -> None:
    assert table.resolve("text-embedding-3-small").mode is Mode.TIER


def test_variables_of_the_file_count_and_are_exported_for_litellm(settings: Settings, table: ModelTable) -> None:
    assert table.resolve("openrouter/x/y").api_key == "sk-or-from-file"
    assert settings.exported == {"OPENROUTER_API_KEY": "sk-or-from-file"}


def test_the_master_key_is_read_and_variables_of_unused_parts_may_be_missing(settings: Settings) -> None:
    assert settings.master_key is not None
    assert settings.master_key.get_secret_value() == "sk-master"


def test_what_is_not_used_is_said(settings: Settings) -> None:
    said = "\n".join(map(str, settings.unused))
    for key in (
        "mcp_servers:", "general_settings.database_url:", "litellm_settings.callbacks:",
        "router_settings.routing_strategy:",
    ):  # fmt: skip
        assert key in said
    assert "litellm_settings.drop_params" not in said
    assert list(unused_on_http(settings.models[3], "model_list[3]")) == []
    assert settings.models[3].litellm_params.weight == 2


def test_no_secret_is_in_any_repr(settings: Settings, table: ModelTable) -> None:
    shown = f"{settings!r} {settings.models} {settings.stratiform} {Environment(VARIABLES)!r}"
    shown += repr([table.candidates(name) for name in table.names()]) + repr(table.wildcards())
    assert [secret for secret in SECRETS if secret in shown] == []


def test_every_variable_that_is_needed_and_not_set_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(FILE, environment=Environment({}))
    assert caught.value.problems == (
        "model_list[0].litellm_params.api_key: the environment variable OPENAI_API_KEY is not set",
        "model_list[1].litellm_params.api_key: the environment variable ANTHROPIC_API_KEY is not set",
        "model_list[2].litellm_params.aws_secret_access_key: the environment variable AWS_SECRET is not set",
        "model_list[5].litellm_params.api_key: the environment variable OPENAI_API_KEY is not set",
        "credential_list[0].credential_values.api_key: the environment variable AZURE_API_KEY is not set",
        "general_settings.master_key: the environment variable LITELLM_MASTER_KEY is not set",
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("{allowed_ips: []}", "general_settings.allowed_ips: list should have at least 1 item"),
        (
            "{allowed_ips: [10.0.0.1, home]}",
            "general_settings.allowed_ips[1]: value is not a valid IPv4 or IPv6 network",
        ),
        (
            "{allowed_ips: [10.0.0.1], use_x_forwarded_for: true}",
            "general_settings: allowed_ips goes by the address of",
        ),
        ("{allowed_ips: [os.environ/NO_SUCH]}", "general_settings.allowed_ips[0]: the environment variable NO_SUCH"),
    ],
)
def test_addresses_that_cannot_be_held_to_are_refused(tmp_path: Path, settings: str, problem: str) -> None:
    text = f"model_list: [{{model_name: m, litellm_params: {{model: gpt-4o}}}}]\ngeneral_settings: {settings}\n"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", environment=Environment({}))
    (found,) = caught.value.problems
    assert found.startswith(problem)
