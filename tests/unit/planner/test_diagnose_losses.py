"""What breaks cost, held against a provider that is not the product's: it bills the same session with and without
them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from proxy.planner.diagnose import diagnose
from proxy.planner.record import Break, PromptRecord, wire_record
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from tests.economics.billing import Provider, tokens

Body = dict[str, Any]
Change = Callable[[Body, int], None]

LINES = [f"Rule {n}: answer as the operator of the archive wishes it, and name the shelf." for n in range(120)]
GRID = replace(OPENAI, hit_chance=1.0)
MARKED = replace(ANTHROPIC, min_tokens=1024)
PROFILES = (GRID, MARKED)


def text(name: str, words: int) -> str:
    """A text that no other one is like."""
    return " ".join(f"{name}-{n}" for n in range(words))


def session(requests: int, profile: CacheProfile, *, size: int = 300) -> list[Body]:
    """A client that appends an answer and a question in each request, and marks its newest message."""
    mark = {"cache_control": {"type": "ephemeral"}} if profile is MARKED else {}
    tools = [
        {"type": "function", "function": {"name": f"tool_{n}", "description": text(f"t{n}", 40)}} for n in range(5)
    ]
    bodies = []
    for number in range(requests):
        talk: list[Body] = [{"role": "system", "content": "\n".join(LINES)}]
        for turn in range(number + 1):
            talk.append({"role": "user", "content": [{"type": "text", "text": text(f"q{turn}", size)}]})
            talk.append({"role": "assistant", "content": text(f"a{turn}", size)})
        talk.pop()
        talk[-1]["content"][-1].update(mark)
        bodies.append({"model": "m", "tools": tools, "messages": talk})
    return json.loads(json.dumps(bodies))


def clock(body: Body, number: int) -> None:
    """Line 3 of the system text tells the time."""
    lines = body["messages"][0]["content"].split("\n")
    body["messages"][0]["content"] = "\n".join([*lines[:2], f"It is 12:{number:02}:07 now.", *lines[3:]])


def shuffled(body: Body, number: int) -> None:
    """The tools come in another order each time."""
    body["tools"] = body["tools"][number % 5 :] + body["tools"][: number % 5]


def rewritten(body: Body, number: int) -> None:
    """The first answer reads otherwise each time."""
    if number:
        body["messages"][2]["content"] = f"seen-{number:03} " + text("a0", 299)


def billed(bodies: Sequence[Body], profile: CacheProfile, *, gap_s: float = 20.0) -> tuple[float, list[Break]]:
    """What the provider bills for a session, and the breaks that are found in it."""
    provider, records, breaks = Provider(profile), list[PromptRecord](), []
    price = Price.relative(profile.read, profile.write, profile.write_long)
    for number, body in enumerate(bodies):
        usage = provider.send(json.dumps(body).encode(), number * gap_s)
        record = wire_record(body, tokens, at=number * gap_s)
        found = diagnose(records, record, usage, profile, price)
        records.append(record.answered(usage, profile))
        breaks += [found] if found is not None else []
    return provider.cost, breaks


@pytest.mark.parametrize("profile", PROFILES, ids=["grid", "markers"])
@pytest.mark.parametrize("change", [clock, shuffled, rewritten])
def test_the_losses_of_a_culprit_are_what_freezing_it_saves(profile: CacheProfile, change: Change) -> None:
    frozen, broken = session(14, profile), session(14, profile)
    for number, body in enumerate(broken):
        change(body, number)
        change(frozen[number], 0 if change is not rewritten else 1 if number else 0)
    cost, breaks = billed(broken, profile)
    ideal, none = billed(frozen, profile)
    assert not none[1:]
    assert sum(one.usd for one in breaks) == pytest.approx(cost - ideal, rel=0.01)


@pytest.mark.parametrize("profile", PROFILES, ids=["grid", "markers"])
def test_a_request_with_two_culprits_is_the_loss_of_the_first(profile: CacheProfile) -> None:
    """All of it is what freezing both saves."""
    both, none = session(14, profile), session(14, profile)
    for number in range(14):
        clock(both[number], number), rewritten(both[number], number)
        clock(none[number], 0), rewritten(none[number], min(number, 1))
    cost, breaks = billed(both, profile)
    assert {(one.culprit_kind, one.line) for one in breaks} == {("system", 3)}
    assert sum(one.usd for one in breaks) == pytest.approx(cost - billed(none, profile)[0], rel=0.01)


@pytest.mark.parametrize(("ttl", "write"), [("5m", MARKED.write), ("1h", MARKED.write_long)])
def test_without_a_report_a_changed_setting_costs_what_is_written_anew(ttl: str, write: float) -> None:
    bodies = session(3, MARKED)
    for body in bodies:
        body["messages"][-1]["content"][-1]["cache_control"]["ttl"] = ttl
    bodies[2]["tool_choice"] = "none"
    *before, now = (wire_record(body, tokens, at=20.0 * number) for number, body in enumerate(bodies))
    found = diagnose(before, now, None, MARKED, Price.relative(MARKED.read, MARKED.write, MARKED.write_long))
    assert (found.culprit, found.lost) == ("tool_choice", before[1].total)
    assert found.usd == pytest.approx(found.lost * (write - MARKED.read))
