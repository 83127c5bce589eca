"""From settings to parts."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app import composition, factories, foundation
from proxy.app.settings import ConfigError, Environment, Settings, load
from proxy.kit.modes import Mode
from proxy.models import Transport
from proxy.models.deployments import ModelTable, token_limits
from proxy.planner.tiers import ClassicPolicy
from proxy.protocol.prices import PriceMap
from proxy.protocol.request.tokens import bytes_over_four
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Directory

MODEL = "{model_name: m, litellm_params: {model: openai/m, api_base: 'http://localhost:9/v1'}, model_info: %s}"


def settings(folder: Path, text: str, upstream: str = "") -> Settings:
    path = folder / "config.yaml"
    path.write_text(text)
    return load(path, upstream, Environment({"HOME": str(folder)}))


def table(folder: Path, text: str, upstream: str = "") -> ModelTable:
    read = settings(folder, text, upstream)
    return factories.model_table(read, factories.price_map(read))


def one_model(info: str, more: str = "") -> str:
    return f"model_list: [{MODEL % info}]\n{more}"


@pytest.mark.parametrize(
    ("global_mode", "own_mode", "mode"),
    [("tier", "mark", Mode.MARK), ("observe", "tier", Mode.OBSERVE), ("mark", "chat", Mode.MARK)],
)
def test_a_models_mode_lowers_the_global_one_and_never_raises_it(
    tmp_path: Path, global_mode: str, own_mode: str, mode: Mode
) -> None:
    text = one_model(f"{{mode: {own_mode}}}", f"stratiform: {{mode: {global_mode}}}")
    assert table(tmp_path, text).resolve("m").mode is mode


def test_a_reminder_comes_along_or_from_a_file_without_its_front_matter(tmp_path: Path) -> None:
    ours = table(tmp_path, one_model("{system_reminder: true}")).resolve("m").reminder
    assert ours.startswith("Before you write the edits")
    assert "---" not in ours
    assert table(tmp_path, one_model("{system_reminder: system_reminder}")).resolve("m").reminder == ours
    (tmp_path / "own.md").write_text("---\nid: x\n---\n\n  Be brief.\n---\nMore.\n")
    own = table(tmp_path, one_model("{system_reminder: own.md}")).resolve("m").reminder
    assert own == "Be brief.\n---\nMore."
    assert table(tmp_path, one_model("{}")).resolve("m").reminder == ""


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("{system_reminder: gone.md}", "model_list[0].model_info.system_reminder: FOLDER/gone.md cannot be read"),
        ("{system_reminder: empty.md}", "model_list[0].model_info.system_reminder: FOLDER/empty.md holds no text"),
    ],
)
def test_a_reminder_without_a_text_is_an_error(tmp_path: Path, info: str, message: str) -> None:
    (tmp_path / "empty.md").write_text("---\nid: x\n---\n\n")
    with pytest.raises(ConfigError) as caught:
        table(tmp_path, one_model(info))
    assert caught.value.problems == (message.replace("FOLDER", str(tmp_path)),)


NAMES = st.sampled_from(["m", "gpt-5", "openai/gpt-5", "claude-x", "i", "a", "b"])
TARGETS = NAMES | st.just("n" * 257)
LINES = st.fixed_dictionaries(
    {
        "model_name": NAMES | st.sampled_from(["*", "openai/*", "*/*"]),
        "litellm_params": st.just({"model": "openai/m", "api_base": "http://localhost:9/v1"}),
    },
    optional={"model_info": st.just({"id": "i"})},
)
FALLBACKS = st.lists(st.dictionaries(NAMES, st.lists(TARGETS, min_size=1, max_size=2), max_size=2), max_size=2)


@given(
    st.lists(LINES, min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["a", "b"]), TARGETS),
    st.dictionaries(st.sampled_from(["fallbacks", "context_window_fallbacks"]), FALLBACKS),
)
def test_a_configuration_without_problems_serves_every_name_in_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[object], aliases: dict[str, str], more: dict[str, object]
) -> None:
    text = json.dumps({"model_list": lines, "router_settings": {"model_group_alias": aliases, **more}})
    found, problems = factories.model_table_with(settings(tmp_path_factory.mktemp("listed"), text), PriceMap({}))
    assert all("leads to" in problem for problem in problems)
    if problems:
        return
    for name, _ in found.listed():
        assert found.levels(name)
        found.wider(name)


def test_an_alias_must_lead_somewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="router_settings.model_group_alias.a: leads to `nowhere`"):
        table(tmp_path, one_model("{}", "router_settings: {model_group_alias: {a: nowhere}}"))


@pytest.mark.parametrize(
    ("model", "base_url"),
    [("openai/gpt-5", "https://api.openai.com/v1"), ("openrouter/a/b", "https://openrouter.ai/api/v1")],
)
def test_the_http_transport_knows_some_addresses(tmp_path: Path, model: str, base_url: str) -> None:
    text = f"model_list: [{{model_name: m, litellm_params: {{model: {model}}}, model_info: {{transport: http}}}}]"
    assert table(tmp_path, text).resolve("m").base_url == base_url


def test_the_http_transport_needs_an_address(tmp_path: Path) -> None:
    text = "model_list: [{model_name: m, litellm_params: {model: groq/x}, model_info: {transport: http}}]"
    with pytest.raises(ConfigError, match=r"model_list\[0\].litellm_params.api_base: is required for the http"):
        table(tmp_path, text)


@pytest.mark.parametrize(("written", "meant"), [("antrhopic", "anthropic"), ("embeded", "embedded")])
def test_a_provider_that_is_not_known_is_compared_with_those_that_are(tmp_path: Path, written: str, meant: str) -> None:
    text = f"model_list: [{{model_name: m, litellm_params: {{model: {written}/x}}}}]"
    with pytest.raises(ConfigError, match=f"names a provider that litellm does not know; did you mean `{meant}`"):
        table(tmp_path, text)


@pytest.mark.parametrize("address", ["http://h/v1?key=x", "http://h/v1#x", "http://h/v1/chat/completions"])
def test_only_litellm_gets_an_address_that_no_path_can_be_appended_to(tmp_path: Path, address: str) -> None:
    given = "model_list: [{model_name: m, litellm_params: {model: %s/x, api_base: '%s', api_key: k}}]"
    with pytest.raises(ConfigError, match=r"model_list\[0\].litellm_params.api_base: must have no `[?]` and no `#`"):
        table(tmp_path, given % ("openai", address))
    assert table(tmp_path, given % ("azure_ai", address)).resolve("m").base_url == address


def test_an_upstream_alone_serves_every_model_under_the_clients_own_name() -> None:
    read = load(None, "https://openrouter.ai/api/v1", Environment({}))
    models = factories.model_table(read, factories.price_map(read))
    for name in ("openai/gpt-5", "anthropic/claude-sonnet-4.5", "plain"):
        found = models.resolve(name)
        assert (found.model, found.name, found.transport, found.api_key) == (name, name, Transport.HTTP, None)
    assert models.resolve("anthropic/claude-sonnet-4.5").profile.name == "openrouter-anthropic"
    assert factories.price_source(factories.price_map(read))(models.resolve("anthropic/claude-sonnet-4.5")) is not None
    assert list(models.names()) == []
    assert models.unnamed()[0].base_url == "https://openrouter.ai/api/v1"


def test_an_upstream_beside_a_file_serves_what_the_file_does_not(tmp_path: Path) -> None:
    models = table(tmp_path, one_model("{}"), "http://other/v1")
    assert models.resolve("m").base_url == "http://localhost:9/v1"
    assert models.resolve("x").base_url == "http://other/v1"


def test_prices_of_the_configuration_win(tmp_path: Path) -> None:
    text = one_model("{}", "stratiform: {prices: {m: {input_cost_per_token: 2, output_cost_per_token: 3}}}")
    read = settings(tmp_path, text)
    prices = factories.price_map(read)
    found = factories.price_source(prices)(factories.model_table(read, prices).resolve("m"))
    assert found is not None
    assert (found.input, found.read, found.output) == (2, 2, 3)


def test_a_file_that_nobody_asked_for_may_be_impossible(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / ".local").write_text("no folder")
    read = settings(tmp_path, one_model("{}", "general_settings: {master_key: mk}"))
    store = asyncio.run(factories.open_store(read))
    assert not store.is_durable
    assert "keys and spend are in memory and end with the process" in caplog.text

    async def named() -> str:
        assembly = await composition.build(read, encode=bytes_over_four)
        await assembly.parts.engine.aclose()
        return assembly.store

    assert asyncio.run(named()) == "memory"
    with pytest.raises(ConfigError):
        asyncio.run(factories.open_store(settings(tmp_path, one_model("{}", "stratiform: {teams: [{name: red}]}"))))


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    read = settings(tmp_path, one_model("{}", "stratiform: {store: 'sqlite:file/below/spend.sqlite'}"))
    with pytest.raises(ConfigError, match=f"stratiform.store: {tmp_path}/file/below/spend.sqlite cannot be used"):
        asyncio.run(factories.open_store(read))


async def test_teams_have_their_modes_and_the_master_key_has_none_of_them(tmp_path: Path) -> None:
    more = "general_settings: {master_key: mk}\nstratiform: {teams: [{name: red, keys: [rk], mode: observe}]}"
    read = settings(tmp_path, one_model("{}", more))
    store = MemoryStore()
    known = Directory(foundation.declared(read), store)
    await known.load()
    identity = foundation.identity(read, known, store)
    red = identity.admit([("authorization", "Bearer rk")], 0.0)
    master = identity.admit([("authorization", "Bearer mk")], 0.0)
    assert (red.team, red.mode) == ("red", Mode.OBSERVE)
    assert (master.team, master.mode) == ("default", Mode.TIER)
    other = foundation.identity(read, known, store)
    assert other.admit([("authorization", "Bearer rk")], 0.0).scope != red.scope


@pytest.mark.parametrize(
    ("upstream", "words"),
    [
        ("http://127.0.0.1:9/v1", "openai for GPT models and none for others: --cache-profile NAME"),
        ("https://openrouter.ai/api/v1", "by the model's name at openrouter"),
    ],
)
def test_the_cache_rules_of_an_upstream_without_a_profile_follow_from_its_host(upstream: str, words: str) -> None:
    assert factories.upstream_profile(load(None, upstream, environment=Environment({}))).startswith(words)


def test_what_a_model_can_read_and_write_is_what_the_price_map_says(tmp_path: Path) -> None:
    models = table(tmp_path, "model_list:\n- {model_name: s, litellm_params: {model: anthropic/claude-sonnet-4-5}}\n")
    unknown = replace(models.resolve("s"), price=None)

    assert token_limits(models.resolve("s")) == (200_000, 64_000)
    assert token_limits(unknown) == (None, None)


def test_the_flags_of_the_tiers_come_from_the_configuration(tmp_path: Path) -> None:
    text = "stratiform: {policy: classic, structured: {text_mib: 8, classic: {history: piggyback, anchoring: never}}}\n"
    plain = factories.assembly_options(Settings())
    options = factories.assembly_options(settings(tmp_path, one_model("{}", text)))
    aimed = factories.assembly_options(
        settings(tmp_path, one_model("{}", "stratiform: {structured: {classic: {cache_target_tokens: 0}}}\n"))
    )

    assert (plain.policy, plain.classic, plain.has_target) == ("economic", ClassicPolicy(), False)
    assert (options.policy, options.text_bytes) == ("classic", 8 << 20)
    assert (options.classic.history, options.classic.anchoring) == ("piggyback", "never")
    assert (aimed.has_target, aimed.classic.target_tokens) == (True, 0)
