"""Calls get their results, and what cannot have any is left out. Most cases stand in ``rules.vectors``."""

import pytest

from proxy.context import Conversation
from proxy.context.history import MADE, PLACEHOLDER, HistoryEntry, entry_of, merged, repaired

CALLS = b'{"role":"assistant","content":"see","tool_calls":[{"id":"\\u0061\\ud83d"},{"id":"b"}],"x":1.0}'
RESULT = b'{"role":"tool","tool_call_id":"b","content":"r"}'
OTHER = b'{"role":"tool","tool_call_id":"c","content":"r"}'


def group(*raws: bytes) -> list[HistoryEntry]:
    return [entry_of(index, turn) for index, turn in enumerate(Conversation.of(raws))]


def test_a_placeholder_is_a_message_of_our_own_with_the_id_as_the_client_wrote_it() -> None:
    found, repairs = repaired(group(CALLS, RESULT))

    assert [each.origin for each in found] == [0, 1, MADE]
    assert found[2].turn.raw == (
        b'{"role":"tool","tool_call_id":"\\u0061\\ud83d","content":"' + PLACEHOLDER.encode() + b'"}'
    )
    assert repairs == 1


def test_a_message_without_its_calls_keeps_all_other_members_as_they_were() -> None:
    found, repairs = repaired(group(CALLS, OTHER))

    assert [each.turn.raw for each in found] == [b'{"role":"assistant","content":"see","x":1.0}']
    assert repairs == 2


# Neighbouring calls become one message, of the client's own bytes. Most cases stand in ``rules.vectors``.


def joined(*raws: bytes) -> tuple[list[bytes], int]:
    found, count = merged([entry_of(index, turn) for index, turn in enumerate(Conversation.of(raws))])
    return [each.turn.raw for each in found], count


def calls(number: int, more: bytes = b"") -> bytes:
    return b'{"role":"assistant","tool_calls":[ {"id":"%d", "x":1.0} ]%b}' % (number, more)


def test_calls_keep_their_bytes_and_stand_in_their_order() -> None:
    found, count = joined(calls(1), calls(2), calls(3))

    assert found == [
        b'{"role":"assistant","tool_calls":[ {"id":"1", "x":1.0} , {"id":"2", "x":1.0} , {"id":"3", "x":1.0} ]}'
    ]
    assert count == 2


@pytest.mark.parametrize(
    ("contents", "content"),
    [
        ([b'"a"', b"null"], b'"a"'),
        ([b"null", b'"\\ud83d"'], b'"\\ud83d"'),
        ([b'"\\ud83d"', b'""', b'"b"'], b'"\\ud83d\\nb"'),
        ([b'[{"type":"text", "text":"a"}]', b"[ ]"], b'[{"type":"text", "text":"a"}]'),
        ([b"[ ]", b'"b"'], b'[{"type":"text","text":"b"}]'),
        ([b'"a"', b'[{"type":"image_url"}]', b'""'], b'[{"type":"text","text":"a"},{"type":"image_url"}]'),
    ],
)
def test_contents_are_joined_as_they_were_written(contents: list[bytes], content: bytes) -> None:
    found, _ = joined(*(calls(number, b',"content":' + raw) for number, raw in enumerate(contents)))

    assert len(found) == 1
    assert b',"content":' + content + b"}" in found[0]


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (b',"name":"bob"', b',"name":"bob"', 1),
        (b',"name":"bob"', b"", 1),
        (b',"name":"bob"', b',"name":"eve"', 0),
        (b"", b',"name":"bob"', 0),
        (b"", b',"refusal":null,"annotations":[]', 1),
        (b',"thinking_blocks":[{"signature":"1"}]', b',"thinking_blocks":[{"signature":"2"}]', 0),
        (b',"cache_control":{"ttl":"5m"}', b',"cache_control":{"ttl":"1h"}', 1),
    ],
)
def test_a_message_that_says_more_than_the_first_one_joins_none(first: bytes, second: bytes, count: int) -> None:
    found, joins = joined(calls(1, first), calls(2, second))

    assert joins == count
    assert len(found) == 2 - count


def test_the_last_marker_of_joined_messages_stays() -> None:
    found, _ = joined(calls(1), calls(2, b',"cache_control":{"ttl":"5m"}'), calls(3, b',"cache_control":{"ttl":"1h"}'))

    assert [raw.count(b"cache_control") for raw in found] == [1]
    assert found[0].endswith(b',"cache_control":{"ttl":"1h"}}')


def test_what_joins_none_does_not_part_those_behind_it() -> None:
    found, count = joined(calls(1), calls(2, b',"name":"bob"'), calls(3), calls(4, b',"name":"bob"'))

    assert (len(found), count) == (2, 2)
