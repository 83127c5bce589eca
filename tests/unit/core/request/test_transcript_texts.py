"""A system message that is written as several texts, one of which tells the time."""

import json

import pytest

from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Reason
from proxy.core.request.transcript import Kept, kept_parts, part_at, texts_of
from tests.fidelity.checker import check
from tests.talk import MARK, Body, Talk, assistant, chat, lines, marks_in, read, sent, system, text_part, user

ABOVE, BELOW = lines(60, "rule"), lines(60, "law")


def clock(minute: int) -> str:
    return f"Current time: 2026-01-01 10:{minute:02}\n"


def instructions(minute: int, role: str = "system", **more: object) -> Body:
    parts = [text_part(ABOVE), text_part(clock(minute)), text_part(BELOW, **more)]
    return {"role": role, "content": parts}


def test_what_stays_of_each_part() -> None:
    texts = [clock(0), f"A rule.\n{clock(1)}Another.\n", BELOW, f"\n{clock(2)}\n", ""]
    (message,) = read([system([text_part(text) for text in texts])])
    assert texts_of(message) == tuple(texts)
    assert message.text == "".join(texts)
    assert kept_parts(message) == (
        Kept(1, "A rule.\nAnother.\n", False),
        Kept(2, BELOW, True),
        Kept(4, "", True),
    )
    ends = [len("".join(texts[: n + 1])) for n in range(4)]
    assert [part_at(message, at) for at in (0, ends[0] - 1, ends[0], ends[1], ends[2])] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "odd",
    [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": clock(1), "citations": []}],
)
def test_parts_that_are_more_than_text_are_left_alone(odd: Body) -> None:
    (message,) = read([system([text_part(ABOVE), text_part(clock(1)), odd])])
    assert texts_of(message) is None
    assert message.recognition is None


def session(talk: Talk, **more: object) -> list[tuple[Body, Plan]]:
    found: list[tuple[Body, Plan]] = []
    turns: list[Body] = []
    for number in range(5):
        turns.append(user(f"question {number}"))
        body = chat(instructions(number, **more), *turns)  # type: ignore[arg-type]
        plan = talk.send(body)
        assert check(body, sent(plan), mode=talk.mode.name.lower(), profile="anthropic") == []
        found.append((body, plan))
        turns.append(assistant(f"answer {number}"))
    return found


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("own", [{}, MARK])
def test_the_moved_part_goes_into_the_tag_and_the_other_parts_stay_parts(role: str, own: Body) -> None:
    """With the client's marker behind the clock, too, which would be a write that is never read."""
    body, plan = session(Talk(), role=role, **own)[-1]
    first, *others = sent(plan)["messages"]
    assert [part["text"] for part in first["content"]] == [ABOVE, BELOW]
    assert first["role"] == role
    assert [one["content"] for one in others if "<stratiform-context>" in json.dumps(one)] == [
        f"<stratiform-context>\n{clock(4).strip()}\n</stratiform-context>"
    ]
    assert plan.predicted is not None
    assert plan.predicted.read > 0.9 * plan.predicted.total


def test_where_nothing_may_move_all_in_front_of_the_part_is_marked() -> None:
    """The border is there already: the parts are as they came."""
    found = session(Talk(mode=Mode.MARK))
    body, plan = found[-1]
    assert plan.reason is Reason.SPLIT
    assert marks_in(sent(plan)) == ["0.0"]
    assert [p["text"] for p in sent(plan)["messages"][0]["content"]] == [ABOVE, clock(4), BELOW]
    assert plan.predicted is not None
    assert plan.predicted.read > 0.4 * plan.predicted.total


def test_a_clock_in_the_first_part_is_no_place_for_a_border() -> None:
    talk = Talk(mode=Mode.MARK)
    for number in range(3):
        body = chat(system([text_part(clock(number) + ABOVE), text_part(BELOW)]), user("go"))
        plan = talk.send(body)
        assert plan.reason is not Reason.SPLIT
        assert check(body, sent(plan), mode="mark", profile="anthropic") == []
