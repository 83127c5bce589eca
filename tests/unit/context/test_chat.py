"""The request that is sent has the assembled messages, and nothing of the section."""

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context import Conversation, Turn
from proxy.context.blocks import Assembly, Block
from proxy.context.form import StructuredForm, read_form
from proxy.context.history import ruled
from proxy.context.panels import DECLARATION, CacheTerms
from proxy.context.placement import ContextTracker
from proxy.context.session import AssemblyOptions, ContextSession, Dialogue, LiveState, body_of
from proxy.kit.modes import Edit
from proxy.planner.tiers import Tier
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from tests.compactions import compaction_of

SENT = parse_body(b'{"model":"m","stratiform":{"a":1},"messages":[1], "tools":[{"x":1.0}]}')
ASSEMBLY = Assembly((Block(Tier.ACTIVE, "prompt", (), (b'{"n":0}', b'{"n":1.0}')),))


def test_the_messages_are_those_of_the_assembly_and_the_section_is_left_out() -> None:
    assert body_of(SENT, ASSEMBLY) == b'{"model":"m","messages":[{"n":0},{"n":1.0}],"tools":[{"x":1.0}]}'


def test_the_tool_of_the_panels_stands_in_front_of_the_clients_own() -> None:
    tools = orjson.loads(body_of(SENT, ASSEMBLY, declares_tool=True))["tools"]
    assert tools == [orjson.loads(DECLARATION), {"x": 1.0}]


def test_tools_that_are_no_list_stay_as_they_are() -> None:
    odd = parse_body(b'{"stratiform":{"a":1},"messages":[1],"tools":7}')
    assert orjson.loads(body_of(odd, ASSEMBLY, declares_tool=True))["tools"] == 7


# The conversation of a request with panels: which rules hold, what is remembered, and what was edited.


TEXTS = load_context_texts()
RULES = AssemblyOptions()
NOW = 1_771_509_600.0
TODO = {"id": "P1", "kind": "todo", "header": "Todo List", "content": "rest"}


def conversation(*texts: str) -> Conversation:
    """A system message, then user and assistant in turn."""
    roles = ("user", "assistant")
    bodies = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    return Conversation.of([json.dumps(body).encode() for body in [{"role": "system", "content": "Rules."}, *bodies]])


def form(**fields: object) -> StructuredForm:
    return read_form(json.dumps(fields).encode()) or StructuredForm()


def dialogue(
    talk: Conversation, section: StructuredForm, before: ContextSession | None = None, rules: AssemblyOptions = RULES
) -> Dialogue:
    return (before or session()).dialogue(talk, section, rules, TEXTS.compaction, lambda turn: len(turn.raw), NOW)


def session(state: LiveState | None = None, terms: CacheTerms | None = None) -> ContextSession:
    return ContextSession(ContextTracker(TokenCounter(bytes_over_four)), state=state or LiveState(), terms=terms)


def after(found: Dialogue, pause_s: float = 100.0, life_s: float = 300.0, *, is_full: bool = False) -> ContextSession:
    """What the session remembers so many seconds after a request, whose cache holds it for ``life_s``."""
    assert found.board is not None
    terms = CacheTerms(read=0.1, write=1.25, life_s=life_s, is_full=is_full)
    return session(LiveState(replace(found.board, last_s=NOW - pause_s)), terms)


def said(found: Dialogue) -> list[Any]:
    return [json.loads(turn.raw).get("content") for turn in found.conversation]


def test_a_request_without_panels_and_descriptions_keeps_its_conversation_and_remembers_nothing() -> None:
    talk = conversation("", "a", "q")
    found = dialogue(talk, form(files=[{"path": "a"}]))
    assert found == Dialogue(talk)
    assert not found.has_panels
    assert found.inlay(TEXTS.panels, is_chronological=True).front == ()


def test_panels_are_remembered_and_counted() -> None:
    found = dialogue(conversation("q"), form(panels=[TODO, {"id": "chat", "content": "x"}]))
    assert found.edits == {Edit.PANELS_SHOWN: 1}
    assert found.has_panels
    assert set(found.board.panels) == {"P1"}
    assert [panel.id for panel in found.inlay(TEXTS.panels, is_chronological=False).order] == ["P1"]


def test_what_the_client_says_of_its_messages_holds_and_is_counted() -> None:
    metas = [{"index": 1, "status": "deleted"}, {"index": 2, "status": "summarized", "tl_dr": "short"}]
    found = dialogue(conversation("a", "long", "q"), form(messages_meta=metas))
    assert said(found) == ["Rules.", "short", "q"]
    assert found.edits == {Edit.HISTORY_REMOVED: 1, Edit.HISTORY_SUMMARIZED: 1}
    assert found.origins == (1, 2)


def long_talk() -> Conversation:
    return conversation(*(f"{number} " + "x" * 400 for number in range(101)))


def test_a_long_conversation_is_frozen_by_the_operator_s_minimums_where_the_client_sends_panels() -> None:
    found = dialogue(long_talk(), form(panels=[]), session(terms=CacheTerms(0.1, 1.25)))
    assert found.edits[Edit.HISTORY_FROZEN] >= 25
    assert Edit.PANELS_SHOWN in found.edits
    assert all(panel.is_frozen for panel in found.panels)
    assert dialogue(long_talk(), form(session="s")).panels == ()


def test_nothing_is_frozen_in_addition_while_the_cache_may_hold_the_conversation() -> None:
    first = dialogue(long_talk(), form(panels=[]))
    assert first.panels == ()
    assert dialogue(long_talk(), form(panels=[]), after(first)).panels == ()
    frozen = dialogue(long_talk(), form(panels=[]), after(first, pause_s=301))
    assert len(frozen.panels) > 1
    assert frozen.freezing_cost == 0
    longer = Conversation.of([turn.raw for turn in long_talk()] + [turn.raw for turn in long_talk()][1:-1])
    assert dialogue(longer, form(panels=[]), after(frozen)).panels == frozen.panels
    assert len(dialogue(longer, form(panels=[]), after(frozen, pause_s=301)).panels) > len(frozen.panels)


@pytest.mark.parametrize("before", [{"life_s": 0.0}, {"is_full": True}])
def test_a_conversation_is_frozen_where_it_is_rewritten_anyway_and_where_the_window_fills(before: Any) -> None:
    first = dialogue(long_talk(), form(panels=[]))
    assert Edit.HISTORY_FROZEN in dialogue(long_talk(), form(panels=[]), after(first, **before)).edits


def test_a_client_that_asks_for_it_has_parts_frozen_at_once_and_what_that_costs_is_known() -> None:
    first = dialogue(long_talk(), form(panels=[]))
    asked = dialogue(long_talk(), form(panels=[], detach=True), after(first))
    assert Edit.HISTORY_FROZEN in asked.edits
    assert asked.freezing_cost == pytest.approx(1.15 * sum(len(turn.raw) for turn in long_talk().turns))
    again = dialogue(long_talk(), form(panels=[], detach=True), after(asked))
    assert again.freezing_cost == 0
    assert dialogue(long_talk(), form(panels=[], detach=True), after(first, pause_s=301)).freezing_cost == 0


def test_the_original_s_rules_freeze_at_once() -> None:
    rules = replace(RULES, policy="classic")
    first = dialogue(long_talk(), form(panels=[]), rules=rules)
    assert Edit.HISTORY_FROZEN in first.edits


@pytest.mark.parametrize(("detach", "freezes"), [(False, False), (True, True), (None, False)])
def test_the_client_decides_where_the_operator_does_not(detach: bool | None, freezes: bool) -> None:
    rules = replace(RULES, detach=None)
    found = dialogue(long_talk(), form(panels=[], detach=detach), rules=rules)
    assert (Edit.HISTORY_FROZEN in found.edits) is freezes


def test_a_compaction_holds_only_where_the_client_asks_for_it() -> None:
    talk = conversation("a", "b", "c", "d", "e", "f", "g")
    history = ruled(talk, {})
    before = session(LiveState(compaction=compaction_of(history, 2, 2, "They said a.")))
    found = dialogue(talk, form(compaction=True), before)
    assert found.edits == {Edit.HISTORY_COMPACTED: 2}
    assert said(found)[-5:] == ["c", "d", "e", "f", "g"]
    assert "They said a." in said(found)[1]
    assert found.board is None
    assert dialogue(talk, form(session="s"), before) == Dialogue(talk)


def test_messages_are_counted_by_what_the_caller_counts() -> None:
    seen: list[Turn] = []

    def tokens(turn: Turn) -> int:
        seen.append(turn)
        return 0

    found = session().dialogue(long_talk(), form(panels=[], detach=True), RULES, TEXTS.compaction, tokens, NOW)
    assert seen
    assert Edit.HISTORY_FROZEN not in found.edits
