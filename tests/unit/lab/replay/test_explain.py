"""What is said about one request's layout is what was planned and billed."""

from collections.abc import Callable

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.lab import Step, Trace
from proxy.lab.demo import Sample
from proxy.lab.demo.chats import editor_chat
from proxy.lab.demo.tool_agent import clock_agent, tool_agent
from proxy.lab.replay import Ours, Setting
from proxy.lab.replay.explain import MEANINGS, Explanation, explain_request
from proxy.protocol.providers import DEEPSEEK
from tests.examples import sampled
from tests.talk import analysis_of
from tests.unit.lab.replay.sessions import MARK, body, growing, say, setting, text

# Turns of the editor chat are every second request; the others ask for commit messages.
LAST_TURN = 23


def explained(make: Callable[[], Sample], number: int, wanted: Setting | None = None) -> Explanation:
    return explain_request(make().trace(), wanted or setting(), number)


def reasons(explanation: Explanation, words: str) -> list[str]:
    return [row.reason for row in explanation.rows if words in row.what]


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Reason)


@pytest.mark.parametrize(
    ("make", "number"), sampled([(editor_chat, LAST_TURN), (tool_agent, 25), (clock_agent, 20)], 3, 2)
)
def test_the_rows_are_the_plan(make: Callable[[], Sample], number: int) -> None:
    trace, ours = make().trace(), Ours(setting())
    plans = [ours.send(step) for step in trace.steps[:number]]
    choice = analysis_of(plans[-1]).choice
    layout, marks = choice.layout, choice.marks
    found = explained(make, number)
    assert sum(row.tokens for row in found.rows) == layout.total
    ends = [row.position - 1 for row in found.rows[1:]] + [len(layout.parts) - 1]
    assert {end: row.marker for end, row in zip(ends, found.rows, strict=True) if row.marker} == marks
    assert set(layout.starts) <= {row.position for row in found.rows}
    assert 1 <= len(marks) <= 4
    assert found.reason == plans[-1].reason
    assert (found.predicted, found.own) == (plans[-1].predicted, plans[-1].own)
    tokens: dict[str, int] = {}
    for row in found.rows:
        tokens[row.segment] = tokens.get(row.segment, 0) + row.tokens
    assert tokens == {segment: n for segment, n in plans[-1].segment_tokens.items() if n}
    assert {row.tier for row in found.rows if row.tier} == set(plans[-1].tier_tokens)
    chances = [row.read_again for row in found.rows]
    assert chances == sorted(chances, reverse=True)


def test_files_are_named_with_their_age() -> None:
    found = explained(editor_chat, LAST_TURN)
    assert found.rewritten
    # The ledger was never edited: its first request brought it, each of the eleven turns since repeated it.
    assert "unchanged 12 requests" in reasons(found, "file:shop/ledger.py")[0]
    assert "just changed" in reasons(found, "file:shop/pricing.py")[0]
    assert reasons(found, "system: Act as an expert") == ["system prompt, shared by all sessions"]
    assert reasons(found, "user: Write the order's total") == ["the last exchange stays last"]
    assert "new" in reasons(explained(editor_chat, 1), "file:shop/ledger.py")[0]


def test_a_file_that_the_prompt_names_is_expected_to_change() -> None:
    # Turn 10: "Tests for that in test_orders.py, please."
    words = reasons(explained(editor_chat, 19), "file:tests/test_orders.py")[0]
    assert "named in the prompt: likely to be edited" in words


def test_what_a_clock_takes_out_of_the_system_prompt_is_shown() -> None:
    found = explained(clock_agent, 20)
    assert reasons(found, "Current date and time") == ["lines that tell the time, moved out of the system prompt"]
    assert reasons(found, "tools: 6") == ["tools, shared by all sessions"]
    assert found.predicted_cost is not None
    assert found.own_cost is not None
    assert found.predicted_cost < 0.5 * found.own_cost


def test_a_client_that_is_right_keeps_its_own_markers() -> None:
    history = [say("system", text("a", 2000), cache_control=MARK), say("user", "question", cache_control=MARK)]
    found = explain_request(Trace("t", [Step(0.0, "s", body(*history))]), setting(mode=Mode.MARK), 1)
    assert [row.marker for row in found.rows] == ["5m", "5m"]
    assert found.session == "s"


def test_a_short_request_is_shown_as_it_goes_out() -> None:
    short = Trace("t", [Step(0.0, "", body(say("system", "be brief"), say("user", "hello there")))])
    found = explain_request(short, setting(), 1)
    assert (found.reason, found.rewritten) == (Reason.BELOW_MINIMUM, False)
    assert [(row.what, row.segment, row.tier, row.marker) for row in found.rows] == [
        ("system: be brief", "unmarked", "", None), ("user: hello there", "unmarked", "", None),
    ]  # fmt: skip
    assert found.predicted_cost == found.own_cost == 4 + 2 + 4 + 3


def test_a_marker_inside_a_message_cuts_its_row() -> None:
    parts = [{"type": "text", "text": text("a", 2000), "cache_control": MARK}, {"type": "text", "text": text("b", 500)}]
    found = explain_request(Trace("t", [Step(0.0, "", body(say("user", parts)))]), setting(mode=Mode.MARK), 1)
    assert [row.marker for row in found.rows] == ["5m", "5m"]
    assert found.rows[0].tokens == pytest.approx(4 * found.rows[1].tokens, rel=0.1)
    assert [row.what.rpartition(" (")[2] for row in found.rows] == ["part 1 of 2)", "part 2 of 2)"]


def test_passthrough_has_nothing_to_show() -> None:
    found = explain_request(growing(2), setting(mode=Mode.PASSTHROUGH), 2)
    assert (found.rows, found.predicted, found.own_cost) == ((), None, None)
    assert found.meaning


def test_calls_and_parts_are_shown_by_name() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    messages = [
        say("user", [{"type": "text", "text": "look\n  at   this " + "x" * 60}]),
        say("assistant", None, tool_calls=[call]), say("tool", "content", tool_call_id="1"),
    ]  # fmt: skip
    found = explain_request(Trace("t", [Step(0.0, "", body(*messages))]), setting(profile=DEEPSEEK), 1)
    assert [row.what for row in found.rows] == [
        "user: look at this " + "x" * 26 + "…", "assistant: calls read_file", "tool: content",
    ]  # fmt: skip
