"""Which headers cross."""

from typing import Any

import pytest

from proxy.engine.exchange import Principal
from proxy.engine.headers import for_client, for_upstream, get, named_by, with_id, without_credentials
from proxy.models import Deployment, Transport
from proxy.protocol.providers import NONE
from tests.doubles import make_deployment

CLIENT, VIRTUAL = Principal("client"), Principal("ours", virtual=True)
SENT = [
    ("host", "proxy"), ("authorization", "Bearer client"), ("content-type", "application/json"),
    ("content-length", "12"), ("accept-encoding", "gzip, br"), ("connection", "keep-alive, X-Hop"), ("x-hop", "1"),
    ("transfer-encoding", "chunked"), ("expect", "100-continue"), ("cookie", "session=secret"),
    ("x-stratiform-mode", "tier"), ("user-agent", "OpenAI/Python"), ("openai-beta", "a"), ("openai-beta", "b"),
]  # fmt: skip


def test_a_request_loses_what_belongs_to_the_connection_or_to_us() -> None:
    passed = for_upstream(SENT, make_deployment(), CLIENT)
    assert passed == [
        ("authorization", "Bearer client"),
        ("content-type", "application/json"),
        ("user-agent", "OpenAI/Python"),
        ("openai-beta", "a"),
        ("openai-beta", "b"),
        ("accept-encoding", "identity"),
    ]


def test_raw_paths_keep_their_encoding() -> None:
    passed = for_upstream(SENT, make_deployment(), CLIENT, accept_encoding="gzip, br")
    assert get(passed, "accept-encoding") == "gzip, br"
    assert get(for_upstream(SENT, make_deployment(), CLIENT, accept_encoding=None), "accept-encoding") is None


def test_the_deployments_key_takes_the_place_of_the_clients() -> None:
    passed = for_upstream(SENT, make_deployment(api_key="ours"), CLIENT)
    assert [value for name, value in passed if name == "authorization"] == ["Bearer ours"]


def test_the_deployments_key_is_sent_in_the_clients_style() -> None:
    for name in ("x-api-key", "api-key"):
        passed = for_upstream([(name, "client")], make_deployment(api_key="ours"), VIRTUAL)
        assert get(passed, name) == "ours"
        assert get(passed, "authorization") is None
        assert "client" not in dict(passed).values()
    both = [("x-api-key", "client"), ("authorization", "Bearer client")]
    passed = for_upstream(both, make_deployment(api_key="ours"), VIRTUAL)
    assert passed == [("authorization", "Bearer ours"), ("accept-encoding", "identity")]


def test_a_virtual_key_is_never_sent_upstream() -> None:
    for name in ("authorization", "x-api-key", "api-key"):
        passed = for_upstream([(name, "sk-virtual")], make_deployment(), VIRTUAL)
        assert passed == [("accept-encoding", "identity")]


def test_headers_of_the_deployment_win() -> None:
    deployment = make_deployment(api_key="ours", headers=[("X-Org", "a"), ("Authorization", "Basic abc")])
    passed = for_upstream([("x-org", "client"), ("authorization", "Bearer c")], deployment, VIRTUAL)
    assert passed == [("accept-encoding", "identity"), ("X-Org", "a"), ("Authorization", "Basic abc")]


def test_an_answer_keeps_what_clients_act_on() -> None:
    kept = [
        ("content-type", "application/json"), ("retry-after", "2"), ("retry-after-ms", "1500"),
        ("x-ratelimit-remaining-requests", "3"), ("anthropic-ratelimit-tokens-remaining", "4"),
        ("x-request-id", "req_1"), ("request-id", "req_2"), ("openai-processing-ms", "12"),
        ("content-encoding", "gzip"),
    ]  # fmt: skip
    lost = [
        ("connection", "close, x-trace"), ("x-trace", "1"), ("transfer-encoding", "chunked"), ("server", "nginx"),
        ("date", "today"), ("set-cookie", "a=b"), ("x-stratiform-id", "another proxy's"),
        ("x-odd", "a\r\nx-injected: 1"),
    ]  # fmt: skip
    assert for_client([*kept, *lost, ("content-length", "5")], keep_length=False) == kept
    assert for_client([*kept, *lost, ("content-length", "5")], keep_length=True) == [*kept, ("content-length", "5")]


def test_what_is_no_header_does_not_reach_the_client() -> None:
    sent = [("x-a", "1"), ("x b", "1"), ("", "1"), ("x-c", "a\r\nx-injected: 1"), ("x-d", "\x00"), ("x-é", "1")]
    assert for_client(sent, keep_length=True) == [("x-a", "1")]


@pytest.mark.parametrize(
    ("length", "passes"), [("12", True), ("-1", False), ("many", False), ("1 2", False), ("", False)]
)
def test_a_length_is_a_number(length: str, *, passes: bool) -> None:
    assert for_client([("content-length", length)], keep_length=True) == (
        [("content-length", length)] if passes else []
    )


@pytest.mark.parametrize(
    ("deployment", "name"),
    [
        ({}, "x-request-id"),
        ({"server": "openai"}, "x-client-request-id"),
        ({"server": "azure"}, "x-ms-client-request-id"),
        ({"params": {"api_version": "2026-01-01"}}, "x-ms-client-request-id"),
        ({"server": "anthropic"}, "x-request-id"),
    ],
)
def test_the_id_of_a_request_goes_where_the_provider_reads_it(deployment: dict[str, Any], name: str) -> None:
    served = make_deployment(**deployment)
    assert with_id([("a", "b")], served, "sx-1") == [("a", "b"), (name, "sx-1")]
    assert with_id([(name, "theirs")], served, "sx-1") == [(name, "theirs")]
    for odd in ("two words", "x" * 129, "\x01", "", "é"):
        assert with_id([(name.title(), odd), ("x-request-id", odd)], served, "sx-1") == [(name, "sx-1")]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("3f2a7d6e-0c1b-4f7e-9d7c-0a1b2c3d4e5f", True),
        ("0af7651916cd43dd8448eb211c80319c", True),
        ("Root=1-67891233-abcdef012345678912345678", True),
        ("", False),
        ("two words", False),
        ("x" * 129, False),
        ("sk-strat-0123456789abcdefghij", False),
        ("prefix/client-key-12345678", False),
        ("ümlaut", False),
    ],
)
def test_an_id_of_the_clients_is_a_plain_word_without_a_key(given: str, kept: bool) -> None:
    assert named_by([("x-request-id", given)], ["client-key-12345678"]) == (given if kept else "")


def test_keys_and_what_could_stand_for_one_serve_no_client_who_brings_a_key_along() -> None:
    deployment = Deployment(
        "m", "m", Transport.LITELLM, NONE, base_url="https://host/v1", api_key="sk-own",
        headers=[("authorization", "Bearer x"), ("x-api-key", "k"), ("cf-aig-authorization", "t"), ("cookie", "c"),
                 ("openai-organization", "org"), ("http-referer", "https://us"), ("anthropic-version", "2023-06-01")],
        params={"aws_secret_access_key": "a", "vertex_credentials": "v", "azure_ad_token": "t", "aws_role_name": "r",
                "api_version": "2026", "temperature": 0.5, "custom_llm_provider": "anthropic", "num_ctx": 1},
    )  # fmt: skip
    bare = without_credentials(deployment)
    assert bare.api_key is None
    assert [name for name, _ in bare.headers] == ["http-referer", "anthropic-version"]
    assert set(bare.params) == {"api_version", "temperature", "custom_llm_provider", "num_ctx"}
    assert (bare.name, bare.base_url, bare.transport) == ("m", "https://host/v1", Transport.LITELLM)


@pytest.mark.parametrize(
    "name",
    ["apikey", "X-ApiKey", "x-accesskey", "x-authentication", "x-authtoken", "bearer", "x-jwt-assertion", "x-passwd",
     "x-user-pwd", "x-passphrase", "x-signature", "x-secretkey", "x-portkey-config", "x-portkey-virtual-key",
     "subscription-id", "cf-access-client-secret", "x-goog-user-project", "x-credential"],
)  # fmt: skip
def test_whatever_sounds_like_a_credential_is_the_operators_alone(name: str) -> None:
    deployment = Deployment("m", "m", Transport.HTTP, NONE, headers=[(name, "v")], params={name.replace("-", "_"): "v"})
    bare = without_credentials(deployment)
    assert (list(bare.headers), bare.params) == ([], {})


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "x-title", "x-region", "anthropic-beta", "n"])
def test_what_does_not_sound_so_serves_everybody(name: str) -> None:
    bare = without_credentials(Deployment("m", "m", Transport.HTTP, NONE, headers=[(name, "v")], params={name: "v"}))
    assert ([key for key, _ in bare.headers], list(bare.params)) == ([name], [name])
