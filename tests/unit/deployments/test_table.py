"""Names, wildcards and defaults."""

import pytest

from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.providers import ANTHROPIC, NONE
from proxy.deployments import ListedModel, ModelTable, deployment_of
from proxy.errors import UnknownModel
from proxy.ports import Deployment, Transport
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
            ListedModel("m", "openai/a", order=2),
            ListedModel("m", "openai/b", order=1, weight=3.0),
            ListedModel("m", "openai/c", order=1),
            ListedModel("n", "openai/d"),
            ListedModel("w-*", "openai/*"),
        ],
        no_price,
        {"alias": "m"},
        {"m": ["n", "w-1", "m"], "*": ["n"]},
    )
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


def test_names_with_a_star_are_told_apart() -> None:
    models = table(
        ListedModel("b/*", "x/*"), ListedModel("a", "x/a"), ListedModel("*", "x/*"), ListedModel("b/*", "y/*")
    )
    assert (models.names(), models.patterns()) == (["a"], ["b/*", "*"])


def test_the_sole_upstream_gets_every_name_as_it_is() -> None:
    every = ListedModel("*", "openai/*", base_url=BASE)
    only = table(every).sole()
    assert only is not None
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
