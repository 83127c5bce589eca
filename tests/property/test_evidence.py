"""Whatever of a system prompt changes, in whatever form: what is sent says all of it once, and says it in order."""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode
from proxy.lab.replay.fidelity import violations
from tests.examples import examples
from tests.fidelity.checker import check
from tests.talk import RECOGNISERS, Body, Talk, assistant, chat, sent, system, text_part, user

# What changes with every request stands as {n}.
PIECES = (
    "A paragraph.\nIt says {n} things.", "Rules:\n- never do this\n- at most {n} times",
    "- item\n- item {n}\n\n- item", "* point {n}\n\n* point two\n\n* point three",
    "<env>\n\nBranch: b{n}\n\n</env>", "<env>\nFolder: /x\nBranch: b{n}\n</env>", "```\ncode\n\nmore {n}\n```",
    "Requests left: {n}", "| a | b |\n|---|---|\n| {n} | 1 |", "## Section\n\nturn {n}", "Status:\n\n M a{n}.py",
    "Recent commits:\n0a{n} fix: one\n0b1 fix: two", "Changed: a\n  b{n}\n  c", "Current time: 2026-01-01 10:0{n}",
    "A paragraph that does not change.", "- a list\n- that does not change",
)  # fmt: skip
INTRODUCTION = "\n".join(f"Rule {number}: mind what it says." for number in range(30)) + "\n"


@settings(max_examples=examples(60), deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=10),
    gap=st.sampled_from(["\n", "\n\n", "\n\n\n"]),
    end=st.sampled_from(["", "\n", "\n\n"]),
    as_parts=st.booleans(),
    mode=st.sampled_from([Mode.TIER, Mode.MARK]),
)
@example(pieces=[PIECES[1], PIECES[15], PIECES[3], PIECES[15]], gap="\n", end="", as_parts=True, mode=Mode.TIER)
def test_what_changes_is_said_once(pieces: list[str], gap: str, end: str, as_parts: bool, mode: Mode) -> None:
    talk = Talk(mode=mode)
    turns: list[Body] = []
    for number in range(1, 7):
        turns.append(user(f"question {number}"))
        texts = [piece.replace("{n}", str(number)) for piece in pieces]
        parts = [text_part(text) for text in (INTRODUCTION, *(text + end for text in texts), "Be brief.")]
        body = chat(system(parts if as_parts else INTRODUCTION + gap.join(texts) + end), *turns)
        plan = talk.send(body)
        assert check(body, sent(plan), mode=mode.name.lower(), profile="anthropic") == []
        assert violations(json.dumps(body).encode(), plan.body, RECOGNISERS, 4) == []
        turns.append(assistant(f"answer {number}"))
