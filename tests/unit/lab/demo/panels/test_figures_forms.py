"""The same turns in every form."""

from typing import Any

import pytest

from proxy.lab.demo.panels import RULES, Pace, PanelForm, PanelTurn, sendings, turns


@pytest.fixture(scope="module")
def steps() -> list[PanelTurn]:
    return list(turns(Pace(6)))


@pytest.mark.parametrize("form", PanelForm)
def test_system_prompt_and_conversation_are_the_same_in_all_forms(form: PanelForm, steps: list[PanelTurn]) -> None:
    for turn, sending in zip(steps, sendings(form, steps, "s"), strict=True):
        messages = sending.body["messages"]
        assert sending.at == turn.at
        assert messages[0] == {"role": "system", "content": RULES}
        assert messages[len(messages) - len(turn.conversation) :] == turn.conversation


def test_context_messages_show_each_panel_once_in_the_clients_order_and_tell_the_time(steps: list[PanelTurn]) -> None:
    for turn, sending in zip(steps, sendings(PanelForm.CONTEXT, steps, "s"), strict=True):
        shown = sending.body["messages"][1 : 1 + len(turn.panels)]
        for panel, message in zip(turn.panels, shown, strict=True):
            assert message["content"].endswith(panel.content)
            assert ("(as of 2026-11-21 09:" in message["content"]) is (panel.kind == "git")


@pytest.mark.parametrize("form", [PanelForm.PANELS, PanelForm.FREEZING])
def test_live_panels_are_a_section_that_the_proxy_reads(form: PanelForm, steps: list[PanelTurn]) -> None:
    for turn, sending in zip(steps, sendings(form, steps, "s"), strict=True):
        body: dict[str, Any] = sending.body
        section = body["extra_body"]["stratiform"]
        assert tuple((p["id"], p["kind"], p["header"], p["content"]) for p in section["panels"]) == tuple(
            (p.id, p.kind, p.header, p.content) for p in turn.panels
        )
        assert section.get("detach", False) is (form is PanelForm.FREEZING)
