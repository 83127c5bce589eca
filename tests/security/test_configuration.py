"""A configuration that restricts is honoured, or refused; a proxy that is open to all does not give keys away."""

import ast
import re
import socket
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.app import foundation
from proxy.app.composition import ConfigSource
from proxy.app.settings import ConfigError, Effect, Environment, Settings, load
from proxy.app.settings.litellm_schema import GeneralSettings, LiteLLMParams, LiteLLMSettings, ModelInfo, RouterSettings
from proxy.app.settings.unsupported import effect_of
from proxy.cli import check_config, main, serve
from proxy.cli.check_config import not_honoured, provider_keys, refuse_exposed
from proxy.cli.serve import listen
from proxy.teams.authentication import is_loopback
from tests.config_lines import bare
from tests.examples import sampled
from tests.security.world import KEYS, World

LITELLM = Path(str(distribution("litellm").locate_file("litellm")))
MODEL = (
    "model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: 'http://localhost:1/v1', api_key: k1}}]"
)
HEAD = MODEL + "\n"


def entry(params: str = "", info: str = "") -> str:
    """A file with one model on http."""
    return (
        f"model_list: [{{model_name: m, litellm_params: {{model: openai/m, api_base: 'http://localhost:1/v1', "
        f"api_key: k1{params}}}, model_info: {{id: x{info}}}}}]\n"
    )


RESTRICTING = [
    (HEAD + "general_settings: {custom_auth: auth.check}", "general_settings.custom_auth"),
    (HEAD + "general_settings: {enable_jwt_auth: true}", "general_settings.enable_jwt_auth"),
    (HEAD + "general_settings: {enable_oauth2_auth: true}", "general_settings.enable_oauth2_auth"),
    (HEAD + "general_settings: {custom_sso: sso.handler}", "general_settings.custom_sso"),
    (HEAD + "general_settings: {allowed_routes: [a]}", "general_settings.allowed_routes"),
    (HEAD + "general_settings: {admin_only_routes: [a]}", "general_settings.admin_only_routes"),
    (HEAD + "general_settings: {public_routes: [a]}", "general_settings.public_routes"),
    (HEAD + "general_settings: {block_robots: true}", "general_settings.block_robots"),
    (HEAD + "general_settings: {enforce_user_param: true}", "general_settings.enforce_user_param"),
    (HEAD + "general_settings: {enforced_params: [user]}", "general_settings.enforced_params"),
    (HEAD + "general_settings: {max_parallel_requests: 0}", "general_settings.max_parallel_requests"),
    (HEAD + "general_settings: {global_max_parallel_requests: 5}", "general_settings.global_max_parallel_requests"),
    (HEAD + "general_settings: {max_request_size_mb: 1}", "general_settings.max_request_size_mb"),
    (HEAD + "general_settings: {max_response_size_mb: 1}", "general_settings.max_response_size_mb"),
    (HEAD + "general_settings: {key_management_system: aws_kms}", "general_settings.key_management_system"),
    (HEAD + "general_settings: {user_header_mappings: [{a: b}]}", "general_settings.user_header_mappings"),
    (HEAD + "general_settings: {database_url: postgres://x}", "general_settings.database_url"),
    (HEAD + "litellm_settings: {guardrails: [{g: {}}]}", "litellm_settings.guardrails"),
    (HEAD + "litellm_settings: {max_budget: 1}\nstratiform: {teams: [{name: red, keys: [sk-1]}]}",
     "litellm_settings.max_budget"),
    (HEAD + "litellm_settings: {default_team_settings: [{team_id: a, models: [m]}]}",
     "litellm_settings.default_team_settings"),
    (HEAD + "litellm_settings: {upperbound_key_generate_params: {max_budget: 1}}",
     "litellm_settings.upperbound_key_generate_params"),
    (HEAD + "litellm_settings: {default_key_generate_params: {max_budget: 1}}",
     "litellm_settings.default_key_generate_params"),
    (HEAD + "litellm_settings: {banned_keywords_list: [a]}", "litellm_settings.banned_keywords_list"),
    *((HEAD + f"litellm_settings: {{callbacks: [prometheus, {name}]}}", "litellm_settings.callbacks[1]")
      for name in ("lakera_prompt_injection", "presidio", "llamaguard_moderations", "banned_keywords", "hide_secrets",
                   "detect_prompt_injection", "my_handler.instance", "dynamic_rate_limiter")),
    (HEAD + "litellm_settings: {callbacks: presidio}", "litellm_settings.callbacks[0]"),
    (HEAD + "router_settings: {enable_tag_filtering: true}", "router_settings.enable_tag_filtering"),
    (HEAD + "router_settings: {provider_budget_config: {openai: {}}}", "router_settings.provider_budget_config"),
    (HEAD + "router_settings: {optional_pre_call_checks: [router_budget_limiting]}",
     "router_settings.optional_pre_call_checks"),
    (HEAD + "guardrails: [{guardrail_name: g}]", "guardrails"),
    (HEAD + "policies: {a: b}", "policies"),
    (entry(params=", max_budget: 5"), "model_list[0].litellm_params.max_budget"),
    (entry(params=", max_parallel_requests: 5"), "model_list[0].litellm_params.max_parallel_requests"),
    (entry(params=", tags: [free]"), "model_list[0].litellm_params.tags"),
    (entry(info=", team_id: a"), "model_list[0].model_info.team_id"),
    (entry(info=", blocked: true"), "model_list[0].model_info.blocked"),
    (entry(info=", supported_environments: [production]"), "model_list[0].model_info.supported_environments"),
    (entry(info=", tier: paid"), "model_list[0].model_info.tier"),
    (HEAD + "litellm_settings: {require_auth_for_metrics_endpoint: true}",
     "litellm_settings.require_auth_for_metrics_endpoint"),
]  # fmt: skip
CHANGING = [
    (entry(params=", max_tokens: 5"), "model_list[0].litellm_params.max_tokens"),
    (entry(params=", temperature: 0"), "model_list[0].litellm_params.temperature"),
    (entry(params=", rpm: 5"), "model_list[0].litellm_params.rpm"),
    (entry(params=", tpm: 5"), "model_list[0].litellm_params.tpm"),
    (entry(info=", hidden: true"), "model_list[0].model_info.hidden"),
    (HEAD + "router_settings: {retry_policy: {BadRequestErrorRetries: 1}}",
     "router_settings.retry_policy.BadRequestErrorRetries"),
    (HEAD + "router_settings: {fallbacks: [{m: [{model: m, api_base: x}]}]}",
     "router_settings.fallbacks[0].m[0].api_base"),
    (HEAD + "general_settings: {pass_through_endpoints: [{path: /x}]}", "general_settings.pass_through_endpoints"),
    (HEAD + "general_settings: {forward_openai_org_id: true}", "general_settings.forward_openai_org_id"),
    (HEAD + "general_settings: {master_key: sk-1, database_url: postgres://x}", "general_settings.database_url"),
    (HEAD + "general_settings: {something_new: 1}", "general_settings.something_new"),
    (HEAD + "litellm_settings: {modify_params: true}", "litellm_settings.modify_params"),
]  # fmt: skip
HARMLESS = [
    (HEAD + "litellm_settings: {turn_off_message_logging: true}", "litellm_settings.turn_off_message_logging"),
    (HEAD + "litellm_settings: {redact_user_api_key_info: true}", "litellm_settings.redact_user_api_key_info"),
    (HEAD + "litellm_settings: {callbacks: [prometheus, langfuse]}", "litellm_settings.callbacks"),
    (HEAD + "litellm_settings: {success_callback: [langfuse]}", "litellm_settings.success_callback"),
    (HEAD + "general_settings: {disable_adding_master_key_hash_to_db: true}",
     "general_settings.disable_adding_master_key_hash_to_db"),
    (HEAD + "general_settings: {custom_auth: null, enable_jwt_auth: false}", "general_settings.enable_jwt_auth"),
    (HEAD + "router_settings: {routing_strategy: least-busy}", "router_settings.routing_strategy"),
]  # fmt: skip


def settings_of(folder: Path, text: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(text)
    return load(path, environment=Environment({"HOME": str(folder)}))


def arguments(path: Path, *words: str) -> Namespace:
    parser = ArgumentParser()
    serve.configure(parser)
    return parser.parse_args(["--config", str(path), *words])


@pytest.mark.parametrize(("text", "key"), sampled(RESTRICTING, 4))
def test_what_restricts_and_is_not_honoured_refuses_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, key: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        serve.settings_of(arguments(path))
    assert [line.partition(": ")[0] for line in refused.value.problems] == [key]
    assert "--ignore-unsupported" in refused.value.problems[0]
    assert main(["check-config", str(path), "--json"]) == 1
    assert bare(orjson.loads(capsys.readouterr().out)["errors"]) == list(refused.value.problems)
    settings = serve.settings_of(arguments(path, "--ignore-unsupported"))
    assert not_honoured(settings)[0].path == key
    assert check_config.check(path, ignores_unsupported=True)["not_honoured"]


@pytest.mark.parametrize(("text", "key"), CHANGING)
def test_what_changes_is_said_and_starts(tmp_path: Path, text: str, key: str) -> None:
    settings = settings_of(tmp_path, text)
    serve.settings_of(arguments(tmp_path / "config.yaml"))
    assert [one.path for one in not_honoured(settings)] == [key]


@pytest.mark.parametrize(("text", "key"), HARMLESS)
def test_what_is_harmless_is_only_listed(tmp_path: Path, text: str, key: str) -> None:
    settings = settings_of(tmp_path, text)
    assert not_honoured(settings) == []
    assert key in [one.path for one in settings.unused]
    listed: Any = check_config.check(tmp_path / "config.yaml")["not_used"]
    assert any(line.startswith(f"{key}: ") for line in listed)


def fields(path: str, name: str) -> Iterator[str]:
    """The annotated names of a class of LiteLLM's, which is not imported: that takes seconds."""
    for node in ast.walk(ast.parse((LITELLM / path).read_text())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id.islower()
            )


def read_by_the_proxy(section: str) -> Iterator[str]:
    for path in (LITELLM / "proxy").rglob("*.py"):
        yield from re.findall(rf'{section}\.get\(\s*"([a-z_0-9]+)"', path.read_text(errors="replace"))


def read_of_models() -> Iterator[str]:
    for path in LITELLM.rglob("*.py"):
        if path.relative_to(LITELLM).parts[0].startswith(("proxy", "router")):
            yield from re.findall(r'model_info"?\)?\.get\(\s*"([a-z_]+)"', path.read_text(errors="replace"))


def router_arguments() -> Iterator[str]:
    for node in ast.walk(ast.parse((LITELLM / "router.py").read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
            if "model_group_alias" in names:
                yield from (name for name in names if name not in ("self", "model_list"))


def module_settings() -> Iterator[str]:
    for node in ast.parse((LITELLM / "__init__.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if name.islower() and not name.startswith("_") and not name.endswith("_models"):
                yield name


def litellm_keys() -> Iterator[tuple[str, str]]:
    general = {*fields("proxy/_types.py", "ConfigGeneralSettings"), *read_by_the_proxy("general_settings")}
    yield from (("general_settings", name) for name in general - set(GeneralSettings.model_fields))
    module = {*module_settings(), *read_by_the_proxy("litellm_settings")}
    yield from (("litellm_settings", name) for name in module - set(LiteLLMSettings.model_fields))
    router = {*router_arguments(), *fields("types/router.py", "UpdateRouterConfig")} - {"model_config"}
    yield from (("router_settings", name) for name in router - set(RouterSettings.model_fields))
    models = {*fields("types/router.py", "ModelInfo"), *read_of_models()}
    yield from (("model_info", name) for name in models - set(ModelInfo.model_fields))


@pytest.mark.slow
def test_every_key_of_litellm_has_a_class() -> None:
    keys = sorted(set(litellm_keys()))
    assert len(keys) > 400
    assert [key for key in keys if effect_of(*key)[0] is Effect.UNKNOWN] == []
    assert effect_of("general_settings", "something_new")[0] is Effect.UNKNOWN
    used = {*LiteLLMParams.model_fields, *ModelInfo.model_fields}
    assert {"api_key", "transport"} <= used


ADDRESSES = [
    ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False),
    ("::", False), ("", False), ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("fe80::1%eth0", False),
    ("169.254.1.1", False), ("::ffff:0.0.0.0", False), ("/run/stratiform.sock", False),
]  # fmt: skip


@pytest.mark.parametrize(("address", "expected"), ADDRESSES)
def test_which_addresses_are_this_machines_own(address: str, *, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "", "0.0.0.0", "::", "::1"])
def test_what_counts_is_the_address_that_is_bound(host: str) -> None:
    try:
        with listen(host, 0) as listener:
            bound = listener.getsockname()[0]
    except ConfigError:
        pytest.skip("no such address here")
    assert is_loopback(bound) is (host in ("localhost", "127.0.0.1", "::1"))
    assert socket.gethostname() != bound


def one(params: str) -> str:
    return f"model_list: [{{model_name: m, litellm_params: {{{params}}}}}]\n"


HTTP = "model: openai/m, api_base: 'http://localhost:1/v1'"
OPEN = [
    (one(HTTP + ", api_key: sk-provider"), True),
    (one(HTTP + ", extra_headers: {Authorization: Bearer sk}"), True),
    (one(HTTP + ", extra_headers: {X-Goog-Api-Key: sk}"), True),
    (one("model: openai/m, api_base: 'http://user:pass@localhost:1/v1'"), True),
    (one("model: anthropic/claude-sonnet-4-5, api_key: sk"), True),
    (one("model: bedrock/claude"), True),
    (one(HTTP), False),
    (one(HTTP + ", api_key: none"), False),
    (one(HTTP + ", extra_headers: {x-team: a}"), False),
    (one("model: embedded/m"), False),
    (one(HTTP + ", api_key: sk-provider") + "stratiform: {open_to_network: true}", False),
    (one(HTTP + ", api_key: sk-provider") + "general_settings: {master_key: sk-master}", False),
    (one(HTTP + ", api_key: sk-provider") + "stratiform: {teams: [{name: a, keys: [sk-a]}]}", False),
]


@pytest.mark.parametrize(("text", "is_refused"), OPEN)
def test_an_open_proxy_gives_no_keys_away(tmp_path: Path, text: str, *, is_refused: bool) -> None:
    settings = settings_of(tmp_path, text)
    is_open = foundation.declared(settings).is_empty
    refuse_exposed(settings, "127.0.0.1", is_open=is_open)
    if is_refused:
        with pytest.raises(ConfigError, match="open_to_network"):
            refuse_exposed(settings, "0.0.0.0", is_open=is_open)
        assert list(provider_keys(settings)) == ["m"]
    else:
        refuse_exposed(settings, "0.0.0.0", is_open=is_open)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_serve_refuses_an_unsafe_configuration_at_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(one(HTTP + ", api_key: sk-provider") + "stratiform: {store: memory}")
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    assert main(["serve", "--config", str(path), "--host", host, "--port", "0"]) == 1
    assert "stratiform.host: listens on" in capsys.readouterr().err


def test_a_reload_opens_no_door(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(one(HTTP))
    read = partial(serve._settings_at, arguments(path), "0.0.0.0")
    source = ConfigSource(read(), read)
    path.write_text(one(HTTP + ", api_key: sk-provider"))
    assert source.reread() is False
    path.write_text(one(HTTP) + "general_settings: {custom_auth: a.b}")
    assert source.reread() is False
    path.write_text(one(HTTP + ", timeout: 5"))
    assert source.reread() is True


@pytest.mark.parametrize("expires_at", [1, "2020-01-01", "2020-01-01T00:00:00Z", 1600000000.0])
@pytest.mark.parametrize("verb", ["POST", "PATCH"])
def test_a_key_must_expire_in_the_future(world: World, verb: str, expires_at: object) -> None:
    made = world.call("POST", "/admin/keys", {"team": "team-a", "expires_at": "30d"}, key="master").json
    path = "/admin/keys" if verb == "POST" else f"/admin/keys/{made['id']}"
    reply = world.call(verb, path, {"expires_at": expires_at}, key="master")
    assert reply.status == 400
    assert "must be a time in the future" in reply.json["error"]["message"]
    assert KEYS["master"] not in world.log


def test_a_declared_key_that_has_expired_fails_the_check(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = HEAD + "stratiform: {teams: [{name: a, keys: [{key: sk-a, expires: DATE}]}]}"
    path.write_text(text.replace("DATE", "2020-01-01"))
    (problem,) = check_config.check(path)["errors"]
    assert problem.startswith("stratiform.teams[0].keys[0].expires: has passed")
    path.write_text(text.replace("DATE", str((datetime.now(UTC) + timedelta(days=9)).date())))
    assert "errors" not in check_config.check(path)
