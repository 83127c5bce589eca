"""Calls get their results, and what cannot have any is left out. Most cases stand in ``rules.vectors``."""

from proxy.core.structured.history.groups import MADE, Entry, entry_of
from proxy.core.structured.history.repair import PLACEHOLDER, repaired
from proxy.core.structured.messages import Conversation

CALLS = b'{"role":"assistant","content":"see","tool_calls":[{"id":"\\u0061\\ud83d"},{"id":"b"}],"x":1.0}'
RESULT = b'{"role":"tool","tool_call_id":"b","content":"r"}'
OTHER = b'{"role":"tool","tool_call_id":"c","content":"r"}'
SYSTEM = b'{"role":"system","content":"s"}'


def group(*raws: bytes) -> list[Entry]:
    return [entry_of(index, turn) for index, turn in enumerate(Conversation.of(raws))]


def test_a_placeholder_is_a_message_of_our_own_with_the_id_as_the_client_wrote_it() -> None:
    found, repairs = repaired(group(CALLS, RESULT))

    assert [each.origin for each in found] == [0, 1, MADE]
    assert found[2].turn.raw == (
        b'{"role":"tool","tool_call_id":"\\u0061\\ud83d","content":"' + PLACEHOLDER.encode() + b'"}'
    )
    assert repairs == 1


def test_a_placeholder_stands_behind_the_last_result_and_in_front_of_later_system_messages() -> None:
    found, _ = repaired(group(CALLS, SYSTEM, RESULT, SYSTEM))

    assert [each.origin for each in found] == [0, 1, 2, MADE, 3]


def test_a_message_without_its_calls_keeps_all_other_members_as_they_were() -> None:
    found, repairs = repaired(group(CALLS, OTHER))

    assert [each.turn.raw for each in found] == [b'{"role":"assistant","content":"see","x":1.0}']
    assert repairs == 2


def test_a_group_that_is_not_known_whole_is_the_same_object() -> None:
    given = group(CALLS, b"5", OTHER)

    assert repaired(given)[0] is given
