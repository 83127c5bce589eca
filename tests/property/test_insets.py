"""Sessions under an operator's texts: the client's words stay whole, and a text stands only where it was sent."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.lab import Step, read_trace
from proxy.lab.demo.tool_agent import tool_agent
from proxy.planner.plan import PlannerOptions
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import Inset
from tests.economics.made import chat_page, environment_agent
from tests.examples import in_turn, sampled
from tests.fidelity.checker import check
from tests.fidelity.recorded import trace_files
from tests.talk import Body, Talk

INSETS = (Inset("Read this.", "Be brief."), Inset(after="Be kind."), Inset("Look at this."), Inset())


def hold(steps: Sequence[Step], mode: Mode, profile: str, share: float = 0.0) -> int:
    """One session, whose texts change every third request; how many texts stood with earlier turns."""
    talk = Talk(profile=PROFILES[profile], mode=mode, options=PlannerOptions(holdout=share))
    known: dict[str, set[Inset]] = {}
    again = 0
    for number, step in enumerate(steps):
        body: Body = json.loads(step.body)
        inset = INSETS[number // 3 % len(INSETS)]
        talk.route, talk.now = replace(talk.route, inset=inset), step.at
        plan = talk.send(step.body)
        assert plan.reason is not Reason.INTERNAL_ERROR
        users = [i for i, message in enumerate(body["messages"]) if message["role"] == "user"]
        texts = plan.texts.applied.texts if plan.texts is not None else {}
        again += len(texts)
        for index, text in texts.items():
            # Some clients take a reminder of their own off a turn that is no longer the newest.
            own = said(body, index)
            found_with = {one for turn, sent_with in known.items() if turn.startswith(own) for one in sent_with}
            assert text in found_with, "a text that was never sent with this turn"
        for sent in (plan.body, plan.original):
            found = check(
                body, json.loads(sent), mode=talk.mode.name.lower(), profile=profile,
                inset=(inset.before, inset.after), earlier={i: (t.before, t.after) for i, t in texts.items()},
            )  # fmt: skip
            assert found == [], (number, plan.reason, *map(str, found))
        if users:
            known.setdefault(said(body, users[-1]), set()).add(inset)
            newest = json.dumps(json.loads(plan.original)["messages"][users[-1]], ensure_ascii=False)
            assert all(text in newest for text in (inset.before, inset.after))
    return again


def said(body: Body, index: int) -> str:
    """What a message says, as the client has written it."""
    content = body["messages"][index]["content"]
    return content if isinstance(content, str) else json.dumps(content)


@pytest.mark.parametrize("mode", sampled([Mode.OBSERVE, Mode.MARK, Mode.TIER], 3, 2))
@pytest.mark.parametrize("profile", sampled(["anthropic", "openai"], 2))
def test_sessions_that_are_made_here_hold(mode: Mode, profile: str) -> None:
    again = [hold(sample.trace().steps, mode, profile) for sample in (chat_page(), environment_agent(), tool_agent())]
    # Where nobody marks, nothing is stored, and no text is worth being sent again.
    assert bool(again[2]) is not ((mode, profile) == (Mode.OBSERVE, "anthropic"))


def test_controls_of_a_hold_out_hold() -> None:
    assert hold(tool_agent().trace().steps, Mode.TIER, "openai", share=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "under"),
    in_turn(trace_files(), [(Mode.TIER, "anthropic"), (Mode.MARK, "openai"), (Mode.OBSERVE, "deepseek")]),
)
def test_recorded_sessions_hold(path: Path, under: tuple[Mode, str]) -> None:
    hold(read_trace(path).steps[:40], *under)
