"""Structured context becomes messages, and an arrangement for each upstream."""

import logging
from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context import MapChunks
from proxy.context.blocks import Assembly, AssemblyKind, Circumstances, shown
from proxy.context.session import AssembledChat, AssemblyOptions
from proxy.kit.errors import MissingContent
from proxy.kit.modes import Edit, Mode, Reason
from proxy.planner.plan import Plan
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, NONE, CacheProfile
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services.context_assembler import Arrangement, ContextAssembler
from tests.examples import for_every

TEXT = "line of a file\n" * 800


def assembler(policy: str = "classic", **options: Any) -> ContextAssembler:
    return ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions(policy, **options))


def assembled(
    subject: ContextAssembler, section: dict[str, Any], *turns: str, scope: str = "key", hint: str = ""
) -> AssembledChat:
    """A request of these turns, user and assistant in turn, with a system message in front."""
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": turn} for index, turn in enumerate(turns or ("q",))]
    body = {"model": "m", "messages": [{"role": "system", "content": "rules"}, *messages], "stratiform": section}
    return subject.chat_of(parse_body(orjson.dumps(body)), scope, hint)


def arranged(
    subject: ContextAssembler, chat: AssembledChat, mode: Mode = Mode.TIER, profile: CacheProfile = ANTHROPIC
) -> Arrangement:
    price = Price.relative(profile.read, profile.write, profile.write_long)
    return subject.arrange(chat, subject.place(chat, profile), profile, mode, price)


def selected(path: str = "a.py", text: str = TEXT) -> dict[str, Any]:
    return {"path": path, "content": text, "selected": True}


def test_texts_are_known_within_their_scope_only() -> None:
    subject = assembler()
    digest = assembled(subject, {"files": [selected()]}).context.files[0].digest
    by_digest = {"files": [{"path": "a.py", "digest": digest, "selected": True}]}

    assert assembled(subject, by_digest).context.files[0].text == TEXT
    with pytest.raises(MissingContent):
        assembled(subject, by_digest, scope="another key")


def test_a_file_that_stays_unchanged_enters_l3_after_three_answers() -> None:
    subject = assembler()
    moves = []
    for number in range(5):
        turns = [word for past in range(number) for word in (f"q{past}", "a")] + [f"q{number}"]
        found = arranged(subject, assembled(subject, {"session": "s", "files": [selected()]}, *turns))
        moves.append([(move.key, move.target.label) for move in found.counted(None)])

    assert moves == [[], [], [], [("file:a.py", "L3")], []]
    assert found.tier_tokens["L3"] > 2_000


def test_a_retry_of_the_same_conversation_does_not_age_anything() -> None:
    subject = assembler()
    for _ in range(6):
        arranged(subject, assembled(subject, {"session": "s", "files": [selected()]})).counted(None)
    chat = assembled(subject, {"session": "s", "files": [selected()]})
    placement = subject.place(chat, ANTHROPIC)

    assert placement.counts == {"file:a.py": 0}


def test_what_was_not_answered_changes_nothing() -> None:
    subject = assembler()
    for _ in range(6):
        arranged(subject, assembled(subject, {"session": "s", "files": [selected()]}))

    placement = subject.place(assembled(subject, {"session": "s", "files": [selected()]}), ANTHROPIC)
    assert placement.counts == {}


def test_a_conversation_without_a_name_is_known_by_how_it_begins() -> None:
    subject = assembler()
    first = assembled(subject, {"files": []}, "q1")
    later = assembled(subject, {"files": []}, "q1", "a", "q2")
    other = assembled(subject, {"files": []}, "another")

    assert first.session == later.session != other.session


def test_a_marker_that_a_client_moves_does_not_change_how_a_conversation_is_known() -> None:
    subject = assembler()
    marked: Any = [{"type": "text", "text": "q1", "cache_control": {"type": "ephemeral"}}]
    plain: Any = [{"type": "text", "text": "q1"}]

    assert (
        assembled(subject, {"files": []}, marked).session == assembled(subject, {"files": []}, plain, "a", "q2").session
    )


@pytest.mark.parametrize(("policy", "section"), [("economic", {}), ("classic", {}), ("classic", {"assembly": "flat"})])
def test_the_time_of_a_question_stays_with_it(policy: str, section: dict[str, Any]) -> None:
    subject = assembler(policy)
    section = {"session": "s", "panels": [{"id": "p", "content": "x"}], **section}
    turns = [
        {"role": "user", "content": "q0"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q1"},
    ]
    for length in (1, 3):
        body = {"model": "m", "messages": turns[:length], "stratiform": section}
        sent = arranged(subject, subject.chat_of(parse_body(orjson.dumps(body)), "key", now=1.7e9 + 60 * length))
    said = [message["content"] for message in orjson.loads(sent.body)["messages"][-5:]]
    assert said == [
        "Current datetime: 2023-11-14T22:14:20Z", "q0", "a", "Current datetime: 2023-11-14T22:16:20Z", "q1"
    ]  # fmt: skip


def test_the_session_that_a_header_names_counts_where_the_section_names_none() -> None:
    subject = assembler()

    assert assembled(subject, {"files": []}, hint="h").session == "h"
    assert assembled(subject, {"files": [], "session": "s"}, hint="h").session == "s"


@for_every(
    [
        ("classic", Mode.TIER, False, "tiered", Mode.OBSERVE),
        ("classic", Mode.MARK, False, "flat", Mode.MARK),
        ("economic", Mode.TIER, False, "economic", Mode.TIER),
        ("economic", Mode.MARK, False, "economic", Mode.MARK),
        ("economic", Mode.OBSERVE, False, "economic", Mode.OBSERVE),
        ("economic", Mode.PASSTHROUGH, False, "economic", Mode.PASSTHROUGH),
        ("classic", Mode.OBSERVE, False, "flat", Mode.OBSERVE),
        ("economic", Mode.TIER, True, "flat", Mode.OBSERVE),
        ("classic", Mode.TIER, True, "flat", Mode.OBSERVE),
    ]
)
def test_policy_mode_and_wish_decide_how_a_request_is_assembled(
    policy: str, mode: Mode, flat: bool, kind: str, planned: Mode
) -> None:
    subject = assembler(policy)
    section = {"files": [selected()], **({"assembly": "flat"} if flat else {})}
    found = arranged(subject, assembled(subject, section), mode)

    assert (found.kind, found.mode) == (kind, planned)


def test_an_upstream_whose_cache_is_unknown_gets_no_markers() -> None:
    subject = assembler()
    chat = assembled(subject, {"files": [selected()]})

    assert b"cache_control" not in arranged(subject, chat, profile=NONE).body


def test_a_surprise_of_ours_leaves_the_flat_assembly(caplog: pytest.LogCaptureFixture) -> None:
    subject = assembler()
    chat = assembled(subject, {"session": "s", "files": [selected()]})
    del subject.sessions.session("key", "s").tracker.items
    with caplog.at_level(logging.ERROR, "stratiform"):
        found = arranged(subject, chat)

    plan = found.concluded(Plan(b"", b"", Mode.OBSERVE, Reason.OBSERVE_MODE), Mode.TIER)
    assert (found.kind, found.body, plan.reason) == ("flat", chat.body, Reason.ASSEMBLED_FLAT)
    assert "AttributeError" in caplog.text
    assert "line of a file" not in caplog.text


def test_a_breakdown_tells_of_the_conversation_so_far() -> None:
    subject = assembler()
    section = {"session": "s", "files": [selected()]}
    arranged(subject, assembled(subject, section, "q1")).counted(Usage(100, 5, read=50))
    chat = assembled(subject, section, "q1", "a", "q2")
    placement = subject.place(chat, ANTHROPIC)
    session = subject.sessions.session("key", "s")
    about = Circumstances(empty_tiers_total=session.empty_tiers, last=session.last, total=session.total)
    found: Any = shown(arranged(subject, chat).inventory(placement, TokenCounter(), 0.0), about)

    assert found["cache_hit_rate"] == 0.5
    assert found["session_totals"]["prompt"] == 100
    assert found["empty_tiers_session_total"] == 3


def test_a_map_that_cannot_be_cut_leaves_the_flat_assembly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> object:
        raise ZeroDivisionError("the text of the prompt")

    monkeypatch.setattr(MapChunks, "shown", fails)
    subject = assembler("economic")
    chat = assembled(subject, {"symbols": [{"path": "a.py", "block": "a.py: symbols"}]})

    assert (chat.kind, chat.map) == (AssemblyKind.FLAT, None)
    assert b"a.py: symbols" in chat.body
    assert arranged(subject, chat).mode is Mode.OBSERVE
    assert "the text of the prompt" not in caplog.text


def placed_in_a_loop(thinking: bytes) -> int | None:
    """In front of which message a panel stands that changes behind the result of a call. ``thinking`` is a member of
    the body, as its bytes."""
    subject = assembler("economic")
    call = {"id": "c", "type": "function", "function": {"name": "own", "arguments": "{}"}}
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    talk.append({"role": "tool", "tool_call_id": "c", "content": "found"})
    for count, content in ((1, "old"), (3, "new")):
        section = {"session": "s", "panels": [{"id": "todo", "content": content}]}
        body = orjson.dumps({"model": "m", "messages": talk[:count], "stratiform": section})
        sent = parse_body(body[:-1] + b"," + thinking + b"}")
        board = subject.chat_of(sent, "key", now=1_800_000_000.0 + count).dialogue.board
    place = board.panels["todo"].place
    return place.index if place is not None else None


@for_every(
    [
        (b'"thinking":{"type":"enabled","budget_tokens":1024}', 0),
        (b'"thinking": {"type": "adaptive"}', 0),
        (b'"reasoning_effort":"low"', 0),
        (b'"thinking":{"type":"disabled"}', 3),
        (b'"thinking": { "type" : "disabled" }', 3),
        (b'"reasoning_effort": "none"', 3),
        (b'"reasoning": {"effort": "none"}', 3),
        (b'"reasoning": {"enabled": false}', 3),
        (b'"thinking": null', 3),
        (b'"temperature": 1', 3),
    ]
)
def test_a_panel_stands_behind_the_newest_results_unless_the_model_thinks(thinking: bytes, place: int) -> None:
    assert placed_in_a_loop(thinking) == place


def arrangement(mode: Mode = Mode.OBSERVE) -> Arrangement:
    return Arrangement(
        kind=AssemblyKind.TIERED,
        body=b"{}",
        fallback=b"{}",
        mode=mode,
        assembly=Assembly(()),
        counted=lambda usage: (),
        edits={Edit.PANELS_SHOWN: 2},
        tier_tokens={"L0": 7},
    )


def plan(surprise: Exception | None = None) -> Plan:
    return Plan(b"{}", b"{}", Mode.OBSERVE, Reason.OBSERVE_MODE, surprise=surprise)


def test_the_reason_of_a_fixed_layout_takes_the_place_of_the_planner_s() -> None:
    found = arrangement().concluded(plan(), Mode.TIER)
    assert (found.reason, found.mode) == (Reason.ASSEMBLED_TIERS, Mode.TIER)


def test_without_one_the_planner_s_reason_and_mode_stay() -> None:
    found = arrangement(Mode.TIER).concluded(plan(), Mode.TIER)
    assert (found.reason, found.mode) == (Reason.OBSERVE_MODE, Mode.OBSERVE)
    assert (found.edits, found.tier_tokens) == ({Edit.PANELS_SHOWN: 2}, {"L0": 7})
    assert found.counted is not None


def test_an_error_of_the_planner_s_own_is_not_hidden() -> None:
    found = arrangement().concluded(plan(ZeroDivisionError()), Mode.TIER)
    assert found.reason == Reason.OBSERVE_MODE
