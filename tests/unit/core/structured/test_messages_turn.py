"""What is read of a message is the same whoever asks, and does not depend on the client's markers."""

import orjson
import pytest

from proxy.core.structured.messages import Conversation, Turn
from proxy.core.wire.json_body import Unreadable
from tests.talk import MARK, text_part, user


def test_a_marker_changes_neither_the_bare_message_nor_its_digest() -> None:
    marked = Turn.of(orjson.dumps(user([text_part("a", **MARK)])))
    plain = Turn.of(orjson.dumps(user([text_part("a")])))

    assert marked != plain
    assert (marked.bare, marked.digest) == (plain.bare, plain.digest)
    assert Conversation.of([marked.raw]).bare() == Conversation.of([plain.raw])


def test_a_message_without_markers_is_not_written_again() -> None:
    turn = Turn.of(b'{ "role": "user", "content": "a" }')

    assert turn.bare is turn.raw
    assert Conversation((turn,)).bare().system[0] is turn


def test_what_is_read_once_is_kept() -> None:
    turn = Turn.of(b'{"role":"tool","content":"a"}')

    assert turn.members is turn.members
    assert turn.has_results
    assert not turn.is_system


@pytest.mark.parametrize("raw", [b"1", b"{", b"[]", b""])
def test_what_is_no_message_has_no_members_and_no_role(raw: bytes) -> None:
    turn = Turn.of(raw)

    assert turn.role == ""
    assert turn.bare == raw
    with pytest.raises(Unreadable):
        turn.members  # noqa: B018
