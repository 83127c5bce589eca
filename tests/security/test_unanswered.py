"""What is sent and not answered is paid for: hidden thinking, silence, lines that break, sound that is longer than its
file, and every call of an exchange that has several. The provider bills by the public rules, and a hard budget of $0.05
is never passed by more than one call's error."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import chosen, examples, sampled
from tests.fuzz.billing import CountingProvider
from tests.fuzz.spending import BUDGET_USD, Request, Worlds, flac, form, sent, spend, spending_worlds, wav
from tests.redis_server import BRISK, redis_server

JSON = (("content-type", "application/json"),)
THOUGHT_USD = 0.003
"""What is thought while a client's leaving is on its way."""
Priced = tuple[Worlds, CountingProvider]


@pytest.fixture(scope="module")
def priced() -> Iterator[Priced]:
    with spending_worlds() as both:
        yield both


def chat(path: str = "/v1/chat/completions", leaves_s: float | None = None, **more: object) -> Request:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Think."}], "max_tokens": 1000, **more}
    return Request(path, json.dumps(asked).encode(), JSON, leaves_s)


def billed(priced: Priced, request: Request, how: str, *, rounds: int, at_once: int = 4) -> tuple[float, list[int]]:
    """What the provider bills for these calls of a new key, all of which go one way, but for what it generates before
    it hears that a client has left; and their statuses."""
    (world,), provider = priced
    _, key = world.new_key()
    provider.bills.clear()
    provider.always, statuses = how, list[int]()
    for _ in range(rounds):
        statuses += world.at_once([lambda: sent(world, request, key)] * at_once)
        world.forget()
        provider.ended()
        if set(statuses[-at_once:]) == {429}:
            break
    provider.always = ""
    return provider.usd - provider.late_usd, statuses


@pytest.mark.parametrize(
    ("how", "request_"),
    sampled([
        ("thinks", chat(leaves_s=0.8, stream=True, max_tokens=300)),
        ("thinks", chat("/v1/messages", leaves_s=0.8, stream=True, max_tokens=300)),
        ("late", chat()), ("late", chat(stream=True, max_tokens=500)), ("gateway", chat()),
        ("breaks", chat(max_tokens=200)),
    ], 2),
    ids=["hidden thinking", "hidden thinking of messages", "timeout", "timeout of a stream", "gateway", "broken line"],
)  # fmt: skip
def test_what_was_sent_and_not_answered_is_paid_for(priced: Priced, how: str, request_: Request) -> None:
    usd, statuses = billed(priced, request_, how, rounds=8, at_once=12)
    assert usd <= BUDGET_USD + THOUGHT_USD
    assert usd > BUDGET_USD / 10, "some of it was sent"
    assert 429 in statuses, "in the end the budget was spent"


def test_sound_lasts_as_long_as_its_file_says(priced: Priced) -> None:
    hours, odd = form(flac(4 * 3600), model="m"), form(b"x" * 25_000, model="m")
    short = form(wav(20), model="m", response_format="text")
    for request in (hours, odd):
        assert billed(priced, request, "", rounds=1) == (0, [429] * 4)
    usd, statuses = billed(priced, short, "", rounds=1)
    assert (round(usd, 4), statuses) == (0.008, [200] * 4)
    usd, statuses = billed(priced, short, "", rounds=8)
    assert usd <= BUDGET_USD
    assert statuses.count(200) >= 10, "a file is booked as what it lasts"


@pytest.mark.parametrize("fails", chosen(["late", "gateway"], "gateway"))
def test_every_attempt_of_a_request_fits_what_was_set_aside(priced: Priced, fails: str) -> None:
    # One call takes more than a third of the budget, so that three of them do not fit.
    usd, statuses = billed(priced, chat(max_tokens=2000), fails, rounds=1, at_once=1)
    assert 0.02 < usd <= BUDGET_USD
    assert statuses == [429], "the third attempt was refused"


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(6), deadline=None)
@pytest.mark.slow
def test_random_requests_never_pass_a_hard_budget_by_more_than_one_calls_error(priced: Priced, seed: int) -> None:
    worlds, provider = priced
    found = spend(worlds, provider, seed, calls=40)
    assert found.billed_usd <= BUDGET_USD + found.allowed_usd, (found, sorted(provider.bills, key=lambda b: -b.usd)[:5])


def test_a_few_random_requests_at_once(priced: Priced) -> None:
    worlds, provider = priced
    found = spend(worlds, provider, seed=4, calls=16)
    assert found.billed_usd <= BUDGET_USD + found.allowed_usd
    assert found.calls > 4
    assert 200 in found.statuses


# A coroutine of litellm's that is cancelled before it begins complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "litellm"])
def test_workers_that_share_a_redis_spend_one_budget(tmp_path: Path, transport: str) -> None:
    with (
        redis_server(tmp_path, *BRISK) as store,
        spending_worlds(store.url, transport, workers=2) as (worlds, provider),
    ):
        for seed in range(examples(2)):
            found = spend(worlds, provider, seed, calls=40)
            assert found.billed_usd <= BUDGET_USD + found.allowed_usd, (found, provider.bills)
