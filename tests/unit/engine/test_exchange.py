"""Exchanges."""

from tests.exchanges import make_exchange


def test_ids_are_unique() -> None:
    assert len({make_exchange().arrival.id for _ in range(1000)}) == 1000


def test_time_runs_from_the_exchanges_own_now() -> None:
    exchange = make_exchange(now=1000.0)
    assert 1000.0 <= exchange.time() <= exchange.time()


def test_accepted_means_2xx_and_a_first_byte() -> None:
    exchange = make_exchange(status=200)
    assert not exchange.answer.is_accepted
    exchange.answer.first_byte_s = 0.1
    assert exchange.answer.is_accepted
    exchange.answer.status = 429
    assert not exchange.answer.is_accepted
