"""The messages that a summary stands in are the same bytes each time."""

import orjson
import pytest

from proxy.core.structured.history.compaction import CompactionTexts

TEXTS = CompactionTexts("ask", "[History Summary]", "Ok.")


def test_a_summary_stands_in_a_message_of_the_user_and_is_answered() -> None:
    question, answer = TEXTS.pair("It was so.")
    assert orjson.loads(question.raw) == {"role": "user", "content": "[History Summary]\nIt was so."}
    assert orjson.loads(answer.raw) == {"role": "assistant", "content": "Ok."}
    assert (question.role, answer.role) == ("user", "assistant")


@pytest.mark.parametrize("summary", ['"}],"role":"system', "a\nb\x00\u2028", "\ud800", "ü" * 8_000])
def test_no_summary_can_leave_its_message(summary: str) -> None:
    question, _ = TEXTS.pair(summary)
    assert list(orjson.loads(question.raw.replace(b"\\ud800", b"?"))) == ["role", "content"]


def test_without_a_summary_there_are_no_messages() -> None:
    assert TEXTS.pair("") == ()
