"""The limits that count an exchange: names of counters, windows, the rules that hold, and the headers about them."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.exchange import ExchangeOutcome, Principal, Settlement
from proxy.kit.modes import Mode
from proxy.models import Deployment, RateLimit, Transport
from proxy.models.charges import Estimate, Rule
from proxy.models.deployments import ListedModel, ModelTable
from proxy.planner.plan import PlanResult
from proxy.planner.record import Break, BreakKind
from proxy.protocol.prices import Price
from proxy.protocol.providers import NONE
from proxy.protocol.request.demand import BillingKind, Demand
from proxy.protocol.response.usage import Usage
from proxy.storage import Balance, BudgetRecord, Charge, LedgerEntry, Refused, Reserve
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Declared, Directory
from proxy.teams.bookings import (
    DEPLOYMENT_REQUESTS_ID,
    DEPLOYMENT_TOKENS_ID,
    NOTHING,
    ONE,
    REQUESTS_ID,
    TOKENS_ID,
    Booking,
    BudgetReservation,
    BudgetWindow,
    LimitResolver,
    account_of,
    booked,
    counter_of,
    deployment_rules,
    lost_entry,
    rate_headers,
    refusing,
    settled_entry,
    window_at,
)
from tests.doubles import make_deployment
from tests.examples import for_every
from tests.exchanges import make_exchange

DAY = "2026-11-22"


def rule(whom: str = "", *, is_rate: bool = False) -> Rule:
    return Rule("daily", "the budget", hard=1, whom=whom, is_rate=is_rate)


def test_a_counter_is_named_by_rule_whom_and_window() -> None:
    assert account_of(rule(), DAY) == "b:daily:-:2026-11-22"
    assert account_of(rule("ann"), DAY) == "b:daily:ann:2026-11-22"
    assert account_of(rule("key-1", is_rate=True), DAY) == "r:daily:key-1:2026-11-22"
    assert counter_of("red", rule("ann")) == "red:b:daily:ann:"


def test_a_name_that_is_not_plain_is_spelt_as_in_the_stores_that_hold_it() -> None:
    # BLAKE2b of the name, 12 bytes: another spelling would begin every budget of such a user anew.
    assert account_of(rule("a b"), DAY) == "b:daily:~f8ead3ec60da789524652385:2026-11-22"


@given(st.text(), st.text())
def test_nobody_shares_a_counter_with_another(one: str, other: str) -> None:
    names = {account_of(rule(whom), DAY) for whom in (one, other)}
    assert len(names) == len({one, other})
    assert all(re.fullmatch(r"b:daily:[\w.@+/~-]{1,64}:2026-11-22", name, re.ASCII) for name in names)


def test_a_budget_reserves_the_most_and_a_rate_limit_what_is_expected() -> None:
    amounts = {unit: Estimate(100, 7) for unit in ("usd", "tokens", "requests")}
    charges = [
        booked(Rule("r", "limit", "tokens", 50, window="minute", is_rate=is_rate), amounts, 0.0).charge
        for is_rate in (False, True)
    ]
    assert [(one.amount, one.expected) for one in charges] == [(100, 7), (7, 7)]


BUDGET = Rule("total", "t", hard=5)


def limit(rule: Rule, spent: int, reserved: int, resets_at: float | None = 130.0) -> tuple[Booking, Balance]:
    return Booking(rule, BudgetWindow("w", resets_at, None), Charge("a", 1)), Balance("a", spent, reserved)


def rate(unit: str, hard: int, whom: str = "key-1") -> Rule:
    return Rule(f"rate/{unit}", "t", unit=unit, hard=hard, window="minute", whom=whom, is_rate=True)  # type: ignore[arg-type]


def test_the_limit_with_the_least_left_is_told() -> None:
    limits = [
        limit(rate("requests", 60), 10, 5),
        limit(rate("requests", 1000, ""), 995, 2),
        limit(rate("tokens", 500), 600, 0),
        limit(BUDGET, 1, 1, resets_at=None),
    ]
    assert rate_headers(limits, now=100.5) == [
        ("x-ratelimit-limit-requests", "1000"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-reset-requests", "30s"),
        ("x-ratelimit-limit-tokens", "500"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "30s"),
    ]


def test_nothing_is_said_where_there_is_no_rate_limit() -> None:
    assert rate_headers([limit(BUDGET, 1, 1, resets_at=None)], 0.0) == []


BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@for_every(
    [
        ("day", "UTC", "2026-11-22T23:59:59", "2026-11-22", "2026-11-23T00:00:00"),
        ("day", BERLIN, "2026-11-22T00:00:00", "2026-11-22", "2026-11-23T00:00:00"),
        ("week", "UTC", "2026-11-22T12:00:00", "2026-11-16", "2026-11-23T00:00:00"),  # a Sunday
        ("week", "UTC", "2026-11-23T00:00:00", "2026-11-23", "2026-11-30T00:00:00"),
        ("month", "UTC", "2026-12-31T23:00:00", "2026-12-01", "2027-01-01T00:00:00"),
        ("month", BERLIN, "2026-02-01T00:00:00", "2026-02-01", "2026-03-01T00:00:00"),
        # The clocks change on 29 March (a day of 23 hours) and 25 October (of 25).
        ("day", BERLIN, "2026-03-29T12:00:00", "2026-03-29", "2026-03-30T00:00:00"),
        ("day", BERLIN, "2026-10-25T23:30:00", "2026-10-25", "2026-10-26T00:00:00"),
    ]
)
def test_calendar_windows_begin_at_local_midnight(kind: str, zone: str, now: str, name: str, resets: str) -> None:
    window = window_at(kind, zone, at(now, zone))
    assert (window.name, window.resets_at) == (name, at(resets, zone))
    assert window.within == ()
    assert window.keep_s is not None
    # People can look at a window that is over for a week, two weeks or two months more.
    shown_s = window.keep_s - (at(resets, zone) - at(now, zone))
    assert shown_s == {"day": 7, "week": 14, "month": 62}[kind] * 86_400


def test_a_day_begins_elsewhere_in_another_zone() -> None:
    now = at("2026-11-22T23:30:00")
    assert window_at("day", "UTC", now).name == "2026-11-22"
    assert window_at("day", BERLIN, now).name == "2026-11-23"
    assert window_at("day", "America/New_York", now).name == "2026-11-22"


def test_minutes_and_hours_begin_on_the_clock() -> None:
    now = at("2026-11-22T10:59:59")
    minute, hour = window_at("minute", "UTC", now), window_at("hour", "UTC", now)
    assert minute.resets_at == hour.resets_at == at("2026-11-22T11:00:00")
    assert window_at("minute", "UTC", now + 1).name != minute.name
    assert window_at("hour", "UTC", now - 3599).name == hour.name


def test_the_total_never_begins_anew() -> None:
    window = window_at("total", "UTC", 0.0)
    assert (window.name, window.resets_at, window.keep_s) == ("total", None, None)
    assert window_at("total", "UTC", 2e9) == window


@given(
    length=st.integers(1, 400 * 86400),
    now=st.floats(0, 4e9, allow_nan=False),
    share=st.floats(0, 1, allow_nan=False),
)
def test_whatever_is_within_a_rolling_window_counts(length: int, now: float, share: float) -> None:
    window = window_at(f"rolling:{length}", "UTC", now)
    counted = {window.name, *window.within}
    assert window_at(f"rolling:{length}", "UTC", max(0.0, now - share * length)).name in counted
    assert window.resets_at is not None
    assert window.resets_at > now
    # What lies a part and more behind the window does not.
    part = max(1.0, length / 24)
    long_ago = now - length - 2 * part
    if long_ago > 0:
        assert window_at(f"rolling:{length}", "UTC", long_ago).name not in counted
    assert len(counted) <= 26


def test_an_unknown_window_is_refused() -> None:
    with pytest.raises(ValueError, match="no window of the name 'year'"):
        window_at("year", "UTC", 0.0)


@pytest.mark.parametrize("length_s", [1, 60, 3600, 86_400])
def test_a_rolling_window_counts_each_part_of_it_once(length_s: int) -> None:
    window = window_at(f"rolling:{length_s}", "UTC", 1_700_000_123.0)
    assert len({window.name, *window.within}) == 1 + len(window.within)


@pytest.mark.parametrize(("kind", "length_s"), [("minute", 60), ("hour", 3600)])
def test_the_counter_of_a_short_window_stays_as_long_again(kind: str, length_s: int) -> None:
    assert window_at(kind, "UTC", 1_700_000_123.0).keep_s == 2 * length_s


MODEL = Deployment("openai/gpt-5", "gpt-5", Transport.HTTP, NONE)
ALICE = Principal("s", team="red", key_id="key-1", user="alice")


def no_price(deployment: Deployment) -> Price | None:
    return None


def limit_resolver(*budgets: BudgetRecord) -> LimitResolver:
    return LimitResolver(Directory(Declared(budgets=budgets), MemoryStore()), "")


def whom(budget: BudgetRecord, principal: Principal = ALICE) -> list[str]:
    return [rule.whom for rule in limit_resolver(budget).rules(principal, MODEL)]


def test_all_names_behind_a_wildcard_share_the_limits_of_their_deployment() -> None:
    rates = RateLimit("", requests=3)
    entries = [ListedModel("openai/*", "openai/*", base_url="http://a/v1", rates=rates) for _ in range(2)]
    models = ModelTable([*entries, ListedModel("exact", "openai/gpt-5", base_url="http://a/v1", rates=rates)], no_price)

    def holders(name: str) -> list[str]:
        return [rule.whom for one in models.candidates(name) for rule in deployment_rules(one)]

    assert sorted(holders("gpt-5")) == sorted(holders("openai/gpt-5")) == ["openai/*#1", "openai/*#2"]
    assert sorted(holders("openai/o9")) == ["openai/*#1", "openai/*#2"]
    assert holders("exact") == ["exact"]


def test_nobody_is_limited_without_a_rule() -> None:
    assert not limit_resolver().rules(ALICE, MODEL)
    assert not limit_resolver(BudgetRecord("b", "blue", hard=1)).rules(ALICE, MODEL)


async def test_where_no_rule_can_be_found_it_is_known_that_nothing_holds() -> None:
    """Then nobody asks what else a request can reach."""
    rated, key = RateLimit("", 60, None), BudgetRecord("b", "red", scope="key", subject="key-2", hard=1)
    for rates, budgets in product([(), (rated,)], [(), (key,), (replace(key, subject="*"),)]):
        principal, directory = replace(ALICE, rates=rates), Directory(Declared(budgets=budgets), MemoryStore())
        rules = LimitResolver(directory, "")
        assert rules.may_hold(principal)  # the store was not read yet
        await directory.load()
        assert rules.may_hold(principal) is bool(rates or budgets)
        assert rules.may_hold(principal) or not rules.rules(principal, MODEL)
        assert not rules.may_hold(replace(ALICE, team="blue"))


@for_every(
    [
        ("team", "*", [""]),
        ("key", "*", ["key-1"]),
        ("key", "key-1", ["key-1"]),
        ("key", "key-2", []),
        ("user", "*", ["alice"]),
        ("user", "alice", ["alice"]),
        ("user", "bob", []),
        ("model", "*", ["openai/gpt-5"]),
        ("model", "openai/gpt-5", ["openai/gpt-5"]),
        ("model", "openai/*", ["openai/*"]),
        ("model", "anthropic/*", []),
    ]
)
def test_a_budget_holds_for_whom_it_is_about(scope: str, subject: str, expected: list[str]) -> None:
    assert whom(BudgetRecord("b", "red", scope=scope, subject=subject, hard=1)) == expected  # type: ignore[arg-type]


def test_to_name_no_user_is_no_way_around_a_budget_for_each() -> None:
    nobody = Principal("s", team="red")
    assert whom(BudgetRecord("b", "red", scope="user", hard=1), nobody) == [""]
    assert whom(BudgetRecord("b", "red", scope="user", subject="alice", hard=1), nobody) == []


def test_a_rule_says_all_that_the_budget_says() -> None:
    budget = BudgetRecord(
        "red/monthly", "red", "user", "*", "tokens", 100, 80, "month", "Europe/Berlin", 99, "https://hook/x"
    )
    (rule,) = limit_resolver(budget).rules(ALICE, MODEL)
    assert (rule.id, rule.unit, rule.hard, rule.soft, rule.window) == ("monthly/tokens", "tokens", 100, 80, "month")
    assert (rule.timezone, rule.assumed_output_tokens, rule.webhook) == ("Europe/Berlin", 99, "https://hook/x")
    assert rule.title == "the budget 'monthly' of team 'red' for user 'alice'"
    assert not rule.is_rate
    assert "hook" not in repr(rule)


@pytest.mark.parametrize(
    ("scope", "principal", "title"),
    [
        ("team", ALICE, "the budget 'b' of team 'red'"),
        ("key", ALICE, "the budget 'b' of team 'red' for key 'key-1'"),
        ("user", Principal("s", team="red"), "the budget 'b' of team 'red' for no user"),
    ],
)
def test_a_title_says_whose_budget_it_is(scope: str, principal: Principal, title: str) -> None:
    budget = BudgetRecord("red/b", "red", scope=scope, hard=1)  # type: ignore[arg-type]
    (rule,) = limit_resolver(budget).rules(principal, MODEL)
    assert rule.title == title


def test_a_budget_without_a_webhook_has_the_common_one() -> None:
    budgets = BudgetRecord("red/a", "red", soft=1), BudgetRecord("red/b", "red", soft=1, webhook="https://own")
    found = LimitResolver(Directory(Declared(budgets=budgets), MemoryStore()), "https://common").rules(ALICE, MODEL)
    assert [rule.webhook for rule in found] == ["https://common", "https://own"]


@pytest.mark.parametrize(
    ("name", "unit", "rule_id"),
    [("total", "usd", "total"), ("day-tokens", "tokens", "day-tokens"), ("x", "tokens", "x/tokens"),
     ("x-tokens", "usd", "x-tokens/usd")],
)  # fmt: skip
def test_counters_of_one_name_and_two_units_are_two(name: str, unit: str, rule_id: str) -> None:
    budget = BudgetRecord(f"red/{name}", "red", unit=unit, hard=1)  # type: ignore[arg-type]
    assert [rule.id for rule in limit_resolver(budget).rules(ALICE, MODEL)] == [rule_id]


def test_rates_are_rules_of_a_minute_for_the_key_and_for_the_team_together() -> None:
    principal = Principal(
        "s", team="red", key_id="key-1", rates=(RateLimit("key-1", 60, None), RateLimit("", None, 1000))
    )
    found = limit_resolver(BudgetRecord("red/total", "red", hard=1)).rules(principal, MODEL)
    assert [(rule.id, rule.unit, rule.hard, rule.whom, rule.is_rate) for rule in found] == [
        (REQUESTS_ID, "requests", 60, "key-1", True),
        (TOKENS_ID, "tokens", 1000, "", True),
        ("total", "usd", 1, "", False),
    ]
    assert {rule.window for rule in found if rule.is_rate} == {"minute"}


async def test_a_budget_that_is_made_while_the_proxy_runs_holds_at_once() -> None:
    directory = Directory(Declared(), MemoryStore())
    await directory.load()
    rules = LimitResolver(directory, "")
    await directory.put(BudgetRecord("bud-1", "red", hard=5))
    assert [rule.id for rule in rules.rules(ALICE, MODEL)] == ["bud-1"]
    await directory.remove("budget", "bud-1")
    assert not rules.rules(ALICE, MODEL)


def test_an_entry_holds_no_key_that_its_client_put_into_a_models_name() -> None:
    exchange = make_exchange(deployment=make_deployment("open/key-of-mine-1"), principal=ALICE, keys=("key-of-mine-1",))
    amounts = dict.fromkeys(("usd", "tokens"), Estimate(1, 1))
    assert exchange.deployment is not None
    for entry in (settled_entry(exchange), lost_entry(exchange, exchange.deployment, amounts)):
        assert entry.model == "open/[redacted]"


# Windows by the calendar alone

ZONES = ("UTC", BERLIN, "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago", "Pacific/Apia")


def calendar_window(kind: str, zone: str, now: float) -> BudgetWindow:
    today = datetime.fromtimestamp(now, ZoneInfo(zone)).date()
    start, end = {
        "day": (today, today + timedelta(1)),
        "week": (today - timedelta(today.isoweekday() - 1), today + timedelta(8 - today.isoweekday())),
        "month": (date(today.year, today.month, 1), date(today.year + today.month // 12, today.month % 12 + 1, 1)),
    }[kind]
    resets_at = datetime.combine(end, time.min, ZoneInfo(zone)).timestamp()
    keep_s = resets_at - now + {"day": 7, "week": 14, "month": 62}[kind] * 86_400
    return BudgetWindow(start.isoformat(), resets_at, keep_s)


@given(st.sampled_from(["day", "week", "month"]), st.sampled_from(ZONES), st.integers(0, 4_000_000_000))
def test_a_calendar_window_lies_between_two_local_dates(kind: str, zone: str, now: int) -> None:
    assert window_at(kind, zone, now) == calendar_window(kind, zone, now)


@for_every(product(["day", "week", "month"], [BERLIN, "America/Havana", "Asia/Beirut"]))
def test_a_window_begins_once_where_there_are_two_midnights_or_none(kind: str, zone: str) -> None:
    """Summer time begins at midnight in Beirut, so that there is none, and ends at one in Havana, so that there are
    two."""
    for hour in range(0, 366 * 24, 5):
        now = at("2026-01-01T00:30:00") + 3600 * hour
        assert window_at(kind, zone, now) == calendar_window(kind, zone, now)


@given(st.sampled_from([("minute", 60), ("hour", 3600)]), st.integers(0, 4_000_000_000))
def test_a_short_window_is_named_by_its_number_since_1970(kind: tuple[str, int], now: int) -> None:
    name, length_s = kind
    number = now // length_s
    end = float((number + 1) * length_s)
    assert window_at(name, "Nowhere", now) == BudgetWindow(f"{name}:{number}", end, 2 * length_s)


@given(st.integers(1, 366 * 86_400), st.integers(0, 4_000_000_000))
def test_a_rolling_window_counts_every_part_that_it_may_reach(length: int, now: int) -> None:
    part_s = max(1.0, length / 24)
    window = window_at(f"rolling:{length}", "UTC", now)
    own = int(now / part_s)
    reached = range(own - math.ceil(length / part_s), own + 2)  # and the next, for a host whose clock is ahead
    assert Counter([window.name, *window.within]) == Counter(f"r{length}:{number}" for number in reached)
    assert (window.name, window.resets_at) == (f"r{length}:{own}", (own + 1) * part_s)
    assert window.keep_s == length + 2 * part_s


# Charges, and what an exchange takes of them


def test_a_charge_is_on_the_counter_of_its_rule_and_its_window() -> None:
    rolling = Rule("b", "t", "tokens", 50, 40, window="rolling:7200", whom="ann")
    found = booked(rolling, {"tokens": Estimate(9, 4)}, 7200.0)
    names = [f"b:b:ann:r7200:{number}" for number in (25, *range(23, -1, -1))]
    assert found.window == window_at("rolling:7200", "UTC", 7200.0)
    assert found.charge == Charge("b:b:ann:r7200:24", 9, 50, 7800.0, 4, tuple(names))
    assert booked(replace(rolling, hard=None, window="total"), {"tokens": Estimate(9, 4)}, 0.0).charge == Charge(
        "b:b:ann:total", 9, None, None, 4
    )
    assert {(unit, one.most, one.expected) for unit, one in NOTHING.items()} == {
        ("usd", 0, 0), ("tokens", 0, 0), ("requests", 0, 0),
    }  # fmt: skip
    assert dict.fromkeys(NOTHING, Estimate(1, 1)) == ONE


@for_every(
    [
        ("a" * 64, "a" * 64), ("Ann.b@c+d/e-f_g", "Ann.b@c+d/e-f_g"), ("--", "--"), ("", "-"),
        ("-", "~"), ("a" * 65, "~"), ("a:b", "~"), ("\u00e9", "~"), ("a\n", "~"),
    ]
)  # fmt: skip
def test_only_a_plain_name_stands_in_a_counter_as_it_is(whom: str, told: str) -> None:
    name = account_of(rule(whom), DAY).removeprefix("b:daily:").removesuffix(f":{DAY}")
    assert name == told if told != "~" else re.fullmatch("~[0-9a-f]{24}", name)


def booking(unit: str, rule_id: str = "b", amount: int = 5) -> Booking:
    return Booking(Rule(rule_id, "t", unit), BudgetWindow("w", None, None), Charge(f"{rule_id}:{unit}", amount))  # type: ignore[arg-type]


def test_a_refusal_is_that_of_the_counter_that_it_names() -> None:
    bookings = [booking("usd"), booking("tokens"), booking("requests")]
    for one in bookings:
        assert refusing(bookings, Refused(one.charge, Balance(one.charge.account, 0, 0))) is one


def further(account: str, amount: int) -> Reserve:
    return Reserve("x+1", "red", [Charge(account, amount), Charge("other", 100)], 0.0, LedgerEntry("x+1", 0.0, "red"))


@for_every(
    [
        (booking("usd"), None, 77), (booking("tokens"), Usage(30, 4), 34), (booking("tokens"), None, 40),
        (booking("requests"), None, 1), (booking("requests"), Usage(30, 4), 1),
        (booking("requests", DEPLOYMENT_REQUESTS_ID), None, 12),
    ]
)  # fmt: skip
def test_an_exchange_takes_its_cost_its_tokens_or_its_calls(one: Booking, usage: Usage | None, taken: int) -> None:
    spoken = {"demand": Demand(BillingKind.SPEECH, seconds=2.0), "settlement": Settlement(usage)}
    held = BudgetReservation("x", "red", further=[further(one.charge.account, 3), further(one.charge.account, 4)])
    assert held.held(one) == 12
    assert held.taken(one, make_exchange(**spoken, status=200, first_byte_s=0.1), 77) == taken
    lost = make_exchange(**spoken, status=504, first_byte_s=0.1, lost=Settlement(None, 0.1))
    assert held.taken(one, lost, 77) == taken


def test_of_a_call_that_was_refused_no_tokens_are_taken() -> None:
    refused = make_exchange(
        demand=Demand(BillingKind.TRANSCRIPTION, seconds=36_000.0),
        settlement=Settlement(),
        status=400,
        first_byte_s=0.1,
    )
    assert BudgetReservation("x", "red").taken(booking("tokens"), refused, 0) == 0


CALLS, TOKENS = booking("requests", DEPLOYMENT_REQUESTS_ID), booking("tokens", DEPLOYMENT_TOKENS_ID)


def test_of_deployments_that_were_called_before_only_the_calls_count() -> None:
    held = BudgetReservation("x", "red", bookings=[booking("usd")])
    other = replace(CALLS, charge=Charge("elsewhere", 1))
    for taken in ([other, TOKENS], [CALLS, TOKENS], [CALLS, TOKENS]):
        held.took_turn(taken)
    counted = [(one.charge.account, one.charge.amount) for one in held.bookings]
    assert counted == [("b:usd", 5), ("elsewhere", 0), (CALLS.charge.account, 0), (TOKENS.charge.account, 0)]


# Rules


def told(rules: Sequence[Rule]) -> list[tuple[object, ...]]:
    return [(one.id, one.title, one.unit, one.hard, one.soft, one.window, one.whom, one.is_rate) for one in rules]


def test_a_rate_limit_is_told_by_its_holder() -> None:
    principal = replace(ALICE, rates=(RateLimit("key-1", 60, 600), RateLimit("", None, 1000)))
    limited = replace(MODEL, id="gpt-5#1", rates=RateLimit("", 3, 30))
    resolver = limit_resolver()
    assert told(resolver.rules(principal, limited, MODEL)) == [
        ("rate/requests", "the rate limit of key 'key-1'", "requests", 60, None, "minute", "key-1", True),
        ("rate/tokens", "the rate limit of key 'key-1'", "tokens", 600, None, "minute", "key-1", True),
        ("rate/tokens", "the rate limit of team 'red'", "tokens", 1000, None, "minute", "", True),
    ]
    title = "the rate limit of deployment 'gpt-5#1'"
    assert told(deployment_rules(limited)) == [
        ("rate/deployment/requests", title, "requests", 3, None, "minute", "gpt-5#1", True),
        ("rate/deployment/tokens", title, "tokens", 30, None, "minute", "gpt-5#1", True),
    ]
    assert [one.whom for one in deployment_rules(replace(limited, rates=RateLimit("all", 3)))] == ["all"]
    assert deployment_rules(MODEL) == ()
    assert not resolver.are_known


def test_a_request_for_several_models_is_held_by_the_budgets_of_each_once() -> None:
    budgets = (
        BudgetRecord("red/all", "red", hard=1), BudgetRecord("red/each", "red", "model", "*", hard=2),
        BudgetRecord("red/open", "red", "model", "openai/*", hard=3), BudgetRecord("blue/all", "blue", hard=4),
    )  # fmt: skip
    other = replace(MODEL, name="openai/o9")
    found = limit_resolver(*budgets).rules(ALICE, MODEL, other, MODEL)
    assert [(one.id, one.whom) for one in found] == [
        ("all", ""), ("each", "openai/gpt-5"), ("open", "openai/*"), ("each", "openai/o9"),
    ]  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from(["requests", "tokens"]), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9),
                  st.sampled_from([None, 90.0, 130.5]), st.booleans()),
        max_size=6,
    )
)  # fmt: skip
def test_headers_tell_of_each_unit_the_limit_with_the_least_left(
    limits: list[tuple[str, int, int, int, float | None, bool]],
) -> None:
    rows = [
        (unit, max(0, hard - spent - reserved), hard, max(0.0, (resets_at or 100.0) - 100.0))
        for unit, hard, spent, reserved, resets_at, is_rate in limits
        if is_rate
    ]
    least = {unit: min(row[1:] for row in rows if row[0] == unit) for unit in dict.fromkeys(row[0] for row in rows)}
    given = [
        limit(replace(rate(unit, hard), is_rate=is_rate), spent, reserved, resets_at)
        for unit, hard, spent, reserved, resets_at, is_rate in limits
    ]
    assert rate_headers([*given, limit(replace(rate("tokens", 1), hard=None), 0, 0)], 100.0) == [
        header
        for unit, (left, hard, reset_s) in least.items()
        for header in (
            (f"x-ratelimit-limit-{unit}", f"{hard}"),
            (f"x-ratelimit-remaining-{unit}", f"{left}"),
            (f"x-ratelimit-reset-{unit}", f"{math.ceil(reset_s)}s"),
        )
    ]


# Entries


def test_an_entry_says_who_asked_whom_and_what_it_cost() -> None:
    seen = make_exchange(
        now=7.0, opened=-2.5, principal=ALICE, deployment=MODEL, mode=Mode.TIER, reason="ordered", status=200,
        result=PlanResult(broke=Break(BreakKind.TOOLS, usd=0.25)), cache_cause="system_changed",
        settlement=Settlement(Usage(100, 9, read=50, write_5m=20, write_1h=10, estimated=True), 1.5, -0.5),
        ending=ExchangeOutcome.COMPLETED,
    )  # fmt: skip
    entry = settled_entry(seen)
    assert entry.latency_ms >= 2500
    whose = LedgerEntry(seen.arrival.id, 7.0, "red", "key-1", "alice", "openai/gpt-5", "tier", "ordered")
    assert entry == replace(
        whose, status=200, ending="completed", read_tokens=50, write_5m_tokens=20, write_1h_tokens=10, plain_tokens=20,
        output_tokens=9, cost=1_500_000_000, saved=-500_000_000, latency_ms=entry.latency_ms, estimated=True,
        break_kind="tools", break_cost=250_000_000, provider_cause="system_changed",
    )  # fmt: skip
    amounts = {"usd": Estimate(9, 5), "tokens": Estimate(8, 3)}
    lost = lost_entry(seen, MODEL, amounts)
    assert lost == replace(whose, ending="lost", plain_tokens=8, cost=9, estimated=True), "as budgets are charged"


def test_an_entry_of_an_exchange_that_was_broken_off_says_nothing_that_is_not_known() -> None:
    seen = make_exchange(now=7.0)
    entry = settled_entry(seen)
    assert replace(entry, latency_ms=0) == LedgerEntry(
        seen.arrival.id, 7.0, "", mode="passthrough", reason="not-chat", status=499, ending="hung-up"
    )


@for_every([("a" * 300, "a" * 256), ("\ud800b", "?b"), ("a sk-strat-abc", "a [redacted]"), ("f" * 40, "f" * 40)])
def test_a_users_name_is_kept_in_a_form_that_the_ledger_can_hold(user: str, kept: str) -> None:
    assert settled_entry(make_exchange(principal=replace(ALICE, user=user))).user == kept
