"""What a request used, for its client and for the operator: the figures of the ledger and of the session."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.engine.conclusion import Followers
from proxy.kit.tasks import Aside
from proxy.services import ModelFacts
from proxy.services.session_book import TokenUsage, UsageFollower
from tests.unit.services.test_session_book import Store, Worker


class Watched(Worker):
    """A proxy whose operator watches."""

    def __init__(self, store: Store, *, fails: bool = False, **more: Any) -> None:
        super().__init__(store, **more)
        self.reports: list[Mapping[str, Any]] = []

        def show(report: Mapping[str, Any]) -> None:
            if fails:
                raise OSError("the terminal is gone")
            self.reports.append(report)

        facts = ModelFacts(lambda of: (200_000, 8_000))
        self.watching = UsageFollower(TokenUsage(facts, Aside(), self.book.so_far), show)
        self.followers = Followers([self.book])
        self.followers.lead(self.watching)

    def ended(self, exchange: Any) -> None:
        self.followers.ended(exchange)
        if self.keeps_alive:
            self.keep_alive.ended(exchange)


async def test_each_report_has_the_request_its_tiers_and_the_session_up_to_it() -> None:
    worker = Watched(Store())
    for turn in range(4):
        await worker.ask(turn, changed=turn)
    await worker.watching.aclose()
    await worker.written()
    reports = worker.reports
    assert [report["session"]["requests"] for report in reports] == [1, 2, 3, 4]
    for name in ("prompt_tokens", "cache_read_tokens", "cost_usd", "saved_usd"):
        sums = sum(report["request"][name] for report in reports)
        assert reports[-1]["session"][name] == pytest.approx(sums)
    (one,) = (await worker.get())["data"]
    assert reports[-1]["session"]["cost_usd"] == pytest.approx(one["cost_usd"])
    last = reports[-1]
    assert (last["model"], last["mode"], last["max_input_tokens"]) == ("m", "tier", 200_000)
    assert {tier["tier"]: tier["tokens"] for tier in last["tiers"]} == {
        name: tokens for name, tokens in one["tiers"].items() if tokens
    }
    for tier in last["tiers"]:
        assert tier["tokens"] == sum(part["tokens"] for part in tier["contents"])
    assert "stable.py" not in str(reports)


async def test_a_refresh_of_the_proxys_own_is_not_shown() -> None:
    worker = Watched(Store(), keeps_alive=True)
    for turn in range(3):
        await worker.ask(turn)
        await worker.clock.advance(20.0)
    await worker.clock.advance(290.0)
    await worker.watching.aclose()
    assert len(worker.reports) == 3


async def test_a_display_that_fails_costs_no_request() -> None:
    worker = Watched(Store(), fails=True)
    await worker.ask(0)
    await worker.watching.aclose()
    await worker.written()
    (one,) = (await worker.get())["data"]
    assert one["requests"] == 1


async def test_without_a_count_of_sessions_there_is_none_in_the_report() -> None:
    worker = Watched(Store())
    worker.watching._reports._so_far = None
    await worker.ask(0)
    await asyncio.sleep(0)
    await worker.watching.aclose()
    assert worker.reports[0]["session"] is None
