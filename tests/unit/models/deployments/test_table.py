"""Names, wildcards and defaults; litellm's providers; cache profiles by provider, name and host."""

import asyncio
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxy.models.deployments as litellm_files
from proxy.kit.errors import UnknownModel
from proxy.kit.modes import Mode
from proxy.models import Deployment, Transport
from proxy.models.deployments import ListedModel, ModelTable, choose_profile, deployment_of, provider_names, provider_of
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, NONE, PROFILES
from proxy.upstream.litellm_library import Library
from tests.examples import for_every

BASE = "http://localhost:9/v1"


def no_price(deployment: Deployment) -> Price | None:
    return None


def table(*entries: ListedModel, **aliases: str) -> ModelTable:
    return ModelTable(entries, no_price, aliases)


def test_exact_names_come_before_wildcards_wherever_they_stand() -> None:
    models = table(ListedModel("*", "openai/*", base_url=BASE), ListedModel("gpt-5", "azure/eu"))
    assert models.resolve("gpt-5").model == "azure/eu"
    assert models.resolve("gpt-5.1").model == "gpt-5.1"


def test_the_most_specific_wildcard_wins() -> None:
    models = table(
        ListedModel("*", "openai/*", base_url=BASE),
        ListedModel("anthropic/*", "anthropic/*"),
        ListedModel("anthropic/claude-*", "bedrock/anthropic.claude-*"),
    )
    assert models.resolve("anthropic/claude-x").model == "bedrock/anthropic.claude-x"
    assert models.resolve("anthropic/other").model == "anthropic/other"
    assert models.resolve("anthropic").transport is Transport.HTTP


@pytest.mark.parametrize(
    ("name", "model", "asked", "sent"),
    [
        ("anthropic/*", "anthropic/*", "anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("mine/*", "openrouter/*", "mine/a/b", "openrouter/a/b"),
        ("fo::*::static::*", "x/fo::*::static::*", "fo::bar::static::baz", "x/fo::bar::static::baz"),
        ("*meta.llama3*", "bedrock/meta.llama3*", "hello-meta.llama3-70b", "hello-meta.llama3-70b"),
        ("fast-*", "groq/llama", "fast-anything", "groq/llama"),
        ("*", "*", "anthropic/claude-x", "anthropic/claude-x"),
    ],
)
def test_what_a_star_matched_replaces_the_star(name: str, model: str, asked: str, sent: str) -> None:
    found = table(ListedModel(name, model, transport=Transport.LITELLM)).resolve(asked)
    assert (found.model, found.name) == (sent, asked)


def test_patterns_are_no_regular_expressions() -> None:
    with pytest.raises(UnknownModel):
        table(ListedModel("gpt.5-*", "openai/*")).resolve("gptX5-a")


def test_a_bare_name_is_found_under_its_providers_wildcard() -> None:
    models = table(ListedModel("openai/*", "openai/*"), ListedModel("anthropic/*", "anthropic/*"))
    assert models.resolve("gpt-5").model == "openai/gpt-5"
    assert models.resolve("claude-x").model == "anthropic/claude-x"
    with pytest.raises(UnknownModel):
        models.resolve("llama")


def test_the_prefix_is_cut_off_on_http_and_kept_for_litellm() -> None:
    assert table(ListedModel("m", "openai/a/b", base_url=BASE)).resolve("m").model == "a/b"
    assert table(ListedModel("m", "openai/a")).resolve("m").model == "openai/a"
    assert table(ListedModel("m", "deepseek/a", transport=Transport.HTTP, base_url=BASE)).resolve("m").model == "a"


@pytest.mark.parametrize(
    ("model", "base_url", "transport"),
    [
        ("openai/m", BASE, Transport.HTTP),
        ("gpt-5", BASE, Transport.HTTP),
        ("openai/m", "", Transport.LITELLM),
        ("anthropic/m", BASE, Transport.LITELLM),
        ("m", BASE, Transport.LITELLM),
        ("embedded/m", "", Transport.EMBEDDED),
    ],
)
def test_the_transport_follows_from_the_model_and_its_address(model: str, base_url: str, transport: Transport) -> None:
    assert table(ListedModel("m", model, base_url=base_url)).resolve("m").transport is transport


def test_several_deployments_of_a_name_are_kept_and_the_first_serves() -> None:
    models = table(
        ListedModel("m", "openai/a"),
        ListedModel("m", "openai/b"),
        ListedModel("w-*", "openai/c"),
        ListedModel("w-*", "openai/d"),
    )
    assert [d.model for d in models.candidates("m")] == ["openai/a", "openai/b"]
    assert [d.model for d in models.candidates("w-1")] == ["openai/c", "openai/d"]
    assert models.resolve("m").model == "openai/a"


def test_names_list_exact_ones_and_aliases() -> None:
    models = table(
        ListedModel("a", "openai/a"), ListedModel("w-*", "openai/*"), ListedModel("a", "openai/b"), alias="w-1"
    )
    assert list(models.names()) == ["a", "alias"]
    assert models.resolve("alias").model == "openai/1"


def test_an_unknown_model_is_named_and_cut_short() -> None:
    with pytest.raises(UnknownModel) as caught:
        table(ListedModel("a", "openai/a")).resolve("b" * 10_000)
    assert caught.value.status == 404
    assert caught.value.param == "model"
    assert len(caught.value.message) < 400
    with pytest.raises(UnknownModel):
        table(ListedModel("*", "openai/*")).resolve("b" * 10_000)


def test_names_behind_a_wildcard_are_remembered_within_bounds() -> None:
    models = table(ListedModel("*", "openai/*"))
    assert models.resolve("a") is models.resolve("a")
    for number in range(3000):
        models.resolve(f"m{number}")
    assert len(models._matched) <= 1024


@pytest.mark.parametrize(
    ("entries", "base_url"),
    [
        (
            [ListedModel("a", "openai/a", base_url="http://a"), ListedModel("*", "openai/*", base_url="http://b")],
            "http://b",
        ),
        ([ListedModel("*", "anthropic/*"), ListedModel("a", "openai/a", base_url="http://a")], "http://a"),
        ([ListedModel("e", "embedded/e"), ListedModel("a-*", "openai/a", base_url="http://a")], "http://a"),
        ([ListedModel("c", "anthropic/c"), ListedModel("e", "embedded/e")], ""),
    ],
)
def test_paths_without_a_model_have_a_fallback(entries: list[ListedModel], base_url: str) -> None:
    found = table(*entries).unnamed()[0]
    assert found.base_url == base_url
    assert found.transport is not Transport.LITELLM


def test_paths_without_a_model_may_have_several_deployments() -> None:
    first, second = (ListedModel(name, f"openai/{name}", base_url=f"http://{name}") for name in "ab")
    again = ListedModel("c", "openai/c", base_url="http://a")
    litellm = ListedModel("d", "anthropic/d")
    assert [one.name for one in table(litellm, first, again, second).unnamed()] == ["a", "b"]
    every = ListedModel("*", "openai/*", base_url="http://e")
    assert [one.name for one in table(first, second, every).unnamed()] == ["*"]
    told = ModelTable([first, second, every], lambda deployment: None, default="b")
    assert [one.name for one in told.unnamed()] == ["b"]


def test_litellm_alone_has_no_such_paths() -> None:
    with pytest.raises(UnknownModel, match="names no model"):
        table(ListedModel("*", "anthropic/*")).unnamed()


def test_transports_in_use() -> None:
    models = table(ListedModel("c", "anthropic/c"), ListedModel("e-*", "embedded/*"))
    assert models.transports() == {Transport.LITELLM, Transport.EMBEDDED}


def test_the_profile_is_fitted_to_the_model() -> None:
    def cheap_reads(deployment: Deployment) -> Price:
        return Price(1.0, 5.0, 0.05, 1.25, 2.0)

    found = deployment_of(ListedModel("o", "anthropic/claude-opus-4-6"), cheap_reads).profile
    assert (found.name, found.min_tokens, found.read, found.write) == ("anthropic", 4096, 0.05, 1.25)
    assert deployment_of(ListedModel("o", "anthropic/claude-x"), no_price).profile == ANTHROPIC
    assert deployment_of(ListedModel("o", "groq/llama"), cheap_reads).profile is NONE


def test_a_read_price_that_the_map_does_not_know_changes_nothing() -> None:
    found = deployment_of(ListedModel("o", "anthropic/claude-x"), lambda _: Price(1.0, 5.0, 1.0, 1.0, 1.0))
    assert found.profile.read == ANTHROPIC.read


def test_what_the_configuration_says_wins() -> None:
    entry = ListedModel(
        "m", "openai/claude", base_url=BASE, profile=ANTHROPIC, mode=Mode.MARK, reminder="r", timeout_s=5.0
    )
    found = deployment_of(entry, no_price)
    assert (found.profile.name, found.mode, found.reminder, found.timeout_s) == ("anthropic", Mode.MARK, "r", 5.0)


def test_wider_models_follow_one_another_each_once() -> None:
    names = "abcd"
    entries = [ListedModel(name, f"openai/{name}") for name in names]
    wider = {"a": ["b", "a"], "b": ["c", "alias"], "c": ["a", "b"]}
    models = ModelTable(entries, no_price, {"alias": "a"}, wider=wider)
    assert [[d.id for d in level] for level in models.wider("a")] == [["b"], ["c"]]
    assert [[d.id for d in level] for level in models.wider("alias")] == [["b"], ["c"]]
    assert [[d.id for d in level] for level in models.wider("c")] == [["a"], ["b"]]
    assert models.wider("d") == ()
    every = ModelTable(entries, no_price, wider={"*": ["d"]})
    assert [[d.id for d in level] for level in every.wider("a")] == [["d"]]
    assert every.wider("d") == ()


def test_levels_are_the_group_by_its_order_then_the_fallbacks() -> None:
    models = ModelTable(
        [
            ListedModel("m", "openai/a", order=2), ListedModel("m", "openai/b", order=1, weight=3.0),
            ListedModel("m", "openai/c", order=1), ListedModel("n", "openai/d"), ListedModel("w-*", "openai/*"),
        ],
        no_price,
        {"alias": "m"},
        {"m": ["n", "w-1", "m"], "*": ["n"]},
    )  # fmt: skip
    found = [[(d.id, d.model, d.weight) for d in level] for level in models.levels("m")]
    assert found == [
        [("m#2", "openai/b", 3.0), ("m#3", "openai/c", 1.0)],
        [("m#1", "openai/a", 1.0)],
        [("n", "openai/d", 1.0)],
        [("w-1", "openai/1", 1.0)],
    ]
    assert [d.id for level in models.levels("alias") for d in level] == ["m#2", "m#3", "m#1", "n", "w-1"]
    assert [d.id for level in models.levels("w-9") for d in level] == ["w-9", "n"]
    assert [d.id for level in models.levels("n") for d in level] == ["n"]
    assert models.resolve("m").id == "m#2"


def test_deployments_behind_a_wildcard_are_numbered_by_the_name_that_was_asked_for() -> None:
    models = table(ListedModel("w-*", "openai/*", base_url=BASE), ListedModel("w-*", "azure/*"))
    assert [d.id for d in models.levels("w-a")[0]] == ["w-a#1", "w-a#2"]
    assert {d.entry for d in models.levels("w-a")[0]} == {"w-*"}


@given(
    st.lists(st.sampled_from(["a", "b", "b-*", "*"]), min_size=1, max_size=6),
    st.sampled_from(["a", "b", "b-1", "other"]),
)
def test_each_deployment_is_known_by_its_id_and_the_first_of_its_group_stands_for_one_that_is_gone(
    names: list[str], asked: str
) -> None:
    models = table(*(ListedModel(name, "openai/*", base_url=f"{BASE}/{n}") for n, name in enumerate(names)))
    with suppress(UnknownModel):
        group = models.candidates(asked)
        assert [models.known(one.id) for one in group] == list(group)
        if asked in names and len(group) > 1:
            assert models.known(f"{asked}#99") == group[0]


def test_names_with_a_star_are_told_apart() -> None:
    models = table(
        ListedModel("b/*", "x/*"), ListedModel("a", "x/a"), ListedModel("*", "x/*"), ListedModel("b/*", "y/*")
    )
    assert (models.names(), models.patterns()) == (["a"], ["b/*", "*"])


def test_the_sole_upstream_gets_every_name_as_it_is() -> None:
    every = ListedModel("*", "openai/*", base_url=BASE)
    only = table(every).sole()
    assert only.base_url == BASE
    others = [
        table(),
        table(every, ListedModel("gpt-5", "openai/gpt-5", base_url=BASE)),
        table(every, ListedModel("mine/*", "openai/*", base_url=BASE)),
        table(every, every),
        table(every, mine="theirs"),
        table(ListedModel("*", "openai/fixed", base_url=BASE)),
        table(ListedModel("openai/*", "openai/*", base_url=BASE)),
        table(ListedModel("*", "*")),
        ModelTable([every], no_price, fallbacks={"*": ["other"]}),
    ]
    assert [models.sole() for models in others] == [None] * len(others)


@for_every(
    [
        ("exact", ["exact"]),
        ("alias", ["exact", "alias"]),
        ("gpt-5", ["openai/*", "openai/gpt-5", "gpt-5"]),
        ("openai/gpt-5", ["openai/*", "gpt-5", "openai/gpt-5"]),
        ("openai/exact", ["openai/*", "openai/exact"]),
        ("wild", ["openai/*", "openai/gpt-5", "gpt-5", "wild"]),
        ("unknown", ["unknown"]),
        ("", [""]),
    ]
)
def test_a_models_spellings_are_the_names_that_the_same_line_serves(name: str, spellings: list[str]) -> None:
    lines = (ListedModel("exact", "openai/exact"), ListedModel("openai/*", "openai/*"))

    assert table(*lines, alias="exact", wild="gpt-5").spellings(name) == spellings


SOURCE = """
class LlmProviders(str, Enum):
    OPENAI = "openai"
    WITH_2 = 'with-2'

class Other(str, Enum):
    NONE = "none"
"""


def test_names_of_code_and_of_data_are_known() -> None:
    found = provider_names()
    assert {"openai", "anthropic", "bedrock", "vertex_ai", "hosted_vllm", "ollama", "openrouter", "publicai"} <= found
    assert not {"antrhopic", "", "chat", "embedded"} & found


@pytest.mark.slow
def test_litellm_itself_knows_the_same_names() -> None:
    litellm = asyncio.run(Library().module())
    assert {str(getattr(name, "value", name)) for name in litellm.provider_list} <= provider_names()


@pytest.mark.parametrize(
    ("source", "data", "expected"),
    [
        (SOURCE, '{"described": {}}', {"openai", "with-2", "described"}),
        (SOURCE.replace("LlmProviders", "Renamed"), "{}", set()),
        (SOURCE, "[]", set()),
        (SOURCE, "{", set()),
        (None, "{}", set()),
    ],
)
def test_files_of_another_form_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, data: str, expected: set[str]
) -> None:
    for name, text in (("types/utils.py", source), ("llms/openai_like/providers.json", data)):
        (tmp_path / name).parent.mkdir(parents=True)
        if text is not None:
            (tmp_path / name).write_text(text)
    spec = ModuleSpec("litellm", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(litellm_files, "find_spec", lambda name: spec)
    assert provider_names() == expected


LITELLM, HTTP, EMBEDDED = Transport.LITELLM, Transport.HTTP, Transport.EMBEDDED


@for_every(
    [
        (LITELLM, "anthropic", "claude-sonnet-4-5", "", "anthropic"),
        (LITELLM, "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "", "bedrock"),
        (LITELLM, "bedrock", "converse/us.anthropic.claude-opus-4-5-20251101-v1:0", "", "bedrock"),
        (LITELLM, "vertex_ai", "claude-sonnet-4-5@20250929", "", "vertex"),
        (LITELLM, "azure_ai", "claude-opus-5", "", "foundry"),
        (LITELLM, "litellm_proxy", "claude-opus-5", "proxy.internal", "anthropic"),
        (LITELLM, "openrouter", "anthropic/claude-sonnet-4.5", "", "openrouter-anthropic"),
        (LITELLM, "databricks", "databricks-claude-sonnet-4-5", "", "none"),
        (LITELLM, "groq", "llama-4", "", "none"),
        (LITELLM, "openai", "gpt-5.6", "", "openai-explicit"),
        (LITELLM, "openai", "gpt-6.1-sol", "", "openai-explicit"),
        (LITELLM, "openai", "gpt-5.5", "", "openai"),
        (LITELLM, "openai", "gpt-5", "", "openai"),
        (LITELLM, "openai", "gpt-5-mini-2025-08-07", "", "openai"),
        (LITELLM, "openai", "gpt-4o", "", "openai"),
        (LITELLM, "openai", "o4-mini", "", "openai"),
        (LITELLM, "openai", "chatgpt-4o-latest", "", "openai"),
        (LITELLM, "azure", "gpt-5.6", "", "azure"),
        (LITELLM, "azure", "gpt-5", "x.openai.azure.com", "azure"),
        (HTTP, "openai", "gpt-5", "x.openai.azure.com", "azure"),
        (LITELLM, "groq", "openai/gpt-oss-120b", "", "groq"),
        (LITELLM, "deepseek", "deepseek-chat", "", "deepseek"),
        (LITELLM, "openrouter", "deepseek/deepseek-chat", "", "openrouter-deepseek"),
        (LITELLM, "fireworks_ai", "deepseek-v4-flash", "", "fireworks"),
        (LITELLM, "gemini", "gemini-2.5-pro", "", "gemini"),
        (LITELLM, "vertex_ai", "gemini-3.8-flash", "", "vertex-gemini"),
        (HTTP, "openai", "gemini-3.8-flash", "generativelanguage.googleapis.com", "gemini"),
        (HTTP, "openai", "google/gemini-3.8-flash", "openrouter.ai", "openrouter-gemini"),
        (LITELLM, "xai", "grok-4.7", "", "xai"),
        (HTTP, "openai", "grok-4.7", "api.x.ai", "xai"),
        (LITELLM, "openrouter", "x-ai/grok-4.7", "", "openrouter-xai"),
        (LITELLM, "mistral", "mistral-large-4", "", "mistral"),
        (HTTP, "openai", "codestral-2508", "api.mistral.ai", "mistral"),
        (LITELLM, "groq", "moonshotai/kimi-k2-instruct-0905", "", "groq"),
        (LITELLM, "moonshot", "kimi-k3", "", "kimi"),
        (HTTP, "openai", "kimi-k3", "api.moonshot.cn", "kimi"),
        (LITELLM, "moonshot", "moonshot-v1-8k", "", "none"),
        (LITELLM, "openrouter", "moonshotai/kimi-k3", "", "none"),
        (LITELLM, "zai", "glm-5.3", "", "glm"),
        (LITELLM, "dashscope", "qwen3.8-max", "", "qwen"),
        (HTTP, "openai", "qwen3.8-max", "dashscope-intl.aliyuncs.com", "qwen"),
        (LITELLM, "dashscope", "deepseek-v4-pro", "", "qwen-implicit"),
        (LITELLM, "openrouter", "qwen/qwen3.8-max", "", "none"),
        (LITELLM, "minimax", "MiniMax-M3", "", "minimax-passive"),
        (LITELLM, "together_ai", "moonshotai/Kimi-K3", "", "together"),
        (HTTP, "openai", "accounts/fireworks/models/glm-5p3", "api.fireworks.ai", "fireworks"),
        (LITELLM, "hosted_vllm", "qwen3-coder", "gpu.internal", "vllm"),
        (LITELLM, "deepseek", "deepseek-chat", "gateway.internal", "none"),
        (HTTP, "openai", "gpt-6-sol", "api.openai.com", "openai-explicit"),
        (HTTP, "openai", "gpt-6-sol", "gateway.internal", "openai"),
        (HTTP, "openai", "openai/gpt-5.6", "openrouter.ai", "openrouter-openai-explicit"),
        (HTTP, "openai", "openai/gpt-5", "openrouter.ai", "openrouter-openai"),
        (HTTP, "openai", "anthropic/claude-sonnet-4.5", "openrouter.ai", "openrouter-anthropic"),
        (HTTP, "openai", "claude-sonnet-4-5", "gateway.internal", "none"),
        (HTTP, "openai", "claude-sonnet-4-5", "notopenrouter.ai", "none"),
        (HTTP, "openai", "claude-sonnet-4-5", "api.anthropic.com", "none"),
        (HTTP, "openai", "deepseek-chat", "api.deepseek.com", "deepseek"),
        (HTTP, "openai", "deepseek-r1", "localhost", "none"),
        (HTTP, "openai", "qwen3-coder", "localhost", "none"),
        (HTTP, "openai", "octopus", "localhost", "none"),
        (EMBEDDED, "embedded", "claude-sonnet-4-5", "", "anthropic"),
        (EMBEDDED, "embedded", "gpt-5.6", "", "openai-explicit"),
        (EMBEDDED, "embedded", "gpt-4o", "", "openai"),
        (EMBEDDED, "embedded", "deepseek-chat", "", "deepseek"),
        (EMBEDDED, "embedded", "gemini-3.8-flash", "", "gemini"),
        (EMBEDDED, "embedded", "qwen3.8-max", "", "qwen"),
        (EMBEDDED, "embedded", "anything", "", "anthropic"),
    ]
)
def test_a_model_has_the_profile_of_its_provider(
    transport: Transport, provider: str, model: str, host: str, profile: str
) -> None:
    assert choose_profile(transport, provider, model, host) is PROFILES[profile]


@for_every(
    [
        ("openai/gpt-5", "", ("openai", "gpt-5")),
        ("openrouter/anthropic/claude", "", ("openrouter", "anthropic/claude")),
        ("gpt-5", "", ("openai", "gpt-5")),
        ("o3", "", ("openai", "o3")),
        ("claude-x", "", ("anthropic", "claude-x")),
        ("llama", "", ("", "llama")),
        ("llama", "ollama", ("ollama", "llama")),
        ("ollama/llama", "ollama", ("ollama", "llama")),
        ("meta/llama", "openai", ("openai", "meta/llama")),
    ]
)
def test_the_provider_is_the_prefix(model: str, given: str, expected: tuple[str, str]) -> None:
    assert provider_of(model, given) == expected
