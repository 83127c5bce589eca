"""The model list, as clients see it."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from proxy.clock import SystemClock
from proxy.core.money.prices import Price
from proxy.deployments import ListedModel, ModelTable
from proxy.engine import Engine, Ports
from proxy.ports import Deployment, Transport, Upstream
from proxy.web.app import Parts, create_app
from tests.doubles import Ledger, NoMetrics, OpenDoor, PassthroughPlanner, serving
from tests.unit.engine.parts import JSON, ScriptedUpstream, answers

HERE, THERE = "http://localhost:9/v1", "http://localhost:8/v1"


def no_price(deployment: Deployment) -> Price | None:
    return None


@contextmanager
def proxy(*entries: ListedModel) -> Iterator[tuple[httpx.Client, ScriptedUpstream]]:
    """A proxy with these entries, and the upstream of them all."""
    told = ScriptedUpstream(*(answers(b'{"id":"theirs"}', headers=JSON) for _ in range(9)))
    upstream: Upstream = told
    table = ModelTable(entries, no_price)
    engine = Engine(
        Ports(
            models=table,
            upstreams={Transport.HTTP: upstream},
            planner=PassthroughPlanner(),
            admission=OpenDoor(),
            meter=Ledger(),
            clock=SystemClock(),
        )
    )
    with serving(create_app(Parts(engine, table, NoMetrics()))) as url, httpx.Client(base_url=f"{url}/v1") as client:
        yield client, told


def ids(client: httpx.Client, query: str = "") -> list[str]:
    return [entry["id"] for entry in client.get(f"/models{query}").json()["data"]]


def test_wildcards_are_listed_where_they_are_wanted() -> None:
    chat = ListedModel("chat", "openai/x", base_url=HERE)
    with proxy(chat, ListedModel("openai/*", "openai/*", base_url=THERE)) as (client, told):
        assert ids(client) == ["chat"]
        assert ids(client, "?return_wildcard_routes=True") == ["chat", "openai/*"]
        assert ids(client, "?return_wildcard_routes=false&x") == ["chat"]
        assert ids(client, "?" + "&" * 50 + "a=1" * 3) == ["chat"]
        assert told.calls == []


def test_a_name_behind_a_wildcard_is_asked_for_only_where_its_model_is() -> None:
    chat, other = ListedModel("chat", "openai/x", base_url=HERE), ListedModel("mine/*", "openai/*", base_url=HERE)
    with proxy(chat, ListedModel("*", "openai/*", base_url=HERE)) as (client, told):
        assert client.get("/models/gpt-5").json() == {"id": "theirs"}
        assert [(call.path, call.deployment.base_url) for call in told.calls] == [("/models/gpt-5", HERE)]
    elsewhere = (
        ListedModel("gpt-*", "openai/gpt-*", base_url=THERE),
        other,
        ListedModel("gpt-*", "anthropic/gpt-*"),
        ListedModel("gpt-*", "openai/gpt-*", base_url=HERE, api_key="sk-other"),
    )
    for entry, name in zip(elsewhere, ("gpt-5", "mine/gpt-5", "gpt-5", "gpt-5"), strict=True):
        with proxy(chat, entry) as (client, told):
            found = client.get(f"/models/{name}").json()
            assert (found["id"], found["owned_by"], told.calls) == (name, "stratiform", [])
    with proxy(ListedModel("gpt-*", "anthropic/gpt-*")) as (client, told):
        assert client.get("/models/gpt-5").json()["owned_by"] == "stratiform"


@pytest.mark.parametrize("path", ["/chat/completions/", "/chat/completions"])
def test_a_chat_is_one_with_a_slash_at_its_end_too(path: str) -> None:
    with proxy(ListedModel("chat", "openai/x", base_url=HERE)) as (client, told):
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        assert client.post(path, json=body).headers["x-stratiform-reason"] == "passthrough-mode"
        assert client.post(str(client.base_url.join(path)), json=body).status_code == 200
        assert [call.path for call in told.calls] == ["/chat/completions"] * 2
        assert b"stream_options" in told.bodies[0]
