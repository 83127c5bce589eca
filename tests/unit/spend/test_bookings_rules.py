"""Which budgets and rate limits hold for a request."""

import pytest

from proxy.access.authentication import Declared, Directory
from proxy.core.money.prices import Price
from proxy.core.providers import NONE
from proxy.deployments import ListedModel, ModelTable
from proxy.ports import Deployment, Principal, RateLimit, Transport
from proxy.spend.bookings import REQUESTS_ID, TOKENS_ID, LimitResolver, deployment_rules
from proxy.storage.port import BudgetRecord
from proxy.storage.sqlite import MemoryStore
from tests.examples import for_every

MODEL = Deployment("openai/gpt-5", "gpt-5", Transport.HTTP, NONE)
ALICE = Principal("s", team="red", key_id="key-1", user="alice")


def no_price(deployment: Deployment) -> Price | None:
    return None


def limit_resolver(*budgets: BudgetRecord) -> LimitResolver:
    return LimitResolver(Directory(Declared(budgets=budgets), MemoryStore()))


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
    rules = LimitResolver(directory)
    await directory.put(BudgetRecord("bud-1", "red", hard=5))
    assert [rule.id for rule in rules.rules(ALICE, MODEL)] == ["bud-1"]
    await directory.remove("budget", "bud-1")
    assert not rules.rules(ALICE, MODEL)
