"""What recorded requests say of prompts and of their context window is taken out of them, and nothing else."""

from typing import Any

import orjson
import pytest

from proxy.lab import Step, Trace, without_prompts

MESSAGES = [{"role": "user", "content": "q 1.0"}]
FILES = [{"path": "a.py", "content": "a = 1"}]


def trace(*sections: Any) -> Trace:
    bodies = [
        {"model": "m", "messages": MESSAGES, **({} if each is None else {"stratiform": each})} for each in sections
    ]
    return Trace("t", [Step(float(number), "s", orjson.dumps(body)) for number, body in enumerate(bodies)])


@pytest.mark.parametrize(
    "section",
    [
        {"prompts": {"persona": "x"}},
        {"window": {"prefix": "p"}},
        {"prompts": {}, "window": {"suffix": "s"}},
        {"prompts": None},
        {"return_usage": True},
        {"return_break": True},
    ],
)
def test_a_section_that_says_nothing_else_is_gone(section: Any) -> None:
    found, count = without_prompts(trace(section, None))
    assert count == 1
    assert [orjson.loads(step.body) for step in found.steps] == [{"model": "m", "messages": MESSAGES}] * 2
    assert [(step.at, step.session) for step in found.steps] == [(0.0, "s"), (1.0, "s")]


def test_structured_context_stays() -> None:
    found, count = without_prompts(trace({"files": FILES, "window": {"prefix": "p"}, "prompts": {"persona": "x"}}))
    assert count == 1
    assert orjson.loads(found.steps[0].body) == {"model": "m", "messages": MESSAGES, "stratiform": {"files": FILES}}


@pytest.mark.parametrize("section", [None, {"files": FILES}, {}, 3, "prompts"])
def test_a_session_that_says_nothing_of_them_is_the_same(section: Any) -> None:
    recorded = trace(section, None)
    found, count = without_prompts(recorded)
    assert (found is recorded, count) == (True, 0)


def test_what_cannot_be_read_stays_as_it_is() -> None:
    recorded = Trace("t", [Step(0.0, "s", b'{"stratiform": ')])
    assert without_prompts(recorded) == (recorded, 0)
