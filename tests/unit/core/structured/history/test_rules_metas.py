"""What becomes of a message by its status."""

import pytest

from proxy.core.structured.history.rules import DetachTerms, MessageMeta, Status


@pytest.mark.parametrize(("status", "is_sent"), list(zip(Status, (True, True, False, False), strict=True)))
def test_a_message_is_sent_unless_it_is_deleted_or_detached(status: Status, is_sent: bool) -> None:
    assert MessageMeta(status).is_sent is is_sent


def test_the_minimums_are_those_of_the_original() -> None:
    terms = DetachTerms()
    assert (terms.chunk_messages, terms.chunk_tokens, terms.keep_messages, terms.keep_tokens) == (25, 5_000, 25, 7_500)
