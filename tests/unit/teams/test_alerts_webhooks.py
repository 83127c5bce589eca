"""Notices: signed, tried again, sent once, and never in the way."""

import asyncio
import hashlib
import hmac
import threading
from dataclasses import replace

import orjson
import pytest
from starlette.types import Receive, Send

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import BudgetExceeded
from proxy.models.charges import Rule
from proxy.protocol.response.usage import Usage
from proxy.teams.alerts import WebhookSender
from tests.doubles import ManualClock, serving
from tests.money import NOW, SIZE, Flaky, budgeting, exchange
from tests.receiver import Received, Receiver, send_whole
from tests.waiting import until_async

DOLLAR = 10**9
SECRET = b"whsec"


class Webhook(Receiver):
    """Answers with these statuses, then 204, and keeps what came."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.seen: list[Received] = []
        self._changed = threading.Condition()

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        await send_whole(send, self.statuses.pop(0) if self.statuses else 204)
        with self._changed:
            self.seen.append(request)
            self._changed.notify_all()

    async def wait(self, number: int) -> None:
        """Until so many came."""

        def waiting() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: len(self.seen) >= number, 60.0)

        assert await asyncio.to_thread(waiting)


def sender_of(metrics: Metrics) -> WebhookSender:
    return WebhookSender(SECRET, ManualClock(NOW), metrics, pauses_s=(0.01, 0.01))


def outcome(metrics: Metrics, name: str) -> float:
    return metrics.registry.get_sample_value("stratiform_notices_total", {"outcome": name}) or 0.0


async def test_a_notice_is_signed_and_tried_again_under_its_id() -> None:
    receiver, metrics = Webhook(500, 302), Metrics()
    with serving(receiver) as url:
        sender = sender_of(metrics)
        sender.start()
        sender.send(f"{url}/hook", "budget.soft_limit", {"team": "red"})
        await receiver.wait(3)
        await sender.aclose()
    last = receiver.seen[-1]
    stamp, _, given = last.headers["x-stratiform-signature"].partition(",v1=")
    assert stamp == f"t={NOW:.0f}"
    assert hmac.compare_digest(given, hmac.new(SECRET, f"{NOW:.0f}.".encode() + last.body, hashlib.sha256).hexdigest())
    said = orjson.loads(last.body)
    assert (said["event"], said["team"], said["at"]) == ("budget.soft_limit", "red", "2023-11-14T22:13:20Z")
    assert {one.headers["x-stratiform-notice"] for one in receiver.seen} == {said["id"]}
    assert (outcome(metrics, "delivered"), outcome(metrics, "failed")) == (1, 0)


async def test_a_webhook_that_never_takes_a_notice_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    sender = sender_of(metrics)
    sender.start()
    sender.send("http://127.0.0.1:1/secret-path", "budget.soft_limit", {})
    sender.send("no url at all", "budget.soft_limit", {})
    await until_async(lambda: outcome(metrics, "failed") == 2)
    await sender.aclose()
    assert "secret-path" not in caplog.text


async def test_nothing_goes_on_behind_the_end() -> None:
    before = asyncio.all_tasks()
    sender = sender_of(Metrics())
    sender.start()
    assert asyncio.all_tasks() > before
    await sender.aclose()
    assert asyncio.all_tasks() == before


async def test_beyond_the_bound_notices_are_dropped_and_nobody_waits() -> None:
    metrics = Metrics()
    sender = sender_of(metrics)
    for _ in range(1005):
        sender.send("http://127.0.0.1:1", "budget.soft_limit", {})
    assert outcome(metrics, "dropped") == 5


async def test_a_soft_limit_is_told_once_a_window_by_all_workers_together() -> None:
    receiver, store = Webhook(), Flaky()
    with serving(receiver) as url:
        rule = Rule("daily", "the budget", hard=800 * DOLLAR, soft=100 * DOLLAR, window="day", webhook=f"{url}/hook")
        rolling = replace(rule, id="rolling", window="rolling:3600", hard=None)
        for _ in range(2):
            async with budgeting(rule, rolling, store=store, webhooks=sender_of(Metrics())) as one:
                for _ in range(3):
                    asked = exchange(SIZE)
                    await one.reserve(asked)
                    await one.settle(asked, Usage(110, 0))
        async with budgeting(rule, store=store, webhooks=sender_of(Metrics())) as one:
            for _ in range(2):
                with pytest.raises(BudgetExceeded):
                    await one.reserve(exchange(1000))
    said = [orjson.loads(one.body) for one in receiver.seen]
    told = sorted((one["event"], one["budget"]) for one in said)
    assert told == [
        ("budget.hard_limit", "daily"), ("budget.soft_limit", "daily"), ("budget.soft_limit", "rolling"),
    ]  # fmt: skip
    first = next(one for one in said if one["budget"] == "daily")
    assert first | {"id": "", "at": "", "event": ""} == {
        "id": "", "event": "", "at": "", "team": "red", "budget": "daily", "whom": "", "unit": "usd",
        "window": "day", "spent": first["spent"], "soft": 100.0, "hard": 800.0, "resets_at": "2023-11-15T00:00:00Z",
    }  # fmt: skip
