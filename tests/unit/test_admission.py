"""The gate: the proxy's own keys never go upstream."""

import asyncio

import pytest

from proxy.admission import Gate
from proxy.budget import Budgets
from proxy.core.profiles import NONE
from proxy.errors import Forbidden
from proxy.identity import Identity, KeyList
from proxy.ports import Admission, Deployment, Transport
from proxy.state.memory import MemoryStore

HEADERS = [("authorization", "Bearer sk-1")]


def gate(*keys: str) -> Admission:
    lists = [KeyList("default", keys)] if keys else []
    return Gate(Identity(lists, b"salt"), Budgets({}, MemoryStore(), lambda _: None))


def reserve(admission: Admission, deployment: Deployment) -> None:
    subject = admission.admit(HEADERS, 0.0)
    asyncio.run(admission.reserve("x", subject, deployment, 1, None, 0.0))


def test_a_virtual_key_is_refused_where_the_upstream_would_need_the_clients() -> None:
    deployment = Deployment("m", "m", Transport.HTTP, NONE)
    with pytest.raises(Forbidden, match="Model 'm' has no api_key") as caught:
        reserve(gate("sk-1"), deployment)
    assert (caught.value.status, caught.value.code) == (403, "upstream_key_missing")
    reserve(gate(), deployment)


@pytest.mark.parametrize(
    "deployment",
    [
        Deployment("m", "m", Transport.HTTP, NONE, api_key="k"),
        Deployment("m", "m", Transport.HTTP, NONE, headers=[("x-api-key", "k")]),
        Deployment("m", "m", Transport.LITELLM, NONE),
        Deployment("m", "m", Transport.EMBEDDED, NONE),
    ],
    ids=["key", "header", "litellm", "embedded"],
)
def test_it_is_accepted_where_the_upstream_has_a_key_or_needs_none(deployment: Deployment) -> None:
    reserve(gate("sk-1"), deployment)
