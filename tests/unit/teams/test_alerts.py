"""What is told of budgets: how much is left, which limits were passed, and when a notice is sent again."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from proxy.engine.telemetry.metrics import Metrics
from proxy.models.charges import Rule
from proxy.storage import Balance, Charge
from proxy.storage.sqlite import MemoryStore
from proxy.teams.alerts import BudgetAlerts, WebhookSender, header_text, time_text
from proxy.teams.bookings import NOTHING, Booking, BudgetReservation, booked
from proxy.teams.store_client import StoreClient
from tests.doubles import ManualClock, serving
from tests.examples import for_every
from tests.fake_time import in_virtual_time
from tests.money import DOLLAR, NOW, Budgeting, budgeting
from tests.receiver import Received, Receiver, send_whole

TOTAL = Rule("total", "the budget", hard=100 * DOLLAR)
DAY = replace(TOTAL, id="day", window="day", hard=60 * DOLLAR)
MIDNIGHT = NOW // 86_400 * 86_400 + 86_400


class Sent(WebhookSender):
    """Keeps the notices."""

    def __init__(self) -> None:
        super().__init__(b"", ManualClock(NOW), Metrics())
        self.kept: list[tuple[str, str, Any]] = []

    def send(self, url: str, event: str, content: Any) -> None:
        self.kept.append((url, event, content))


class Claiming(MemoryStore):
    """Keeps the names that were claimed."""

    is_durable = True

    def __init__(self) -> None:
        super().__init__()
        self.claimed: list[tuple[str, str, float]] = []

    async def claim(self, team: str, name: str, keep_s: float, now: float) -> bool:
        self.claimed.append((team, name, keep_s))
        return await super().claim(team, name, keep_s, now)


@dataclass
class Desk:
    """Alerts, and what comes of them."""

    alerts: BudgetAlerts
    webhooks: Sent
    store: Claiming


def desk(store: Claiming | None = None) -> Desk:
    store, webhooks = store or Claiming(), Sent()
    return Desk(BudgetAlerts(StoreClient(store, ManualClock(NOW), Metrics()), Metrics(), webhooks), webhooks, store)


def held(*rules: Rule, team: str = "red") -> BudgetReservation:
    return BudgetReservation("x", team, bookings=[booked(rule, NOTHING, NOW) for rule in rules])


def balances(*spent: int, expected: int = 0) -> list[Balance]:
    return [Balance("a", dollars * DOLLAR, 0, expected * DOLLAR) for dollars in spent]


async def test_what_is_left_is_the_least_of_the_budgets_of_the_whole_team_in_dollars() -> None:
    at = desk()
    unseen = (
        replace(TOTAL, id="soft", hard=None), replace(TOTAL, id="own", whom="ann", hard=DOLLAR),
        replace(TOTAL, id="tokens", unit="tokens", hard=5),
    )  # fmt: skip
    await at.alerts.tell(held(TOTAL, DAY, *unseen), balances(30, 10, 1, 1, 1))
    assert at.alerts.remaining() == {"red": (50.0, MIDNIGHT)}
    await at.alerts.tell(held(TOTAL, DAY), balances(90, 10))
    assert at.alerts.remaining() == {"red": (10.0, math.inf)}
    await at.alerts.tell(held(replace(DAY, window="rolling:3600"), team="blue"), balances(70))
    assert at.alerts.remaining() == {"red": (10.0, math.inf), "blue": (-10.0, math.inf)}


@for_every([(8, 2, 10, False), (8, 3, 10, True), (11, 0, 10, True), (0, 0, 0, False), (1, 0, None, False)])
def test_a_client_is_warned_where_more_than_the_soft_limit_will_probably_be_spent(
    spent: int, expected: int, soft: int | None, warns: bool
) -> None:
    rule = replace(TOTAL, id="a b", soft=None if soft is None else soft * DOLLAR)
    for is_new in (True, False):
        at, reservation = desk(), held(rule)
        told = balances(spent, expected=expected)
        asyncio.run(at.alerts.tell(reservation, told, **{"is_new": True} if is_new else {}))
        is_told = warns and is_new
        assert reservation.notice == (f"a?b; spent=${spent}.00; soft=${soft}.00" if is_told else "")
        counted = at.alerts.metrics.registry.get_sample_value("stratiform_soft_limits_total", {"team": "red"})
        assert (counted or 0) == is_told


SOFT = replace(TOTAL, soft=10 * DOLLAR, webhook="http://hook")


@for_every([(9, False), (10, True), (11, True)])
def test_a_notice_is_sent_when_a_soft_limit_is_reached(spent: int, is_sent: bool) -> None:
    at = desk()
    asyncio.run(at.alerts.tell(held(SOFT), balances(spent)))
    assert len(at.webhooks.kept) == is_sent


@for_every(
    [
        (SOFT, "total", 10.0, 100.0, None), (replace(SOFT, window="day"), "day", 10.0, 100.0, MIDNIGHT),
        (replace(SOFT, unit="tokens", soft=9, hard=None), "total", 9.0, None, None),
        (replace(SOFT, soft=None, whom="ann"), "total", None, 100.0, None),
    ]
)  # fmt: skip
def test_a_notice_tells_the_budget_in_the_unit_that_people_read(
    rule: Rule, window: str, soft: float | None, hard: float | None, resets_at: float | None
) -> None:
    at, booking = desk(), booked(rule, NOTHING, NOW)
    asyncio.run(at.alerts.notify("budget.hard_limit", "red", booking, Balance("a", 30 * DOLLAR, 0)))
    ((url, event, content),) = at.webhooks.kept
    assert (url, event) == ("http://hook", "budget.hard_limit")
    assert content == {
        "team": "red", "budget": "total", "whom": rule.whom, "unit": rule.unit, "window": window,
        "spent": 30.0 if rule.unit == "usd" else 30.0 * DOLLAR, "soft": soft, "hard": hard,
        "resets_at": time_text(resets_at),
    }  # fmt: skip


async def test_a_notice_is_claimed_once_a_window_for_as_long_as_its_counter_is_kept() -> None:
    store = Claiming()
    first, second = desk(store), desk(store)
    rolling = replace(SOFT, id="rolling", window="rolling:3600")
    rules = (SOFT, replace(SOFT, id="day", window="day"), rolling, replace(SOFT, id="silent", webhook=""))
    for at in (first, first, second):
        for rule in rules:
            for now in (NOW, NOW + 300):  # another part of the rolling window
                await at.alerts.notify("e", "red", booked(rule, NOTHING, now), Balance("a", 1, 0))
    names = ["e:b:total:-:total", "e:b:day:-:2023-11-14", "e:b:rolling:-:rolling:3600"]
    assert [name for _, name, _ in store.claimed] == names * 2, "once by each worker"
    keep_s = [400 * 86_400.0, MIDNIGHT - NOW + 7 * 86_400, 3600 + 2 * 150.0]
    assert [one[2] for one in store.claimed[:3]] == keep_s
    assert [one[2]["budget"] for one in first.webhooks.kept] == ["total", "day", "rolling"]
    assert second.webhooks.kept == []
    await first.alerts.notify("e", "blue", booked(SOFT, NOTHING, NOW), Balance("a", 1, 0))
    assert first.webhooks.kept[-1][2]["team"] == "blue"


async def test_the_notices_that_were_claimed_last_are_remembered() -> None:
    at = desk()
    for number in range(10_000):
        at.alerts._claimed.put(("red", str(number)), True)
    await at.alerts.notify("e", "red", booked(SOFT, NOTHING, NOW), Balance("a", 1, 0))
    assert (len(at.alerts._claimed), ("red", "0") in at.alerts._claimed) == (10_000, False)


def further(rule: Rule, amount: int) -> Booking:
    one = booked(rule, NOTHING, NOW)
    return replace(one, charge=replace(one.charge, amount=amount * DOLLAR))


@for_every(
    [
        ([TOTAL], [31], 1.0), ([TOTAL], [30], 0.0), ([replace(TOTAL, hard=None)], [90], 0.0),
        ([replace(TOTAL, unit="tokens")], [90], 0.0), ([TOTAL, DAY], [32, 35], 2.0), ([TOTAL, DAY], [30, 35], 5.0),
        ([TOTAL], [30.000000001], 1e-9),
        ([replace(TOTAL, hard=None), DAY], [90, 34], 4.0),
    ]
)  # fmt: skip
def test_an_exchange_that_costs_more_than_was_set_aside_is_counted_once(
    rules: Sequence[Rule], final: Sequence[float], over: float
) -> None:
    at = desk()
    reservation = BudgetReservation("x", "red", bookings=[further(rule, 30) for rule in rules])
    at.alerts.note_overrun(reservation, [Charge("a", round(dollars * DOLLAR)) for dollars in final])
    counted = at.alerts.metrics.registry.get_sample_value("stratiform_budget_overrun_usd_total", {"team": "red"})
    assert (counted or 0.0) == over


async def test_what_is_left_is_known_ahead_of_the_first_request() -> None:
    at = desk()
    booking = booked(DAY, NOTHING, NOW)
    await at.store.set_spent("red", replace(booking.charge, amount=15 * DOLLAR), NOW)
    await at.alerts.look([("red", DAY)], NOW)
    assert at.alerts.remaining() == {"red": (45.0, MIDNIGHT)}


async def test_what_is_left_is_read_again_and_a_budget_that_is_gone_is_forgotten() -> None:
    at = desk()
    await at.alerts.tell(held(TOTAL, replace(DAY, hard=DOLLAR)), balances(30, 10))
    await at.alerts.tell(held(TOTAL, team="blue"), balances(70))
    await at.alerts.look([("red", TOTAL)], NOW)
    assert at.alerts.remaining() == {"red": (100.0, math.inf)}


@for_every([("plain-name_1.a/b@c+d", "plain-name_1.a/b@c+d"), ("a b\r\n:é", "a?b????"), ("", "")])
def test_a_header_holds_only_safe_characters(text: str, told: str) -> None:
    assert header_text(text) == told


@for_every([(None, None), (0.0, "1970-01-01T00:00:00Z"), (NOW + 0.9, "2023-11-14T22:13:20Z")])
def test_times_are_told_in_utc(at: float | None, told: str | None) -> None:
    assert time_text(at) == told


# Delivery


class Scripted(WebhookSender):
    """Makes its attempts on paper: each takes so many seconds, and has these results, one after the other."""

    def __init__(self, takes_s: float, *problems: str, **more: Any) -> None:
        self.metrics = Metrics()
        super().__init__(b"", ManualClock(NOW), self.metrics, **more)
        self._takes_s, self._problems = takes_s, list(problems)
        self.attempts: list[tuple[float, str]] = []
        self.ended = 0

    async def _post(self, url: str, body: bytes, notice_id: str) -> str:
        self.attempts.append((asyncio.get_running_loop().time(), url))
        assert orjson.loads(body)["id"] == notice_id
        await asyncio.sleep(self._takes_s)
        self.ended += 1
        return self._problems.pop(0) if self._problems else ""

    def outcome(self, name: str) -> float:
        return self.metrics.registry.get_sample_value("stratiform_notices_total", {"outcome": name}) or 0.0


@pytest.mark.parametrize(("failures", "outcome"), [(0, "delivered"), (2, "delivered"), (5, "delivered"), (9, "failed")])
def test_a_notice_is_tried_again_after_growing_pauses_for_some_minutes(failures: int, outcome: str) -> None:
    async def main() -> Scripted:
        sender = Scripted(0.0, *["status 500"] * failures)
        sender.start()
        sender.send("u", "e", {})
        await asyncio.sleep(3600)
        await sender.aclose()
        return sender

    sender = in_virtual_time(main)
    assert [at for at, _ in sender.attempts] == pytest.approx([0, 1, 6, 36, 156, 756][: failures + 1], abs=1e-6)
    assert (sender.outcome(outcome), sender.outcome("delivered") + sender.outcome("failed")) == (1, 1)


def test_four_notices_are_under_way_at_once_and_at_most_a_thousand_wait() -> None:
    async def main() -> Scripted:
        sender = Scripted(5.0)
        sender.start()
        for number in range(1003):
            sender.send(str(number), "e", {})
        await asyncio.sleep(9)
        assert [url for _, url in sender.attempts] == [str(number) for number in range(8)]
        await asyncio.sleep(3600)
        await sender.aclose()
        return sender

    sender = in_virtual_time(main)
    assert (len(sender.attempts), sender.outcome("delivered"), sender.outcome("dropped")) == (1000, 1000, 3)


@pytest.mark.parametrize(
    ("waiting", "takes_s", "ended", "after_s"), [(0, 5, 0, 0), (4, 7, 0, 0), (5, 4, 5, 8), (5, 7, 4, 10)]
)
def test_notices_that_wait_at_the_end_get_the_time_of_one_attempt(
    waiting: int, takes_s: float, ended: int, after_s: float
) -> None:
    async def main() -> tuple[int, float]:
        sender = Scripted(takes_s)
        sender.start()
        for _ in range(waiting):
            sender.send("u", "e", {})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await sender.aclose()
        return sender.ended, asyncio.get_running_loop().time()

    assert in_virtual_time(main) == (ended, pytest.approx(after_s, abs=1e-6))


class Answering(Receiver):
    """Answers with this status, and a place to go on to."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.seen: list[Received] = []

    async def answer(self, request: Received, send: Any, receive: Any) -> None:
        self.seen.append(request)
        await send_whole(send, self.status, b"", [("location", "/elsewhere")])


@pytest.mark.parametrize(
    ("status", "is_taken"), [(200, True), (204, True), (299, True), (300, False), (302, False), (503, False)]
)
async def test_a_notice_is_taken_with_a_2xx_and_goes_nowhere_else(status: int, is_taken: bool) -> None:
    receiver, metrics = Answering(status), Metrics()
    sender = WebhookSender(b"whsec", ManualClock(NOW), metrics, pauses_s=())
    sender.start()
    with serving(receiver) as url:
        sender.send(f"{url}/hook", "e", {"team": "red"})
        await sender._queue.join()
        await sender.aclose()
    (seen,) = receiver.seen
    assert seen.path == "/hook"
    assert (seen.headers["content-type"], seen.headers["user-agent"]) == ("application/json", "stratiform")
    assert seen.headers["x-stratiform-notice"].startswith("sn-")
    assert len(seen.headers["x-stratiform-notice"]) == len("sn-") + 16
    taken = metrics.registry.get_sample_value("stratiform_notices_total", {"outcome": "delivered"}) or 0.0
    assert taken == is_taken


async def test_the_alerts_of_a_proxy_send_until_it_ends() -> None:
    sender = Scripted(0.0)
    async with budgeting(webhooks=sender) as one:
        assert isinstance(one, Budgeting)
        sender.send("u", "e", {})
        await sender._queue.join()
    assert sender.ended == 1
