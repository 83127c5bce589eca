"""Who may connect, whether the proxy is ready, its list of models, and request lines that are not passed on."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from yarl import URL

from proxy.app.web import PROBES, AllowedAddresses, Health, Parts, check_request_line, create_app, sent_path
from proxy.engine import Engine, Ports
from proxy.engine.ports import Fault, Upstream
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import SystemClock
from proxy.kit.errors import MethodNotAllowed, NotFound
from proxy.models import Deployment, Transport
from proxy.models.deployments import ListedModel, ModelTable
from proxy.protocol.prices import Price
from tests.doubles import Ledger, NoMetrics, OpenDoor, PassthroughPlanner, serving
from tests.unit.engine.parts import JSON, ScriptedUpstream, answers

NETWORKS = [ip_network("10.1.0.0/16"), ip_network("192.0.2.7"), ip_network("2001:db8::/32")]


def status(client: Any, path: str = "/v1/models", headers: Any = (), kind: str = "http") -> int:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "client": client, "headers": headers, "method": "GET"}
    asyncio.run(AllowedAddresses(app, NETWORKS)(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.0.0", 200), ("10.1.255.255", 200), ("10.2.0.0", 403), ("192.0.2.7", 200), ("192.0.2.8", 403),
        ("::ffff:10.1.2.3", 200), ("::ffff:10.2.0.1", 403), ("2001:db8::1", 200), ("2001:db8::1%eth0", 200),
        ("2001:db9::1", 403), ("::1", 403), ("localhost", 403), ("", 403),
    ],
)  # fmt: skip
def test_the_address_of_the_connection_counts(address: str, expected: int) -> None:
    assert status((address, 4000)) == expected
    assert status((address, 4000), headers=[(b"x-forwarded-for", b"10.1.0.1")]) == expected


def test_a_connection_without_an_address_is_refused() -> None:
    assert status(None) == 403


def test_probes_and_the_lifespan_pass() -> None:
    assert {status(("10.2.0.0", 1), path) for path in PROBES} == {200}
    assert status(None, kind="lifespan") == 200


SLOW = Fault("spool", "it is slow")
REFUSING = Fault("store", "it is away", refuses=True)


def ready(faults: Sequence[Fault], obstacle: str = "") -> tuple[int, dict[str, object]]:
    health = Health(Metrics(), lambda: obstacle, lambda: faults)
    answer = asyncio.run(health.ready(Request({"type": "http"})))
    return answer.status_code, json.loads(bytes(answer.body))


def test_without_a_fault_there_is_nothing_to_say() -> None:
    assert ready([]) == (200, {"status": "ready"})


def test_a_fault_that_refuses_nobody_is_told_and_the_proxy_is_ready() -> None:
    told = {"status": "ready", "faults": [{"part": "spool", "message": "it is slow"}]}
    assert ready([SLOW]) == (200, told)


@pytest.mark.parametrize(("faults", "obstacle", "said"), [
    ([REFUSING], "", "it is away"), ([SLOW, REFUSING], "", "it is away"), ([], "it starts", "it starts"),
    ([SLOW], "it starts", "it starts"),
])  # fmt: skip
def test_what_refuses_requests_is_a_503_with_all_faults(faults: list[Fault], obstacle: str, said: str) -> None:
    status, body = ready(faults, obstacle)
    assert (status, body["status"]) == (503, "unavailable")
    told = body["faults"]
    assert isinstance(told, list)
    assert {"message": said, "part": "start" if obstacle else "store"} in told
    assert len(told) == len(faults) + bool(obstacle)
    error = body["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["message"]) == ("not_ready", said)


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


def sent_to(raw: bytes, path: str = "/v1/x", method: str = "GET") -> dict[str, Any]:
    return {"raw_path": raw, "path": path, "method": method}


def test_the_path_goes_on_as_it_was_written() -> None:
    assert sent_path(sent_to(b"/v1/a%20b")) == "/a%20b"


@pytest.mark.parametrize("raw", [b"/v1%2F@elsewhere/x", b"/v1%2f.elsewhere/x", b"/v1%2F", b"/%761/x"])
def test_a_path_cannot_become_a_part_of_the_host(raw: bytes) -> None:
    assert URL(f"http://upstream{sent_path(sent_to(raw))}", encoded=True).host == "upstream"
    with pytest.raises(NotFound, match="percent-encoded"):
        check_request_line(sent_to(raw))


@pytest.mark.parametrize("raw", [b"/v1/a/../b", b"/v1/models;/files", b"/v1//files", b"/v1/\xff"])
def test_a_path_of_several_readings_is_not_found(raw: bytes) -> None:
    with pytest.raises(NotFound, match="one way"):
        check_request_line(sent_to(raw))


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "get"])
def test_methods_that_are_not_passed_on(method: str) -> None:
    with pytest.raises(MethodNotAllowed, match="POST"):
        check_request_line(sent_to(b"/v1/files", method=method))
