"""The fields of live panels and of the history, read from a section as clients send it."""

import json

import pytest

from proxy.core.structured.form.form import StructuredForm, read_form
from proxy.core.structured.form.form_json import detach_terms
from proxy.core.structured.history.rules import DetachTerms, MessageMeta, Status
from proxy.core.structured.panels.panel import OWN_KIND, Panel
from proxy.errors import InvalidRequest
from tests.examples import for_every


def read(**fields: object) -> StructuredForm:
    form = read_form(json.dumps(fields).encode())
    assert form is not None
    return form


def test_panels_come_in_the_order_in_which_they_are_sent() -> None:
    form = read(
        panels=[{"id": "P1", "kind": "todo", "header": "Todo List", "content": "x"}, {"id": "b", "content": ""}]
    )
    assert form.panels == (Panel("P1", "todo", "Todo List", "x"), Panel("b", OWN_KIND, "", ""))
    assert [panel.is_shown for panel in form.panels] == [True, False]
    assert form.has_history


def test_the_panel_of_the_conversation_itself_is_never_shown() -> None:
    assert not read(panels=[{"id": "chat", "content": "x"}]).panels[0].is_shown


def test_a_kind_of_the_client_s_own_is_counted_under_one_label() -> None:
    own, known = read(
        panels=[{"id": "a", "kind": "radar", "content": ""}, {"id": "b", "kind": "console", "content": ""}]
    ).panels
    assert (own.label, own.kind, known.label) == (OWN_KIND, "radar", "console")


def test_messages_are_described_by_their_index() -> None:
    metas = [{"index": 3, "status": "deleted"}, {"index": 0, "status": "summarized", "tl_dr": "Greeting."}]
    form = read(messages_meta=metas)
    assert form.metas == {3: MessageMeta(Status.DELETED), 0: MessageMeta(Status.SUMMARIZED, "Greeting.")}
    assert [form.metas[3].is_sent, form.metas[0].is_sent, form.has_history] == [False, True, True]


def test_the_rules_of_the_history_hold_where_panels_or_metas_are_sent_even_if_there_are_none() -> None:
    assert read(panels=[]).has_history
    assert read(messages_meta=[]).has_history
    assert not read(files=[], detach=True).has_history


@pytest.mark.parametrize(
    ("wish", "default", "expected"),
    [
        (None, None, None),
        (None, DetachTerms(), DetachTerms()),
        (False, DetachTerms(), None),
        (True, None, DetachTerms()),
        ({"keep_tokens": 9}, DetachTerms(1, 2, 3, 4), DetachTerms(1, 2, 3, 9)),
    ],
)
def test_the_minimums_are_the_client_s_where_it_sets_any(
    wish: object, default: DetachTerms | None, expected: DetachTerms | None
) -> None:
    assert detach_terms(read(session="s", detach=wish).detach, default) == expected


@for_every(
    [
        ({"panels": [{"id": "", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "a" * 57, "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "a b", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "ä", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "a\n", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "footer", "content": ""}]}, "panels[0].id", "reserved_id"),
        ({"panels": [{"id": "history_1", "content": ""}]}, "panels[0].id", "reserved_id"),
        ({"panels": [{"id": "a", "content": ""}, {"id": "a", "content": ""}]}, "panels[1].id", "duplicate_id"),
        ({"panels": [{"id": "a"}]}, "panels[0].content", "missing_field"),
        ({"panels": [{"id": "a", "content": "", "kind": "A b"}]}, "panels[0].kind", "invalid_value"),
        ({"panels": [{"id": "a", "content": "", "kind": "x" * 65}]}, "panels[0].kind", "too_long"),
        ({"panels": [{"id": "a", "content": "", "header": "a\nb"}]}, "panels[0].header", "invalid_value"),
        ({"panels": [{"id": f"p{n}", "content": ""} for n in range(501)]}, "panels", "too_many_items"),
        ({"panels": [{"id": 1, "content": ""}]}, "panels[0].id", "invalid_type"),
        ({"messages_meta": [{"index": -1, "status": "active"}]}, "messages_meta[0].index", "invalid_index"),
        (
            {"messages_meta": [{"index": 1, "status": "active"}, {"index": 1, "status": "active"}]},
            "messages_meta[1].index",
            "invalid_index",
        ),
        ({"messages_meta": [{"index": 1, "status": "gone"}]}, "messages_meta[0].status", "invalid_value"),
        ({"messages_meta": [{"index": 1, "status": "summarized"}]}, "messages_meta[0].tl_dr", "invalid_value"),
        (
            {"messages_meta": [{"index": 1, "status": "summarized", "tl_dr": " "}]},
            "messages_meta[0].tl_dr",
            "invalid_value",
        ),
        (
            {"messages_meta": [{"index": 1, "status": "deleted", "tl_dr": "x"}]},
            "messages_meta[0].tl_dr",
            "invalid_value",
        ),
        ({"messages_meta": [{"index": True, "status": "active"}]}, "messages_meta[0].index", "invalid_type"),
        ({"detach": {"keep_tokens": 0}}, "detach.keep_tokens", "invalid_value"),
        ({"detach": {"keep": 1}}, "detach.keep", "unknown_field"),
        ({"detach": "yes"}, "detach", "invalid_type"),
        ({"compaction": 1}, "compaction", "invalid_type"),
    ]
)
def test_a_mistake_is_refused_with_the_field_that_it_is_in(fields: dict[str, object], param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as found:
        read(**fields)
    assert (found.value.param, found.value.code) == (f"stratiform.{param}", code)


def test_a_field_that_stands_twice_in_a_panel_is_refused() -> None:
    with pytest.raises(InvalidRequest) as found:
        read_form(b'{"panels":[{"id":"a","content":"x","content":"y"}]}')
    assert found.value.code == "duplicate_field"
