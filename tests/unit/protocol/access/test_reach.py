"""Which models a request can reach."""

import json

import pytest

from proxy.protocol.access import MODEL_HEADER, ModelPlace, Reach, place_of, reach_of
from proxy.protocol.account import read_path
from tests.examples import for_every
from tests.growth import assert_linear

FORM = {"type": "object", "properties": {"model": {"type": "string"}}}
ASKING = {"name": "f", "parameters": FORM, "defer_loading": True, "allowed_callers": ["direct"]}


def reach(path: str = "/chat/completions", query: str = "", method: str = "POST", **members: object) -> Reach:
    raw = {name: json.dumps(value).encode() for name, value in members.items()}
    return reach_of(method, read_path(path), query, (), raw)


@for_every(
    [
        ({"model": "a"}, ("a",)),
        ({"models": ["b", "c"], "model": "a"}, ("a", "b", "c")),
        ({"model": "a", "fallbacks": [{"a": ["b"]}, {"model": "c"}, "d"]}, ("a", "b", "c", "d")),
        ({"model": "a", "context_window_fallbacks": [{"a": ["b"]}]}, ("a", "b")),
        ({"model": "a", "tools": [{"type": "function", "function": {"model": "c"}}]}, ("a",)),
        ({"model": "a", "messages": [{"model": "b"}], "metadata": {"model": "c"}}, ("a",)),
        ({"model": "a", "fallback": None, "use_fallback": True, "model_version": 3}, ("a",)),
        ({"model": "a", "provider": {"allow_fallbacks": False, "order": ["model"]}}, ("a",)),
        ({"model": "a", "tools": [{**ASKING, "type": "function", "strict": False, "output_schema": FORM}]}, ("a",)),
        ({"model": "a", "tools": [{"type": "namespace", "name": "n", "description": "", "tools": [ASKING]}]}, ("a",)),
        ({"model": "a", "tools": [{"name": "f", "input_schema": FORM, "input_examples": [{"model": "x"}]}]}, ("a",)),
        ({"model": "a", "tools": [{"functionDeclarations": [{"parameters": {"model": {"type": "x"}}}]}]}, ("a",)),
    ]
)
def test_every_member_that_names_models_counts(members: dict[str, object], models: tuple[str, ...]) -> None:
    assert reach(**members) == Reach(models)


@for_every(
    [
        ("/engines/x/completions", ModelPlace("x", 1)),
        ("/v1/engines/x/completions", ModelPlace("x", 2)),
        ("/openai/deployments/X/chat/completions", ModelPlace("X", 2)),
        ("/models/a%2Fb:generateContent", ModelPlace("a/b", 1, ":generateContent")),
        ("/models/ft:x:streamGenerateContent", ModelPlace("ft:x", 1, ":streamGenerateContent")),
        ("/models/x:other", None),
        ("/models/x", None),
        ("/engines/x", None),
        ("/engines/x/files", None),
        ("/deployments/x/y/chat/completions", None),
        ("/a/engines/x/completions", None),
    ]
)
def test_a_path_that_names_a_model(path: str, place: ModelPlace | None) -> None:
    assert place_of(read_path(path)) == place


@pytest.mark.parametrize(
    "query", ["model=b", "MODEL=b", "%6dodel=%62", "a&model[]=b", "a;model=b", "x_model=b", "engine=b"]
)
def test_a_query_that_names_a_model(query: str) -> None:
    assert reach(query=query, model="a").models == ("a", "b")


@pytest.mark.parametrize("query", ["%256dodel=b", "%ff=b", "model=%ff", "_method=PUT"])
def test_a_query_that_is_not_understood(query: str) -> None:
    assert reach(query=query, model="a").unread


def test_only_a_plain_question_is_one_for_the_list() -> None:
    for path in ("/models", "/models/x", "/v1/models"):
        assert reach_of("GET", read_path(path), has_body=False) == Reach(is_listing=True)
        assert not reach_of("GET", read_path(path)).is_listing
        assert not reach_of("DELETE", read_path(path), has_body=False).is_listing
        chosen = reach_of("GET", read_path(path), "", ((MODEL_HEADER, "b"),), has_body=False)
        assert not chosen.is_listing, "the header chooses an upstream, and its list is that account's"
        assert chosen.chosen == "b"


@pytest.mark.parametrize(
    "path", ["/files", "/batches", "/x/chat/completions", "/chat/completions/x", "/fine_tuning/jobs"]
)
def test_what_a_path_reaches_is_known_or_not(path: str) -> None:
    assert reach(path, model="a").is_foreign
    assert not reach("/threads/t/runs", model="a").is_foreign


@for_every(
    [
        {"session": {"model": "b"}},
        {"judge_model": "b"},
        {"Models": ["b"]},
        {"preset": "b"},
        {"tools": [{"type": "x", "model": "b"}]},
        {"tools": [{"type": "function", "function": {}, "model": ["b"]}]},
        {"tools": [{"type": "x", "inner": [{"fallbacks": {"b": 1}}]}]},
        {"tools": [{"type": "namespace", "tools": [ASKING], "model": "b"}]},
        {"tools": [{"type": "namespace", "tools": [{**ASKING, "model": "b"}]}]},
        {"tools": [{"type": "namespace", "tools": [{"type": "namespace", "tools": [ASKING]}]}]},
        {"tools": [{"type": "namespace", "tools": {"model": "b"}}]},
        {"tools": {"model": "b"}},
        {"plugins": [{"id": "web", "judge_model": "b"}]},
        {"route": "fallback"},
        {"route": {"model": "b"}, "models": ["a"]},
        {"extra_body": {"a": [{"some_Models": ["b"]}]}},
    ]
)
def test_what_is_not_in_the_table_and_may_choose_a_model_is_not_understood(members: dict[str, object]) -> None:
    assert reach(model="a", **members).unread


def test_the_time_to_find_models_grows_with_the_bytes() -> None:
    def asked(times: range) -> None:
        n = len(times)
        tools = b"[" + b'{"type":"x","model":"a"},' * n + b"{}]"
        members = {"model": b'"a"', "tools": tools, "x": b'{"model":[' * 3 * n}
        assert reach_of("POST", read_path("/responses"), "&".join(["a=b"] * n), (), members).unread

    assert_linear(asked, range, 2_500)


@pytest.mark.parametrize("name", ["tools", "judge_model", "extra_body", "plugins"])
def test_what_is_searched_for_models_is_bounded_for_all_of_a_request(name: str) -> None:
    text = b'"model","x":"%s"' % (b"\\u0061" * 15_000)
    tool = b'{"type":"a","type":"b","y":' + text + b"}"
    raw = {"model": b'"a"', **{f"{name}{n}": tool for n in range(60)}, name: b"[" + b",".join([tool] * 60) + b"]"}
    assert reach_of("POST", read_path("/chat/completions"), "", (), raw).unread
