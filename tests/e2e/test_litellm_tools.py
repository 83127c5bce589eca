"""What operators bring from LiteLLM works here: its Python client, its probes, and its forms of keys and spend."""

import asyncio
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.upstream.litellm_library import Library
from tests.whole import whole

MASTER = "sk-master"
CONFIG = """
model_list:
  - {model_name: house, litellm_params: {model: embedded/claude-sonnet-4-5}}
  - {model_name: other, litellm_params: {model: embedded/gpt-4o}, model_info: {max_input_tokens: 9000}}
general_settings: {master_key: sk-master}
stratiform:
  store: memory
  teams:
    - {name: search, keys: [{key: sk-of-search, user: ann, models: [house]}], budgets: [{usd: 50, window: month}]}
    - {name: blue, keys: [{key: sk-of-blue, user: ann}]}
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with whole(tmp_path, CONFIG) as address:
        yield address


def ask(url: str, path: str, key: str | None = MASTER, body: object = None) -> tuple[int, Any]:
    """The status and the content of an answer."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def chat(url: str, key: str, model: str = "house") -> int:
    return ask(url, "v1/chat/completions", key, {"model": model, "messages": [{"role": "user", "content": "hi"}]})[0]


def generated(url: str, **body: object) -> Any:
    status, made = ask(url, "key/generate", body=body)
    assert status == 200, made
    return made


def test_a_probe_needs_no_key_and_learns_what_litellms_probes_learn(url: str) -> None:
    assert ask(url, "health/liveliness", None) == (200, "I'm alive!")
    assert ask(url, "health/liveness", None) == (200, "I'm alive!")
    assert ask(url, "health/readiness", None) == (200, {"status": "healthy", "db": "connected"})


def test_health_and_models_are_those_that_the_key_may_use(url: str) -> None:
    status, health = ask(url, "health")
    assert (status, health["healthy_count"], health["unhealthy_count"]) == (200, 2, 0)
    assert health["healthy_endpoints"][0] == {"model": "claude-sonnet-4-5", "model_name": "house"}
    assert ask(url, "health", "sk-of-search")[1]["healthy_count"] == 1
    assert ask(url, "health", "sk-wrong")[0] == 401
    for path in ("model/info", "v1/model/info"):
        assert [one["model_name"] for one in ask(url, path)[1]["data"]] == ["house", "other"]
        (only,) = ask(url, path, "sk-of-search")[1]["data"]
        assert only["litellm_params"] == {"model": "claude-sonnet-4-5"}
        assert ask(url, path, None)[0] == 401
    assert ask(url, "model/info")[1]["data"][1]["model_info"]["max_input_tokens"] == 9000


def test_a_key_is_made_used_shown_and_deleted(url: str) -> None:
    made = generated(
        url, models=["house"], team_id="search", user_id="bob", key_alias="ci", duration="30d", rpm_limit=60,
        max_budget=0, budget_duration="30d", metadata={"stage": "b", "tags": []}, aliases={}, blocked=False, spend=None,
    )  # fmt: skip
    key = made["key"]
    assert key.startswith("sk-strat-")
    assert made["key_name"] == f"sk-...{key[-4:]}"
    assert (made["team_id"], made["user_id"], made["key_alias"], made["rpm_limit"]) == ("search", "bob", "ci", 60)
    assert (made["max_budget"], made["budget_duration"], made["spend"]) == (0, "month", 0.0)
    assert made["expires"] > made["created_at"]
    # A budget of nothing is one: not a cent is spent.
    assert chat(url, key) == 429
    for named in (key, hashlib.sha256(key.encode()).hexdigest(), made["token_id"]):
        status, found = ask(url, f"key/info?key={named}")
        assert (status, found["key"]) == (200, named)
        assert found["info"]["status"] == "active"
        assert key not in json.dumps(found["info"])
    assert ask(url, "key/delete", body={"keys": [key]}) == (200, {"deleted_keys": [key]})
    assert chat(url, key) == 401
    assert ask(url, f"key/info?key={made['token_id']}")[1]["info"]["blocked"]


def test_keys_are_deleted_by_alias_and_all_or_none(url: str) -> None:
    first, second = generated(url, key_alias="one"), generated(url, key_alias="two")
    for body in (
        {"keys": [first["key"], "sk-strat-unknown"]},
        {"keys": [first["key"]], "key_aliases": ["three"]},
        {},
        {"keys": None, "key_aliases": None},
    ):
        assert ask(url, "key/delete", body=body)[0] == 404
    assert ask(url, "key/delete", body={"keys": [first["key"], "sk-of-search"]})[0] == 409
    for body in ([], {"keys": "sk"}, {"keys": [""]}, {"key_aliases": [3]}):
        assert ask(url, "key/delete", body=body)[0] == 400
    assert chat(url, first["key"]) == 200
    assert ask(url, "key/delete", body={"key_aliases": ["one", "two"]})[0] == 200
    assert [chat(url, one["key"]) for one in (first, second)] == [401, 401]


REFUSED: list[dict[str, object]] = [
    {"max_parallel_requests": 1}, {"allowed_routes": ["/chat"]}, {"permissions": {"x": True}}, {"guardrails": ["x"]},
    {"model_max_budget": {"house": 1}}, {"key": "sk-own"}, {"budget_id": "b"}, {"team_id": "nobody"},
    {"rpm_limit": 0}, {"duration": "soon"}, {"duration": 30}, {"models": "house"}, {"budget_duration": "1d"},
    {"max_budget": -1}, {"max_budget": "x"}, {"max_budget": 1, "budget_duration": "2 moons"},
    {"max_budget": 1, "budget_duration": 7}, {"models": ["x"] * 2000}, {"quux": 1},
    {"max_budget": False}, {"max_budget": ""}, {"models": False}, {"rpm_limit": {}},
    {"metadata": {"model_rpm_limit": {"house": 1}}}, {"metadata": {"tags": ["x"]}}, {"metadata": "x"},
]  # fmt: skip


def test_no_key_is_left_that_may_do_more_than_was_asked_for(url: str) -> None:
    before = ask(url, "admin/keys")[1]["data"]
    for body in REFUSED:
        status, refused = ask(url, "key/generate", body=body)
        assert (status, ask(url, "admin/keys")[1]["data"]) == (400, before), body
        assert "sk-strat-" not in json.dumps(refused)


def test_a_key_sees_itself_its_user_and_its_team_and_nothing_else(url: str) -> None:
    assert chat(url, "sk-of-search") == 200
    assert chat(url, "sk-of-blue") == 200
    (own,) = [one for one in ask(url, "admin/keys")[1]["data"] if one["team"] == "search"]
    (theirs,) = [one for one in ask(url, "admin/keys")[1]["data"] if one["team"] == "blue"]
    info = ask(url, "key/info", "sk-of-search")[1]["info"]
    assert (info["token_id"], info["user_id"], info["models"]) == (own["id"], "ann", ["house"])
    assert info["spend"] > 0
    user = ask(url, "user/info", "sk-of-search")[1]
    assert [one["token_id"] for one in user["keys"]] == [own["id"]], "the team of a namesake stays apart"
    assert user["user_info"]["spend"] == info["spend"]
    team = ask(url, "team/info", "sk-of-search")[1]
    assert (team["team_id"], team["team_info"]["max_budget"], team["team_info"]["budget_duration"]) == (
        "search", 50, "month",
    )  # fmt: skip
    assert {one["api_key"] for one in ask(url, "spend/logs", "sk-of-search")[1]} == {own["id"]}
    assert (
        ask(url, f"spend/logs?api_key={theirs['id']}", "sk-of-search")[1] == ask(url, "spend/logs", "sk-of-search")[1]
    )
    for path in (
        f"key/info?key={theirs['id']}",
        "key/info?key=sk-master",
        "user/info?user_id=bob",
        "team/info?team_id=blue",
    ):
        assert ask(url, path, "sk-of-search")[0] == 403, path
    for path in ("key/generate", "key/delete"):
        assert ask(url, path, "sk-of-search", {"keys": [own["id"]]})[0] == 403


def test_the_master_key_sees_users_of_all_teams_and_the_spend_of_all(url: str) -> None:
    for key, model in (("sk-of-search", "house"), ("sk-of-blue", "other"), ("sk-of-blue", "house")):
        assert chat(url, key, model) == 200
    user = ask(url, "user/info?user_id=ann")[1]
    assert user["teams"] == ["blue", "search"]
    logs = ask(url, "spend/logs")[1]
    assert [one["model"] for one in logs] == ["house", "other", "house"]
    newest = logs[0]
    assert newest["total_tokens"] == newest["prompt_tokens"] + newest["completion_tokens"] > 0
    assert ask(url, f"spend/logs?request_id={newest['request_id']}")[1] == [newest]
    assert [one["team_id"] for one in ask(url, "spend/logs?user_id=ann&start_date=1h")[1]] == ["blue", "blue", "search"]
    (day,) = ask(url, "spend/logs?start_date=1d&end_date=2030-01-01")[1]
    assert day["spend"] == pytest.approx(sum(one["spend"] for one in logs))
    assert day["users"]["ann"] == pytest.approx(day["spend"])
    assert set(day["models"]) == {"house", "other"}
    assert len(ask(url, "spend/logs?start_date=1d&end_date=2030-01-01&summarize=false")[1]) == 3


@pytest.mark.parametrize("key", [None, "sk-wrong", "sk-strat-" + "x" * 43, hashlib.sha256(MASTER.encode()).hexdigest()])
def test_strangers_are_told_nothing(url: str, key: str | None) -> None:
    for path in ("key/info", "key/generate", "key/delete", "user/info", "team/info", "spend/logs"):
        for body in (None, {"keys": ["sk-of-search"], "models": []}):
            assert ask(url, path, key, body)[0] == 401, path


def test_what_is_not_there_is_said(url: str) -> None:
    for path in ("key/info?key=gone", "team/info?team_id=gone", "team/info?team_id=/", "team/info"):
        assert ask(url, path)[0] == 404, path
    assert [ask(url, path)[0] for path in ("user/info", "spend/logs?start_date=soon")] == [200, 400]


def test_a_providers_key_that_is_let_through_is_nobody_here(tmp_path: Path) -> None:
    with whole(tmp_path, CONFIG.replace("store: memory", "store: memory\n  client_keys: forward")) as url:
        for path in ("key/info", "user/info", "team/info", "spend/logs"):
            assert ask(url, path, "sk-ant-of-a-stranger")[0] == 403


def test_without_a_master_key_there_is_no_administration(tmp_path: Path) -> None:
    with whole(tmp_path, CONFIG.replace("general_settings: {master_key: sk-master}", "")) as url:
        for path in ("key/info", "spend/logs", "admin/keys"):
            assert ask(url, path, "sk-of-search")[0] == 404
        assert ask(url, "model/info", "sk-of-search")[0] == 200


def test_the_front_page_says_what_this_is(url: str) -> None:
    status, content = ask(url, "", None)
    assert (status, content["name"]) == (200, "stratiform")
    request = urllib.request.Request(url, headers={"accept": "text/html,application/xhtml+xml"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/html")
        assert b"<h1>Stratiform</h1>" in answer.read()


def test_only_allowed_addresses_get_in_but_probes_do(tmp_path: Path) -> None:
    for allowed, expected in (("[10.0.0.0/8, '::1']", 403), ("[127.0.0.0/8]", 200), ("[127.0.0.1]", 200)):
        with whole(tmp_path, CONFIG.replace("sk-master}", f"sk-master, allowed_ips: {allowed}}}")) as url:
            assert ask(url, "v1/models")[0] == expected
            assert ask(url, "admin/keys")[0] == expected
            assert ask(url, "metrics/../v1/models")[0] in (403, 404)
            assert ask(url, "health/readiness", None)[0] == 200


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_litellms_own_python_client_manages_keys(url: str) -> None:
    asyncio.run(Library().module())  # without a network
    from litellm.proxy.client import Client
    from litellm.proxy.client.exceptions import UnauthorizedError
    from litellm.proxy.client.health import HealthManagementClient
    from litellm.proxy.client.users import UsersManagementClient

    client = Client(base_url=url, api_key=MASTER)
    assert [model["id"] for model in client.models.list()] == ["house", "other"]
    assert [model["model_name"] for model in client.models.info()] == ["house", "other"]
    made: Any = client.keys.generate(
        models=["house"], duration="24h", key_alias="theirs", team_id="search", user_id="bob"
    )
    key = made["key"]
    answer: Any = Client(base_url=url, api_key=key).chat.completions(
        model="house", messages=[{"role": "user", "content": "hi"}]
    )
    assert answer["choices"][0]["message"]["content"]
    assert client.keys.info(key=key)["info"]["key_alias"] == "theirs"
    assert UsersManagementClient(url, MASTER).get_user("bob")["user_id"] == "bob"
    assert HealthManagementClient(url).get_readiness() == {"status": "healthy", "db": "connected"}
    client.keys.delete(keys=[key])
    with pytest.raises(UnauthorizedError):
        Client(base_url=url, api_key=key).models.list()
