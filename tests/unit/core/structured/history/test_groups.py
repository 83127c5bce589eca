"""Where a conversation is cut so that calls are together with their results."""

import pytest

from proxy.core.structured.history.groups import Entry, entry_of, grouped, is_known
from tests.contexts import conversation_of
from tests.examples import for_every
from tests.talk import Body, assistant, calling, result, said, system, user


def entries(*messages: Body) -> list[Entry]:
    return [entry_of(index, turn) for index, turn in enumerate(conversation_of(*messages))]


def sizes(*messages: Body) -> list[int]:
    return [len(group) for group in grouped(entries(*messages))]


ODD = said("narrator", "x")


@for_every(
    [
        ([], []),
        ([user("a"), assistant("b"), user("c")], [1, 1, 1]),
        ([user("a"), calling("1"), result("1", "r"), assistant("b")], [1, 2, 1]),
        ([calling("1"), calling("2"), result("1", "r"), result("2", "r"), calling("3")], [4, 1]),
        ([calling("1"), system("s"), result("1", "r"), system("s"), calling("2")], [4, 1]),
        ([result("1", "r"), calling("1"), user("a")], [1, 1, 1]),
        ([calling("1"), ODD, calling("2"), result("1", "r")], [4]),
        ([calling("1"), result("1", "r"), ODD, calling("2"), result("2", "r"), calling("3")], [5, 1]),
        ([ODD, user("a"), ODD], [1, 1, 1]),
    ]
)
def test_a_group_is_calls_results_and_what_stands_among_them(messages: list[Body], found: list[int]) -> None:
    assert sizes(*messages) == found


@pytest.mark.parametrize(
    ("messages", "known"),
    [
        ([calling("1"), calling("2"), result("1", "r"), result("1", "r")], True),
        ([calling("1"), system("s"), result("1", "r")], True),
        ([calling("1"), ODD], False),
        ([calling("1"), calling("1")], False),
    ],
)
def test_a_group_is_known_where_each_id_means_one_call_and_all_is_read(messages: list[Body], known: bool) -> None:
    assert is_known(entries(*messages)) is known
