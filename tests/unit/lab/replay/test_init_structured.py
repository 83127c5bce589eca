"""Replays assemble structured context as the live proxy does, and check that nothing of it is lost."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context.session import AssembledChat, AssemblyOptions
from proxy.lab import Step, Trace, TraceError
from proxy.lab.replay import OURS, ReplayedContexts, Setting, lost_items, replay
from proxy.lab.replay.comparison import compare, shares
from proxy.lab.replay.explain import explain_request
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.context_assembler import ContextAssembler
from tests.unit.lab.replay.sessions import setting


def session() -> Trace:
    """Eight turns with two files, of which one changes each time."""
    steps, history = [], list[dict[str, str]]()
    for number in range(8):
        files = [
            {"path": "kept.py", "content": "kept = 1\n" * 900, "selected": True},
            {"path": "hot.md", "content": f"```\nversion {number}\n```\n" + "text\n" * 300, "selected": True},
        ]
        history.append({"role": "user", "content": f"turn {number}"})
        messages = [{"role": "system", "content": "You are an assistant. " * 300}, *history]
        body = {"model": "m", "messages": messages, "stratiform": {"session": "s", "files": files, "tree": True}}
        steps.append(Step(60.0 * number, "s", orjson.dumps(body)))
        history.append({"role": "assistant", "content": f"done {number}"})
    return Trace("structured", steps)


def wanted(policy: str = "economic") -> Setting:
    texts = load_context_texts()
    return replace(
        setting(policy=policy),
        assembler=lambda: ContextAssembler(texts, bytes_over_four, None, AssemblyOptions(policy)),
    )


@pytest.mark.parametrize(("policy", "most"), [("economic", 0.5), ("classic", 0.75)])
def test_a_session_costs_less_than_without_a_cache_and_nothing_is_lost(policy: str, most: float) -> None:
    found = replay(session(), wanted(policy))

    assert found.violations == []
    assert found.surprises == []
    assert found.share(OURS) < most
    assert ("assembled-tiers" in found.reasons) == (policy == "classic")


def test_all_policies_are_compared_on_the_assembled_requests() -> None:
    found = compare(session(), wanted())

    assert found.violations == []
    assert found.plain > 8 * 3_000
    assert shares(found)["economic"] < shares(found)["as sent"]


def test_explain_shows_the_files_and_their_tiers() -> None:
    found = explain_request(session(), wanted(), 8)
    tiers = {row.what: row.tier for row in found.rows}

    assert tiers["user: file:kept.py"] == "L2"
    assert tiers["user: file:hot.md"] == "active"


def test_explain_shows_the_tiers_in_which_policy_classic_sends_the_files() -> None:
    tiers = {row.what: row.tier for row in explain_request(session(), wanted("classic"), 8).rows}

    assert tiers["user: file:kept.py"] == "L3"
    assert tiers["user: file:hot.md"] == "active"
    assert [tier for what, tier in tiers.items() if what.startswith("system: ")] == ["L0"]


def assembled(body: dict[str, Any]) -> AssembledChat | None:
    contexts = ReplayedContexts(wanted().assembler())  # type: ignore[misc]
    return contexts.assembled(Step(0.0, "s", orjson.dumps(body)), "scope")


def test_a_request_without_the_section_is_left_alone() -> None:
    assert assembled({"model": "m", "messages": []}) is None


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"files": [{"path": "a.py", "digest": "0" * 64}]}, "names contents by digest"),
        ({"prompts": {}}, "'stratiform' has no field 'prompts'"),
    ],
)
def test_a_request_that_the_proxy_would_refuse_is_named(section: dict[str, Any], why: str) -> None:
    with pytest.raises(TraceError, match=rf"^the request at t = 0.0 of session 's' .*{why}"):
        assembled({"model": "m", "messages": [], "stratiform": section})


def test_an_item_that_is_missing_is_named() -> None:
    files = [{"path": "a.py", "content": "a = 1", "selected": True}]
    section = {"files": files, "symbols": [{"path": "b.py", "block": "b.py: B"}]}
    messages = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "yes"}]
    chat = assembled({"model": "m", "messages": [*messages, {"role": "user", "content": "q"}], "stratiform": section})

    assert lost_items(chat, chat.body) == []
    assert lost_items(chat, b"{}") == [
        "file:a.py is not in the request", "symbol:b.py is not in the request",
        "history:0 is not in the request", "history:1 is not in the request",
    ]  # fmt: skip


def panels_session() -> Trace:
    """Six turns with a file that never changes and a console that always does."""
    steps, history = [], list[dict[str, str]]()
    for number in range(6):
        panels = [
            {"id": "file", "kind": "file", "header": "a.py", "content": "kept = 1\n" * 900},
            {"id": "console", "kind": "console", "header": "tests", "content": f"run {number}\n" + "line\n" * 200},
        ]
        history.append({"role": "user", "content": f"turn {number}, {'please ' * 400}"})
        body = {"model": "m", "messages": list(history), "stratiform": {"session": "s", "panels": panels}}
        steps.append(Step(86_400.0 + 60.0 * number, "s", orjson.dumps(body)))
        history.append({"role": "assistant", "content": f"done {number}"})
    return Trace("panels", steps)


def test_explain_says_of_each_panel_where_it_stands_since_when_and_what_it_costs() -> None:
    found = explain_request(panels_session(), wanted(), 6)
    shown = [row for row in found.rows if row.reason.startswith("panel ")]

    assert {row.reason.rpartition(":")[0] for row in shown} == {
        "panel file, the same since 1970-01-02 00:00:00",
        "panel console, the same since 1970-01-02 00:05:00",
    }
    file, console = (next(row for row in reversed(shown) if name in row.reason) for name in ("file", "console"))
    assert file.position < console.position
    assert file.reason.endswith(f": read, costs as {file.tokens * 0.1:,.0f} plain tokens")
    assert console.reason.endswith(f": plain, costs as {console.tokens:,} plain tokens")
    first = explain_request(panels_session(), wanted(), 1)
    assert any(row.reason.startswith("panel file") and ": written, costs as" in row.reason for row in first.rows)


def test_a_session_with_panels_costs_less_and_nothing_is_lost() -> None:
    found = replay(panels_session(), wanted())
    assert (found.violations, found.surprises) == ([], [])
    assert found.share(OURS) < 0.75
