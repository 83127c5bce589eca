"""The id of a request: told to the upstream and to the client, the client's own where it gives one."""

import logging
from pathlib import Path

import httpx2 as httpx
import pytest
from starlette.types import Receive, Send

from proxy.engine.conclusion import Line
from tests.doubles import serving
from tests.receiver import Received, Receiver, send_whole
from tests.whole import whole

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ANSWER = (
    b'{"id":"1","object":"chat.completion","created":1,"model":"m",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
)


class Provider(Receiver):
    """Keeps the headers of each request; ``own_id`` is what it calls its answers, if anything."""

    def __init__(self, own_id: str = "") -> None:
        self.own_id = own_id
        self.seen: list[dict[str, str]] = []

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        self.seen.append(request.headers)
        own = [("x-request-id", self.own_id)] if self.own_id else []
        await send_whole(send, 200, ANSWER, [("content-type", "application/json"), *own])


def exchanged(
    folder: Path, provider: Provider, path: str = "chat/completions", settings: str = "{}", **headers: str
) -> tuple[httpx.Headers, dict[str, str]]:
    """The headers that the client gets, and those that the provider got."""
    with serving(provider) as upstream:
        model = f"{{model: openai/m, api_base: '{upstream}/v1', api_key: sk-of-the-provider}}"
        text = f"model_list: [{{model_name: m, litellm_params: {model}}}]\nstratiform: {settings}\n"
        with whole(folder, text) as url:
            answer = httpx.post(
                f"{url}/v1/{path}", json=BODY, headers={k.replace("_", "-"): v for k, v in headers.items()}
            )
    return answer.headers, provider.seen[-1] if provider.seen else {}


@pytest.mark.parametrize("path", ["chat/completions", "rerank"])
def test_upstream_client_and_log_know_the_request_by_one_id(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stratiform")
    got, sent = exchanged(tmp_path, Provider(), path)
    (line,) = [record.msg for record in caplog.records if isinstance(record.msg, Line)]
    assert sent["x-request-id"] == got["x-request-id"] == got["x-stratiform-id"] == line.values["id"]
    assert "request_id" not in line.values


def test_the_clients_own_id_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stratiform")
    got, sent = exchanged(tmp_path, Provider(), x_request_id="mine-1")
    (line,) = [record.msg for record in caplog.records if isinstance(record.msg, Line)]
    assert sent["x-request-id"] == got["x-request-id"] == line.values["request_id"] == "mine-1"
    assert got["x-stratiform-id"] == line.values["id"] != "mine-1"


def test_the_upstreams_own_id_reaches_the_client_alone(tmp_path: Path) -> None:
    got, _ = exchanged(tmp_path, Provider("req_of_the_provider"))
    assert got.get_list("x-request-id") == ["req_of_the_provider"]


def test_a_refusal_of_the_proxys_own_has_an_id(tmp_path: Path) -> None:
    got, sent = exchanged(tmp_path, Provider(), "chat/completions", "{teams: [{name: t, keys: [sk-t]}]}")
    assert not sent
    assert got["x-request-id"] == got["x-stratiform-id"]


def test_the_operator_can_keep_ids_from_upstreams(tmp_path: Path) -> None:
    got, sent = exchanged(tmp_path, Provider(), settings="{request_id: false}")
    assert "x-request-id" not in sent
    assert got["x-request-id"] == got["x-stratiform-id"]
    _, sent = exchanged(tmp_path, Provider(), settings="{request_id: false}", x_request_id="mine-2")
    assert sent["x-request-id"] == "mine-2"


def test_a_key_in_the_place_of_an_id_goes_nowhere_under_another_name(tmp_path: Path) -> None:
    got, sent = exchanged(
        tmp_path,
        Provider(),
        settings="{teams: [{name: t, keys: [sk-team-0123456789]}]}",
        authorization="Bearer sk-team-0123456789",
        x_request_id="sk-team-0123456789",
    )
    assert "sk-team-0123456789" not in str(sent)
    assert got["x-request-id"] == got["x-stratiform-id"] == sent["x-request-id"]
