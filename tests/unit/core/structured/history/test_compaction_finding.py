"""The answer of a model that has read the user's conversation is hostile until it was read strictly."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.history.compaction_proposal import (
    MOST_SUMMARY_CHARS,
    CompactionFinding,
    read_finding,
)
from tests.examples import for_every
from tests.growth import assert_linear

GOOD = '{"boundary": 3, "confidence": 0.8, "summary": "So far."}'
FOUND = CompactionFinding(3, 0.8, "So far.")
LONGEST = "x" * MOST_SUMMARY_CHARS

READ = [
    (GOOD, FOUND),
    (f"Here it is:\n```json\n{GOOD}\n```\nDone.", FOUND),
    (f"{{no}} {{'this': neither}} {GOOD}", FOUND),
    (f"{GOOD} {GOOD.replace('3', '4')}", FOUND),
    ('{"summary": "  a\\n", "boundary": 0, "confidence": 1, "more": [1]}', CompactionFinding(0, 1.0, "a")),
    ('{"boundary": 9, "confidence": 0, "summary": ""}', CompactionFinding(9, 0.0, "")),
    (f'{{"boundary": 0, "confidence": 1, "summary": "{LONGEST}"}}', CompactionFinding(0, 1.0, LONGEST)),
]


@pytest.mark.parametrize(("answer", "expected"), READ)
def test_the_first_object_of_an_answer_is_read(answer: str, expected: CompactionFinding) -> None:
    assert read_finding(answer, 10) == expected


def said(**changes: object) -> str:
    return json.dumps({"boundary": 3, "confidence": 0.8, "summary": "So far.", **changes})


REFUSED = {
    "nothing": "",
    "no object": "The topic has not changed.",
    "an array": "[3, 0.8]",
    "cut off": GOOD[:-2],
    "a boundary of another kind": said(boundary="3"),
    "a boundary that is true": said(boundary=True),
    "a boundary between two messages": said(boundary=3.0),
    "no boundary": said(boundary=None),
    "a boundary in front": said(boundary=-1),
    "a boundary behind": said(boundary=10),
    "a vast boundary": GOOD.replace("3", "9" * 5_000),
    "more than sure": said(confidence=1.01),
    "less than unsure": said(confidence=-0.1),
    "a confidence of another kind": said(confidence="0.8"),
    "a confidence that is true": said(confidence=True),
    "a confidence that is no number": GOOD.replace("0.8", "NaN"),
    "an infinite confidence": GOOD.replace("0.8", "Infinity"),
    "a vast confidence": GOOD.replace("0.8", "1e999"),
    "no summary": said(summary=None),
    "a summary of another kind": said(summary=["a"]),
    "a summary that is too long": said(summary=LONGEST + "x"),
    "half of a surrogate pair": GOOD.replace("So", "\\ud800"),
    "a member is missing": '{"boundary": 3, "confidence": 0.8}',
    "the object is within another": json.dumps({"answer": json.loads(GOOD)}),
    "deep": '{"a":' * 50_000,
    "deep arrays": '{"a":' + "[" * 60_000,
    "many braces": "{" * 60_000,
    "too long": " " * 64_000 + GOOD,
    "far behind other braces": "{} {x} " * 8 + GOOD,
}


@for_every(REFUSED.values())
def test_any_other_answer_is_none(answer: str) -> None:
    assert read_finding(answer, 10) is None


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(answer: str) -> None:
    found = read_finding(answer, 10)
    assert found is None or 0 <= found.boundary < 10


@pytest.mark.parametrize("unit", ["{", '{"a":', '{"a":"', '{"":[', '{"summary":"x"}', "\\", '{"a":1e'])
def test_the_time_grows_with_the_answer_at_most(unit: str) -> None:
    assert_linear(lambda answer: read_finding(answer, 10), lambda size: (unit * size)[:size], 16_000)
