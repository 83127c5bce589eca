"""What a breakdown says of panels, and what the session remembers of their costs."""

from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context.session import AssemblyOptions
from proxy.kit.modes import Mode
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.services.context_assembler import Arrangement, ContextAssembler

PRICE = Price(5e-6, 25e-6, 0.5e-6, 6.25e-6, 10e-6)
NOW = 1_771_509_600.0
TODO = {"id": "todo", "kind": "todo", "header": "Todo", "content": "a" * 400}
TREE = {"id": "tree", "kind": "own_tree", "header": "Tree", "content": "b" * 400}


def arranged(subject: ContextAssembler, *texts: str, now: float = NOW, **section: Any) -> Arrangement:
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    body = {"model": "m", "messages": messages, "stratiform": {"session": "s", **section}}
    chat = subject.chat_of(parse_body(orjson.dumps(body)), "key", now=now)
    return subject.arrange(chat, subject.place(chat, ANTHROPIC), ANTHROPIC, Mode.TIER, PRICE)


def assembler() -> ContextAssembler:
    return ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions())


def shown(found: Arrangement) -> list[Any]:
    return list(found.inventory(None, TokenCounter(), 0.0).panels)


def test_a_breakdown_says_where_each_panel_stands_since_when_and_what_it_costs() -> None:
    subject = assembler()
    arranged(subject, "q", panels=[TREE, TODO]).counted(None)
    changed = TODO | {"content": "c" * 400}
    tree, todo = shown(arranged(subject, "q", "a", "r", now=NOW + 60, panels=[changed, TREE]))

    assert (tree["id"], tree["kind"], tree["header"], tree["hit"]) == ("tree", "own_tree", "Tree", True)
    assert (tree["place"], tree["changed_at"], tree["changes"]) == (None, "2026-02-19T14:00:00Z", 0)
    assert (todo["place"], todo["changed_at"], todo["changes"]) == (2, "2026-02-19T14:01:00Z", 1)
    assert todo["hit"] is False
    assert todo["cost_usd"] == pytest.approx(todo["tokens"] * 6.25e-6)
    assert tree["cost_usd"] == pytest.approx(tree["tokens"] * 0.5e-6)
    assert todo["total_usd"] > todo["cost_usd"]


def test_a_breakdown_charges_nothing() -> None:
    subject = assembler()
    first = arranged(subject, "q", panels=[TODO])
    assert [panel["hit"] for panel in shown(first)] == [False]
    assert [panel["hit"] for panel in shown(first)] == [False]
    first.counted(None)
    assert [panel["hit"] for panel in shown(arranged(subject, "q", panels=[TODO]))] == [True]


def test_without_panels_there_is_no_bill() -> None:
    subject = assembler()
    assert arranged(subject, "q", panels=[]).bill is None
    assert shown(arranged(subject, "q")) == []


def test_a_request_that_is_counted_while_the_next_one_is_read_stays_counted() -> None:
    subject, body = assembler(), {"model": "m", "messages": [], "stratiform": {"session": "s", "panels": [TODO]}}
    first = arranged(subject, "q", panels=[TODO])
    resolved = subject.resolve(subject.read(parse_body(orjson.dumps(body))), "key", "")
    chat, _, _ = subject.assembled(resolved, subject.context(resolved, subject.index(resolved)), NOW + 60)
    first.counted(None)
    subject.remember(resolved, chat)
    assert [panel["hit"] for panel in shown(arranged(subject, "q", panels=[TODO]))] == [True]
