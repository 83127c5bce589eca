"""The proxy's own keys never go upstream."""

import asyncio

import pytest

from proxy.core.providers import NONE
from proxy.engine.ports import Admission
from proxy.errors import Forbidden
from proxy.ports import Deployment, Transport
from tests.exchanges import make_exchange
from tests.money import admission_control

HEADERS = [("authorization", "Bearer sk-1")]


def reserve(admission: Admission, deployment: Deployment, *others: Deployment) -> None:
    exchange = make_exchange(deployment=deployment)
    exchange.principal = admission.admit(HEADERS, 0.0)
    asyncio.run(admission.reserve(exchange, others))


def test_a_virtual_key_is_refused_where_the_upstream_would_need_the_clients() -> None:
    deployment = Deployment("m", "m", Transport.HTTP, NONE)
    with pytest.raises(Forbidden, match="Model 'm' has no api_key") as caught:
        reserve(admission_control("sk-1"), deployment)
    assert (caught.value.status, caught.value.code) == (403, "upstream_key_missing")
    reserve(admission_control(), deployment)


def test_the_key_of_a_deployment_that_may_stand_in_is_looked_at_too() -> None:
    other = Deployment("n", "n", Transport.HTTP, NONE)
    with pytest.raises(Forbidden, match="Model 'n' has no api_key"):
        reserve(admission_control("sk-1"), Deployment("m", "m", Transport.HTTP, NONE, api_key="k"), other)


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
def test_a_request_is_accepted_where_the_upstream_has_a_key_or_needs_none(deployment: Deployment) -> None:
    reserve(admission_control("sk-1"), deployment)
