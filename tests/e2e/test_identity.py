"""Teams, keys and limits through the whole proxy, as the openai SDK and an administrator meet them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from proxy.cli import main
from tests.doubles import serving
from tests.e2e.provider import DONE, Reply, Scripted, chunk, completion, replies, streams, usage_chunk
from tests.waiting import until
from tests.whole import whole

MASTER = "sk-master-of-this-test"
RED = "sk-red-declared"
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
# A minute from which no request moves into the next one, however long it takes.
IN_ONE_MINUTE = {"x-stratiform-time": "1700000010"}
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/small-1, api_base: "{provider}/v1", api_key: sk-operators}}
  - model_name: large
    litellm_params: {{model: openai/large-1, api_base: "{provider}/v1", api_key: sk-operators}}
router_settings: {{model_group_alias: {{fast: small}}}}
general_settings: {{master_key: {master}}}
stratiform:
  log_level: debug
  store: sqlite:spend.sqlite
  prices:
    small-1: {{input_cost_per_token: 0.000001, output_cost_per_token: 0.000001}}
    large-1: {{input_cost_per_token: 0.000001, output_cost_per_token: 0.000001}}
  teams:
    - name: red
      keys: [{red}]
      models: [small]
    - name: carriers
      keys: [sk-carrier]
      client_keys: forward
  {more}
"""


class Place:
    """A provider, a proxy in front of it, and the administrator's and the clients' ways to it."""

    def __init__(self, stack: ExitStack, folder: Path, more: str = "", *answers: Reply) -> None:
        self.provider = Scripted(*(answers or (replies(completion()),)))
        self.folder = folder
        self._stack = stack
        address = stack.enter_context(serving(self.provider))
        self.url = stack.enter_context(
            whole(folder, CONFIG.format(provider=address, master=MASTER, red=RED, more=more))
        )
        self.http = stack.enter_context(httpx.Client(base_url=self.url, timeout=60))

    def client(self, key: str, **options: Any) -> openai.OpenAI:
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, **{"max_retries": 0, **options})
        self._stack.callback(client.close)
        return client

    def chat(self, key: str, model: str = "small", **more: Any) -> Any:
        return self.client(key).chat.completions.create(model=model, messages=HELLO, **more)

    def admin(self, method: str, path: str, body: object = None, key: str = MASTER) -> httpx.Response:
        return self.http.request(method, f"/admin/{path}", json=body, headers={"authorization": f"Bearer {key}"})

    def new_key(self, **fields: object) -> tuple[str, str]:
        answer = self.admin("POST", "keys", {"team": "red", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"], answer.json()["key"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda more="", *answers: Place(stack, tmp_path, more, *answers)


def test_a_key_that_is_not_known_is_a_401_in_openais_form_and_goes_nowhere(place: Any) -> None:
    at = place()
    for key in ("sk-strat-nobody", "sk-anything", RED + "x"):
        with pytest.raises(openai.AuthenticationError) as caught:
            at.chat(key)
        assert caught.value.body == {
            "message": "Incorrect API key: this proxy does not know the key that was sent.",
            "type": "invalid_request_error", "param": None, "code": "invalid_api_key",
        }  # fmt: skip
    assert at.http.post("/v1/chat/completions", json={}).status_code == 401
    assert at.http.get("/v1/models").status_code == 401
    assert at.provider.seen == []


@pytest.mark.slow
def test_a_key_that_is_made_and_revoked_elsewhere_is_heard_of(place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    at = place()
    store = ["--config", f"{at.folder}/config.yaml"]
    assert main(["keys", "create", "--team", "red", *store]) == 0
    printed = capsys.readouterr().out
    key_id, secret = printed.split("\n")[1].split()[0], printed.strip().rsplit("\n", 1)[-1]
    until(lambda: status(at, secret) == 200)
    assert main(["keys", "revoke", key_id, *store]) == 0
    until(lambda: status(at, secret) == 401)


def status(at: Any, key: str) -> int:
    body = {"model": "small", "messages": HELLO}
    return at.http.post("/v1/chat/completions", json=body, headers={"x-api-key": key}).status_code  # type: ignore[no-any-return]


def test_models_outside_the_lists_are_a_403_on_every_path(place: Any) -> None:
    at = place()
    assert at.chat(RED, "small").model == "m"
    assert at.chat(RED, "fast").model == "m", "an alias of what is allowed"
    with pytest.raises(openai.PermissionDeniedError) as caught:
        at.chat(RED, "large")
    assert (caught.value.status_code, caught.value.code, caught.value.param) == (403, "model_not_allowed", "model")
    with pytest.raises(openai.PermissionDeniedError):
        at.client(RED).embeddings.create(model="large", input="x")
    with pytest.raises(openai.PermissionDeniedError, match="name no model"):
        at.client(RED).files.create(file=b"x", purpose="batch")
    _, narrow = at.new_key(models=["large"])
    for model in ("small", "large"):
        with pytest.raises(openai.PermissionDeniedError):
            at.chat(narrow, model)
    assert [model.id for model in at.client(RED).models.list()] == ["small", "fast"]
    assert [model.id for model in at.client(MASTER).models.list()] == ["small", "large", "fast"]
    with pytest.raises(openai.NotFoundError):
        at.client(RED).models.retrieve("large")
    assert {seen.json["model"] for seen in at.provider.seen} == {"small-1"}


def test_a_rate_limit_is_a_429_that_says_when_to_come_back(place: Any) -> None:
    at = place("clock: header", replies(completion(), headers=[("x-ratelimit-remaining-requests", "99999")]))
    _, secret = at.new_key(requests_per_minute=2)
    left = []
    for _ in range(2):
        raw = at.client(secret).chat.completions.with_raw_response.create(
            model="small", messages=HELLO, extra_headers=IN_ONE_MINUTE
        )
        left.append(raw.headers.get_list("x-ratelimit-remaining-requests"))
    assert left == [["1"], ["0"]], "ours, and not the provider's"
    with pytest.raises(openai.RateLimitError) as caught:
        at.chat(secret, extra_headers=IN_ONE_MINUTE)
    error = caught.value
    assert (error.code, error.type) == ("rate_limit_exceeded", "requests")
    assert 1 <= int(error.response.headers["retry-after"]) <= 60
    assert error.response.headers["x-ratelimit-limit-requests"] == "2"
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert "x-should-retry" not in error.response.headers
    assert at.chat(RED).choices, "the team's other keys go on"
    assert len(at.provider.seen) == 3


def test_tokens_are_limited_by_what_was_used_and_what_can_never_fit_is_not_tried_again(place: Any) -> None:
    at = place("clock: header", streams(chunk("a"), chunk(finish="stop"), usage_chunk(), DONE))
    _, secret = at.new_key(tokens_per_minute=1000)
    list(at.chat(secret, stream=True, max_tokens=5, extra_headers=IN_ONE_MINUTE))
    raw = at.client(secret).chat.completions.with_raw_response.create(
        model="small", messages=HELLO, stream=True, max_tokens=5, extra_headers=IN_ONE_MINUTE
    )
    assert int(raw.headers["x-ratelimit-remaining-tokens"]) < 1000 - 11
    with pytest.raises(openai.RateLimitError) as caught:
        at.client(secret, max_retries=2).chat.completions.create(
            model="small", messages=[{"role": "user", "content": "word " * 10_000}], extra_headers=IN_ONE_MINUTE
        )
    assert caught.value.type == "tokens"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(at.provider.seen) == 2


def test_a_user_is_the_keys_or_else_whom_the_request_names(place: Any) -> None:
    at = place()
    _, alices = at.new_key(user="alice")
    at.chat(alices, user="mallory")
    at.chat(RED, user="bob\r\nx: y" + "b" * 500)
    at.chat(RED)
    rows = at.admin("GET", "spend?by=user&team=red").json()["data"]
    users = {row["user"]: row["requests"] for row in rows}
    assert users.pop("alice") == 1
    assert users.pop("") == 1
    (bob,) = users
    assert bob.startswith("bobx: yb")
    assert len(bob) <= 256
    metrics = at.http.get("/metrics").text
    assert "alice" not in metrics
    assert "bob" not in metrics


def test_a_budget_that_is_made_while_the_proxy_runs_holds(place: Any) -> None:
    at = place()
    at.chat(RED)
    made = at.admin("POST", "budgets", {"team": "red", "usd": 0.000001, "window": "day"})
    assert made.status_code == 201
    with pytest.raises(openai.RateLimitError) as caught:
        at.chat(RED, max_tokens=5)
    assert (caught.value.code, caught.value.response.headers["x-should-retry"]) == ("insufficient_quota", "false")
    assert "budget 'day' of team 'red'" in str(caught.value)
    assert at.admin("DELETE", "budgets/red/day").json()["deleted"]
    assert at.chat(RED).choices


# Keys of the provider's own


def test_keys_of_the_provider_pass_where_they_may_and_the_operators_never_serve_them(place: Any) -> None:
    at = place("client_keys: forward")
    at.chat("sk-clients-own", "large")
    assert at.provider.seen[-1].header("authorization") == "Bearer sk-clients-own"
    body = {"model": "small", "messages": HELLO}
    at.http.post("/v1/chat/completions", json=body, headers={"x-api-key": "sk-their-anthropic"})
    assert at.provider.seen[-1].header("x-api-key") == "sk-their-anthropic"
    assert at.provider.seen[-1].header("authorization") is None
    at.chat(RED)
    assert at.provider.seen[-1].header("authorization") == "Bearer sk-operators"
    assert at.http.post("/v1/chat/completions", json=body).status_code == 401
    with pytest.raises(openai.AuthenticationError):
        at.chat("sk-strat-gone")
    assert len(at.provider.seen) == 3
    teams = {row["team"]: row["requests"] for row in at.admin("GET", "spend").json()["data"]}
    assert teams == {"client-keys": 2, "red": 1}


def test_a_teams_clients_may_bring_the_providers_key_along(place: Any) -> None:
    at = place()
    own = {"x-stratiform-key": "sk-carrier"}
    at.client("sk-clients-own", default_headers=own).chat.completions.create(model="small", messages=HELLO)
    seen = at.provider.seen[-1]
    assert seen.header("authorization") == "Bearer sk-clients-own"
    assert seen.header("x-stratiform-key") is None
    at.chat("sk-carrier")
    assert at.provider.seen[-1].header("authorization") == "Bearer sk-operators"
    other = {"x-stratiform-key": RED}
    at.client("sk-clients-own", default_headers=other).chat.completions.create(model="small", messages=HELLO)
    assert at.provider.seen[-1].header("authorization") == "Bearer sk-operators", "this team's may not"
    rows = at.admin("GET", "spend").json()["data"]
    assert {row["team"]: row["requests"] for row in rows} == {"carriers": 2, "red": 1}


# The admin API


def test_the_admin_api_takes_and_gives_what_http_clients_expect(place: Any) -> None:
    at = place()
    listed = at.admin("GET", "keys")
    assert listed.headers["cache-control"] == "no-store"
    assert len(listed.json()["data"]) == 2
    assert at.admin("GET", "nothing").status_code == 404
    assert at.admin("PUT", "keys").status_code == 405
    assert at.admin("GET", "spend?by=day&format=csv").headers["content-type"] == "text/csv; charset=utf-8"
    headers = {"authorization": f"Bearer {MASTER}"}
    assert at.http.post("/admin/keys", content=b"{", headers=headers).json()["error"]["code"] == "invalid_json"
    assert at.http.post("/admin/keys", content=b"[" * 100_000, headers=headers).status_code == 400
    assert at.http.post("/admin/keys", content=b" " * (1 << 21), headers=headers).status_code == 413
    assert at.http.get("/admin/keys?" + "a=1&" * 50, headers=headers).status_code == 400
