"""The end of an exchange: its log line, and its followers."""

import asyncio

import pytest

from proxy.engine.conclusion import Followers, Line, exchange_values, shown_piece
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, Principal, Settlement
from proxy.planner.plan import PlanResult
from proxy.protocol.response.usage import Usage
from proxy.teams.bookings import settled_entry
from tests.doubles import make_deployment
from tests.exchanges import make_exchange


def test_one_line_of_key_and_value() -> None:
    exchange = make_exchange(
        "POST",
        "/chat/completions",
        now=0.0,
        id="sx-1",
        is_chat=True,
        stream=True,
        model="m",
        principal=Principal(scope="secret-scope", team="blue"),
        deployment=make_deployment(name="m", api_key="sk-secret"),
        attempts=3,
        status=200,
        ending=ExchangeOutcome.COMPLETED,
        settlement=Settlement(Usage(prompt=10, output=3, read=8), 0.00125),
        first_byte_s=0.25,
    )
    assert str(Line("exchange", exchange_values(exchange))) == (
        "exchange id=sx-1 method=POST path=/chat/completions model=m deployment=m team=blue status=200 "
        "ending=completed mode=passthrough reason=not-chat stream=1 attempts=3 in_bytes=0 out_bytes=0 "
        "overhead_ms=0.00 first_byte_ms=250.00 total_ms=0.00 prompt=10 read=8 write=0 output=3 estimated=0 "
        "cost_usd=0.001250"
    )


def test_the_line_of_a_call_without_tokens_says_what_it_cost() -> None:
    image = make_exchange("POST", "/images/generations", now=0.0, status=200, settlement=Settlement(None, 0.04))
    assert str(Line("exchange", exchange_values(image))).endswith(" total_ms=0.00 cost_usd=0.040000")


def test_an_exchange_whose_client_left_has_the_same_status_wherever_it_is_told() -> None:
    left = make_exchange("POST", "/chat/completions", now=0.0, attempts=1, ending=ExchangeOutcome.HUNG_UP)
    assert exchange_values(left)["status"] == settled_entry(left).status == 499


@pytest.mark.parametrize(("cause", "shown"), [("untold", ""), ("tools-changed", " cause=tools-changed")])
def test_a_cause_is_shown_where_the_provider_has_named_one(cause: str, shown: str) -> None:
    result = PlanResult(deviation="evicted")
    exchange = make_exchange("POST", "/chat/completions", now=0.0, result=result, cache_cause=cause)
    assert str(Line("exchange", exchange_values(exchange))).endswith(f" cache=evicted{shown}")


def test_what_clients_choose_cannot_forge_a_line_or_a_field() -> None:
    evil = "m\r\nexchange id=forged status=200 \x1b[31m" + "x" * 1000
    exchange = make_exchange("GET", "/files?\n" + evil, now=0.0, model=evil, error_code="a b")
    line = str(Line("exchange", exchange_values(exchange)))
    assert line.isprintable()
    assert line.count("id=") == 1
    assert line.count(" status=") == 1
    assert len(line) < 700


def test_the_line_says_in_one_word_why_an_upstream_was_not_reached() -> None:
    why = "the upstream's certificate is not accepted: it is for another host"
    line = str(Line("exchange", exchange_values(make_exchange("POST", "/chat/completions", now=0.0, why=why))))
    assert " why=the-upstream-s-certificate-is-not-accepted-it-is-for-another-host mode=" in line


def test_a_document_is_named_by_the_attributes_of_its_tag() -> None:
    key = "system/document: section=\"1\" source='invoices.md':3f2a"
    assert shown_piece(key) == "system/document:section:1/source:invoices.md:3f2a"
    assert shown_piece("file:src/a.py") == "file:src/a.py"
    assert "sk-abcdefghijklmnop" not in shown_piece('document: api_key="sk-abcdefghijklmnop" source="a":00')
    assert shown_piece('x="<b>\n"') == "x:?b??/"


class Follower:
    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[object] = []
        self._fails = fails

    def _hear(self, what: object) -> None:
        self.heard.append(what)
        if self._fails:
            raise RuntimeError("away")

    def ended(self, exchange: Exchange) -> None:
        self._hear(exchange)

    async def aclose(self) -> None:
        self._hear("closed")


def test_all_hear_everything_although_one_fails() -> None:
    first, second = Follower(fails=True), Follower()
    both, exchange = Followers([first, second]), Exchange(Arrival("POST", "/chat/completions", 0.0))
    both.ended(exchange)
    asyncio.run(both.aclose())
    assert first.heard == second.heard == [exchange, "closed"]


def test_without_followers_nothing_happens() -> None:
    nobody = Followers([])
    asyncio.run(nobody.aclose())
