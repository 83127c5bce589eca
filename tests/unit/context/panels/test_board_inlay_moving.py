"""Which messages of a request the planner takes for the proxy's own."""

import json

from proxy.app.factories import load_panel_texts
from proxy.context import Conversation
from proxy.context.blocks import Assembly, Block
from proxy.context.panels import Panel, Progress
from proxy.context.panels.board import Board, inlay_of, moving, refreshed
from proxy.planner.tiers import Tier
from tests.panels import message, unchanged

PANELS = [Panel("A", "skill", "", "x"), Panel("B", "console", "", "y")]
HEAD = Block(Tier.ACTIVE, "system", (), (b"{}", b"{}"))
NOW = 1_771_509_600.0


def test_panels_footer_and_times_are_named_by_their_place_and_what_changes_often_is_least_likely_to_stay() -> None:
    talk = Conversation.of([message("u0")])
    board = refreshed(Board(), PANELS, Progress.of(talk), NOW)
    inlay = inlay_of(PANELS, board, *unchanged(talk.prompt), load_panel_texts(), "Rules.", is_chronological=True)
    blocks = [HEAD, *inlay.front, *inlay.within[0], Block(Tier.ACTIVE, "prompt", (), (talk.prompt[0].raw,))]
    messages = [json.loads(raw) for block in blocks for raw in block.messages]

    found = moving(Assembly(tuple(blocks)), board, PANELS)

    assert list(found) == list(range(2, len(messages) - 1))
    calls = {call["id"]: index for index, body in enumerate(messages) for call in body.get("tool_calls", ())}
    assert 0 < found[calls["panel_A"]] < found[calls["panel_B"]]
    assert {found[index] for index in found if index not in (calls["panel_A"], calls["panel_B"])} == {0.0}


def test_without_panels_nothing_is_the_proxy_s_own() -> None:
    assert moving(Assembly((HEAD,)), Board(), ()) == {}
