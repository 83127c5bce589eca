"""The estimate of what a change costs, on traffic that is given."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.prompts.variants import Side, Sizes, TextDifference, Traffic, estimated
from proxy.protocol.prices import Price
from proxy.services.prompting import Whose

PRICE = Price(3.0, 15.0, 0.3, 3.75, 6.0)
WHOSE = Whose("m", "red")


def bill(
    of_one: Counter[str], old: Sizes, new: Sizes, kept_tokens: int | None, price: Price | None = PRICE
) -> dict[str, Any]:
    change = TextDifference((), Side(sizes=old), Side(sizes=new), kept_tokens)
    return estimated(Traffic({WHOSE: of_one}), lambda _: change, lambda _: price)


def test_cold_requests_pay_the_price_of_a_fresh_prompt_and_warm_ones_that_of_a_read() -> None:
    of_one = Counter(requests=10, warm=8, sessions=2, read_tokens=8_000, write_5m_tokens=1)
    found = bill(of_one, Sizes(100, 0, 0), Sizes(110, 0, 0), None)
    assert found["requests_usd"] == pytest.approx(10 * (8 * 0.3 + 2 * 3.75))


@pytest.mark.parametrize(("write_5m", "write_1h", "fresh"), [(0, 0, 3.0), (5, 0, 3.75), (5, 6, 6.0)])
def test_a_fresh_prompt_costs_what_the_traffic_pays_for_it(write_5m: int, write_1h: int, fresh: float) -> None:
    of_one = Counter(requests=1, write_5m_tokens=write_5m, write_1h_tokens=write_1h)
    assert bill(of_one, Sizes(0, 0, 0), Sizes(0, 1, 1), None)["requests_usd"] == pytest.approx(2 * fresh)


def test_a_session_writes_what_stands_behind_the_changed_token_once_more() -> None:
    of_one = Counter(requests=10, warm=5, sessions=4, read_tokens=5_000, write_5m_tokens=1, open_s=86_400 * 60)
    found = bill(of_one, Sizes(200, 0, 0), Sizes(200, 0, 0), 100)
    assert found["once_usd_at_most"] == pytest.approx(4 * 900 * (3.75 - 0.3))
    assert found["once_usd"] == pytest.approx(2 * 900 * (3.75 - 0.3)), "two sessions are open on average"


def test_requests_of_models_without_a_price_are_counted() -> None:
    found = bill(Counter(requests=7), Sizes(0, 0, 0), Sizes(9, 0, 0), 0, None)
    assert (found["requests_usd"], found["once_usd"], found["requests_without_price"]) == (0.0, 0.0, 7)
    assert found["lines"][0]["requests_usd"] is None


SIZES = st.builds(Sizes, st.integers(0, 10_000), st.integers(0, 1_000), st.integers(0, 1_000))


@given(st.integers(1, 100), st.integers(0, 100), SIZES, SIZES, st.integers(0, 10_000))
def test_the_way_back_costs_what_the_change_saved(requests: int, warm: int, old: Sizes, new: Sizes, kept: int) -> None:
    of_one = Counter(requests=max(requests, warm), warm=warm, sessions=1, read_tokens=warm * 5_000)
    there, back = bill(of_one, old, new, kept), bill(of_one, new, old, kept)
    assert there["requests_usd"] == pytest.approx(-back["requests_usd"])
    assert there["once_usd_at_most"] == back["once_usd_at_most"] >= 0.0


def entry(at: float, read_tokens: int = 0, **fields: object) -> dict[str, object]:
    of_all = {"model": "m", "team": "red", "key_id": "", "user": "ann", "status": 200, "output_tokens": 5}
    counts = {"write_5m_tokens": 0, "write_1h_tokens": 0, "cost_usd": 0.5}
    return {"at": at, "read_tokens": read_tokens, **of_all, **counts, **fields}


def counted(*entries: dict[str, object]) -> dict[Whose, Counter[str]]:
    traffic = Traffic()
    for one in entries:
        traffic.add(one)
    return traffic.by_whose


def test_a_session_begins_with_a_cold_request_or_after_a_pause() -> None:
    one = counted(entry(0.0), entry(60.0, 100), entry(3_000.0, 100), entry(9_000.0, 100), entry(9_060.0))[WHOSE]
    assert (one["requests"], one["warm"], one["sessions"], one["cost_usd"]) == (5, 3, 3, 2.5)
    assert (one["open_s"], one["read_tokens"]) == (3 * 300.0 + 3_000.0, 300)


def test_users_have_sessions_of_their_own() -> None:
    found = counted(entry(0.0), entry(1.0, user="bob"), entry(2.0, 9), entry(3.0, 9, user="bob"))
    assert found[WHOSE]["sessions"] == 2


@pytest.mark.parametrize("fields", [{"status": 429}, {"output_tokens": 0}])
def test_what_no_model_answered_does_not_count(fields: dict[str, object]) -> None:
    assert counted(entry(0.0, **fields)) == {}
