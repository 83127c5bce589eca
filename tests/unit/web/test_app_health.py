"""Readiness: a fault is told, and takes the proxy out of service only where requests are refused for it."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from starlette.requests import Request

from proxy.ports import Fault
from proxy.telemetry.metrics import Metrics
from proxy.web.app import Health

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
