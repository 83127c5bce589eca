"""Conversations of one client that run side by side are recognised by their own turns, whatever they have in common."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.planner.plan import Plan
from tests.talk import Talk

Message = dict[str, Any]

_PROMPTS = ("continue", "yes", "Fix it.")
_SHOWN = ("Open files: a.py", "No file is open.")


def _said(role: str, text: str) -> Message:
    return {"role": role, "content": text}


@st.composite
def sides(draw: st.DrawFn) -> dict[str, Any]:
    """How a client shows what it does not keep, in each of its conversations alike."""
    return {
        "roles": draw(st.lists(st.sampled_from(["user", "system"]), max_size=2)),
        "is_behind": draw(st.booleans()),
        "reminder": draw(st.booleans()),
        "examples": draw(st.integers(0, 2)),
    }


class Conversation:
    """``number`` is in its first prompt: the rest may be the same in others."""

    def __init__(self, number: int, side: dict[str, Any]) -> None:
        self.side = side
        examples = [_said(*each) for n in range(side["examples"]) for each in (("user", f"e{n}"), ("assistant", "OK."))]
        self.head = [_said("system", "Be kind. " * 20), *examples]
        self.kept: list[Message] = []
        self.number = number
        self.sessions: list[str] = []

    def send(self, talk: Talk, prompt: str, answer: str, shown: str) -> None:
        newest = _said("user", prompt if self.kept else f"{prompt} {self.number}")
        beside = [_said(role, shown) for role in self.side["roles"]]
        around = [newest, *beside] if self.side["is_behind"] else [*beside, newest]
        reminder = [_said("user", "Never write placeholders.")] if self.side["reminder"] else []
        body = {"model": "m", "messages": [*self.head, *self.kept, *around, *reminder]}
        plan: Plan = talk.send(json.dumps(body).encode())
        self.kept += [newest, _said("assistant", answer)]
        self.sessions.append(plan.session)


_steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(_PROMPTS), st.sampled_from(_SHOWN)), min_size=2, max_size=24
)


@given(sides(), _steps)
@example(
    {"roles": [], "is_behind": False, "reminder": True, "examples": 0},
    [(0, "yes", _SHOWN[0]), (1, "yes", _SHOWN[0])] * 3,
)
def test_conversations_side_by_side_stay_apart(side: dict[str, Any], steps: list[tuple[int, str, str]]) -> None:
    talk, running = Talk(), [Conversation(number, side) for number in range(3)]
    for at, (number, prompt, shown) in enumerate(steps):
        running[number].send(talk, prompt, f"OK, {at} of {number}.", shown)
    known = [set(one.sessions[1:]) for one in running]
    assert not known[0] & known[1] | known[0] & known[2] | known[1] & known[2]
    for one in running:
        # Its first request may be ambiguous; from then on it is one session.
        assert len(set(one.sessions[1:])) <= 1
