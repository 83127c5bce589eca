"""Attacks on live panels, the rules of the history and compaction: small bodies that cost much, work that holds up
others, state that grows, and what belongs to others."""

import importlib
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from proxy.app.context_texts import load_context_texts
from proxy.core.money.prices import Price
from proxy.core.request.parsed_body import parse_body
from proxy.core.request.tokens import TokenCounter, bytes_over_four
from proxy.planning.context_assembler import AssemblyOptions, ContextAssembler
from proxy.planning.panel_bill import PanelBill
from tests.security.provider import INPUT_USD, OUTPUT_USD, Answer, Seen
from tests.security.world import CONFIG, World, chat, world_of

CHAT = "/v1/chat/completions"
SECRET = "the otter sleeps below the mill"
PRICE = Price.relative(0.1, 1.25, 2.0)


def panel(content: str = SECRET, panel_id: str = "p", **more: object) -> dict[str, object]:
    return {"id": panel_id, "kind": "file", "header": "notes", "content": content, **more}


def calls(count: int, panel_id: str = "p") -> list[dict[str, object]]:
    """So many calls for a panel, as a model makes them."""
    arguments = orjson.dumps({"id": panel_id}).decode()
    function = {"name": "dynamic_panel", "arguments": arguments}
    return [{"id": f"call_{n}", "type": "function", "function": function} for n in range(count)]


def calling(count: int) -> Answer:
    """An answer that calls for the panel so often, and reports what it has used."""
    message = {"role": "assistant", "content": None, "tool_calls": calls(count)}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return Answer(body={"id": "c", "object": "chat.completion", "created": 1, "choices": [choice]})


class Metered:
    """A model that calls for a panel in each answer, at a provider that reports and bills each call by its size."""

    def __init__(self, count: int) -> None:
        self.count, self.usd = count, 0.0

    def __call__(self, seen: Seen) -> Answer:
        prompt, answer = len(seen.body) // 4, calling(self.count)
        self.usd += prompt * INPUT_USD + 5 * OUTPUT_USD
        assert isinstance(answer.body, dict)
        usage = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
        return Answer(body={**answer.body, "usage": usage})


@pytest.fixture(scope="module")
def live() -> Iterator[World]:
    """A proxy that the tests of this file share."""
    with world_of(CONFIG) as running:
        yield running


# What a model's calls of panels cost


@pytest.mark.parametrize("count", [1, 8])
def test_calls_of_a_panel_never_cost_more_than_a_hard_budget_has_set_aside(count: int) -> None:
    model = Metered(count)
    with world_of(CONFIG) as world:
        world.providers["alpha"].script = model
        section = {"session": "s", "panels": [panel("word " * 3_000)]}
        statuses = [world.call("POST", CHAT, chat(stratiform=section), key="tight").status for _ in range(6)]
        assert statuses[0] == 200
        assert statuses[-1] == 429
        assert model.usd <= 0.05
        assert world.spent("tight") == pytest.approx(model.usd)


def test_many_calls_of_a_large_panel_are_given_up_before_their_results_are_written(
    live: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    module = importlib.import_module("proxy.core.structured.panels.tool")
    work = module.panel_text

    def noting(*args: Any) -> Any:
        seen.append(threading.current_thread().name)
        return work(*args)

    monkeypatch.setattr(module, "panel_text", noting)
    live.providers["alpha"].script = lambda seen: calling(64)
    section = {"session": "large", "panels": [panel("x" * 900_000)]}
    assert live.call("POST", CHAT, chat(stratiform=section), key="team-a").status == 200
    assert len(live.sent()) == 1
    assert 0 < len(seen) <= 11  # the one that is shown, and as many as have room
    assert [name for name in seen if "stratiform-" not in name] == []


# What is held up, and what is held


def resolved(subject: ContextAssembler, section: dict[str, object]) -> Any:
    sent = parse_body(orjson.dumps(chat(stratiform=section)))
    return sent, subject.resolve(*subject.read(sent), "key", "")


def test_a_session_that_is_forgotten_while_its_request_is_read_is_no_error() -> None:
    subject = ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions(session_bytes=20_000))
    sent, found = resolved(subject, {"session": "slow", "panels": [panel()]})
    dialogue = subject.dialogue(found, sent, 1.0e9)
    for number in range(50):
        resolved(subject, {"session": f"{number}", "panels": []})
    assert subject.known("key", "slow") is None
    subject.remember(found, dialogue)


LONG = "value = compute(a, b)\n" * 400
TURNS = [{"role": role, "content": f"{n} {LONG}"} for n in range(45) for role in ("user", "assistant")]
PROMPT = {"role": "user", "content": "go on"}
SHORT = [{"role": role, "content": f"{n}"} for n in range(45) for role in ("user", "assistant")]
LIVE = {
    "messages": ([*TURNS, PROMPT], {"panels": [], "detach": False}),
    "short forms": (
        [*SHORT, PROMPT],
        {"messages_meta": [{"index": n, "status": "summarized", "tl_dr": f"{n} {LONG}"} for n in range(90)]},
    ),
    "frozen parts": ([*TURNS, PROMPT], {"panels": []}),
    "panels": ([PROMPT], {"panels": [panel(f"{n} {LONG}", f"p{n}") for n in range(90)]}),
}


@pytest.mark.parametrize("name", LIVE)
def test_no_long_text_of_a_conversation_is_looked_at_on_the_event_loop(
    live: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, section = LIVE[name]
    seen: list[str] = []
    for place in ("context_assembler", "panel_bill"):
        module = importlib.import_module(f"proxy.planning.{place}")
        work = module.digest

        def noting(*args: Any, work: Any = work) -> Any:
            if sum(map(len, args)) > len(LONG):
                seen.append(threading.current_thread().name)
            return work(*args)

        monkeypatch.setattr(module, "digest", noting)
    body = chat(messages=messages, stratiform={"session": name, **section})
    assert live.call("POST", CHAT, body, key="team-a").status == 200
    live.ledger("team-a")
    assert seen
    assert [one for one in seen if "stratiform-" not in one] == []


@pytest.mark.parametrize("kind", ["new sessions", "new panels", "many panels"])
def test_what_is_remembered_of_panels_is_bounded(kind: str) -> None:
    most = 1 << 18
    subject = ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions(session_bytes=most))
    subject._counter = TokenCounter(capacity=100)  # the counts of texts have a bound of their own
    rounds = 40 if kind == "many panels" else 120

    def go_on(number: int) -> None:
        name = "one" if kind == "new panels" else f"{number}"
        count = 100 if kind == "many panels" else 20
        shown = [panel(f"{number}", f"{'p' * 40}{number}-{n}") for n in range(count)]
        body = chat(text=f"turn {number}", stratiform={"session": name, "panels": shown})
        sent = parse_body(orjson.dumps(body))
        found = subject.resolve(*subject.read(sent), "key", "")
        context = subject.context(found, subject.index(found))
        dialogue = subject.dialogue(found, sent, 1.0e9 + number)
        subject.remember(found, dialogue)
        made = subject.assembled(sent, found, context, None, dialogue)
        subject._counted(made, PanelBill.of(made, PRICE), None)

    tracemalloc.start()
    for number in range(rounds):
        go_on(number)
    before = tracemalloc.get_traced_memory()[0]
    for number in range(rounds, 2 * rounds):
        go_on(number)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held - before < most
    assert held < 4 * most
