"""Properties of the rules of the history, for conversations of any kind. Single cases stand in ``rules.vectors``."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation, Turn
from proxy.context.history import MADE, MessageMeta, RuledHistory, Status, entry_of, ruled
from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Edit
from tests.talk import Body, assistant, calling, result, said, system, user
from tests.turn_notation import written

IDS = st.sampled_from("1234")
TEXTS = st.sampled_from(["", "a", "b\ud83d", " "])
READABLE = st.one_of(
    st.builds(user, TEXTS),
    st.builds(assistant, TEXTS),
    st.builds(system, TEXTS),
    st.builds(lambda ids, content: calling(*ids, content=content), st.lists(IDS, min_size=1, unique=True), TEXTS),
    st.builds(result, IDS, TEXTS),
    st.builds(result, IDS, TEXTS),
)
UNREADABLE = st.sampled_from(
    [
        said("narrator", "x"),
        said("function", "x", name="run"),
        said("assistant", None, function_call={"name": "run"}),
        calling("1", "1"),
        {"role": "tool", "tool_call_id": 5, "content": "x"},
    ]
)
WHOLE_GROUPS = st.lists(IDS, min_size=1, unique=True).flatmap(
    lambda ids: st.permutations(ids).map(lambda order: [calling(*ids), *(result(i, "r") for i in order)])
)
VALID = st.lists(st.one_of(st.just([user("q")]), st.just([assistant("a")]), WHOLE_GROUPS), max_size=8).map(
    lambda groups: [message for group in groups for message in group]
)


def conversation(messages: Iterable[Body]) -> Conversation:
    return Conversation.of(map(written, messages))


def parsed(turns: Iterable[Turn]) -> list[Any]:
    return [json.loads(turn.raw) for turn in turns]


def bodies(found: Conversation) -> list[Any]:
    return parsed(found.turns)


def metas_for(found: Conversation, statuses: Sequence[Status]) -> dict[int, MessageMeta]:
    """What a client may say: a status for each message that is not protected."""
    last_user = found.prompt[0] if found.prompt and found.prompt[0].role == "user" else None
    return {
        index: MessageMeta(index, status, "short" if status is Status.SUMMARIZED else "")
        for index, (turn, status) in enumerate(zip(found, statuses, strict=False))
        if not turn.is_system and turn is not last_user
    }


@st.composite
def wished(draw: st.DrawFn) -> tuple[Conversation, Mapping[int, MessageMeta]]:
    """A conversation of any messages, and what its client says of them."""
    messages = draw(st.lists(st.one_of(READABLE, READABLE, READABLE, UNREADABLE), max_size=12))
    found = conversation(messages)
    return found, metas_for(found, draw(st.lists(st.sampled_from(Status), max_size=12)))


def ids_of(message: Any) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or ()]


def unmatched(messages: Sequence[Any]) -> list[str]:
    """What a provider would refuse: calls without a result directly behind, and results without a call in front. Two
    calls of one id in neighbouring messages can be matched by nobody."""
    problems: list[str] = []
    open_ids: list[str] = []
    answered: set[str] = set()
    for message in [*(m for m in messages if m["role"] != "system"), {"role": "end"}]:
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
            is_clear = len(set(open_ids)) == len(open_ids)
            is_matched = message["tool_call_id"] in open_ids or not is_clear
            problems += [] if is_matched else [f"result {message['tool_call_id']}"]
            continue
        ids = ids_of(message)
        if not ids or answered:
            is_clear = len(set(open_ids)) == len(open_ids)
            problems += [f"call {i}" for i in open_ids if i not in answered and is_clear]
            open_ids, answered = [], set()
        open_ids += ids
    return problems


@given(wished())
def test_what_no_rule_touches_keeps_every_byte(given_: tuple[Conversation, Mapping[int, MessageMeta]]) -> None:
    turns = given_[0].turns
    found = ruled(*given_)

    assert found.conversation.system == given_[0].system
    for origin, turn in zip(found.origins, found.conversation.turns, strict=True):
        if origin != MADE and json.loads(turn.raw) == json.loads(turns[origin].raw):
            assert turn == turns[origin]


@given(wished())
def test_the_order_of_messages_is_kept_and_none_is_sent_twice(
    given_: tuple[Conversation, Mapping[int, MessageMeta]],
) -> None:
    origins = [origin for origin in ruled(*given_).origins if origin != MADE]

    assert all(before < behind for before, behind in pairwise(origins))


@given(wished())
def test_what_the_client_removes_is_not_sent_and_the_last_user_message_is(
    given_: tuple[Conversation, Mapping[int, MessageMeta]],
) -> None:
    before, metas = given_
    found = ruled(before, metas)

    removed = {index - len(before.system) for index, meta in metas.items() if not meta.is_sent}
    assert removed.isdisjoint(found.origins)
    if before.prompt and before.prompt[0].role == "user":
        assert found.conversation.prompt[0] == before.prompt[0]
        assert found.origins[len(found.conversation.history)] == len(before.history)
    else:
        assert found.conversation.history == ()


@given(wished())
def test_system_messages_and_those_of_no_known_form_are_sent_as_they_came_unless_the_client_says_otherwise(
    given_: tuple[Conversation, Mapping[int, MessageMeta]],
) -> None:
    before, metas = given_
    sent = dict(zip(ruled(before, metas).origins, bodies(ruled(before, metas).conversation), strict=True))

    for origin, message in enumerate(bodies(before)):
        is_odd = message["role"] not in ("user", "assistant", "tool") or "function_call" in message
        if is_odd and metas.get(origin + len(before.system), MessageMeta(0, Status.ACTIVE)).status is Status.ACTIVE:
            assert sent[origin] == message


@given(wished())
def test_the_rules_change_nothing_in_what_they_have_made(
    given_: tuple[Conversation, Mapping[int, MessageMeta]],
) -> None:
    once = ruled(*given_).conversation

    again = ruled(once, {})

    assert again.conversation == once
    assert again.edits == {}
    assert again.origins == tuple(range(len(once.history) + len(once.prompt)))


@given(wished())
def test_each_message_that_the_client_does_not_want_sent_counts_as_removed(
    given_: tuple[Conversation, Mapping[int, MessageMeta]],
) -> None:
    before, metas = given_
    edits = ruled(before, metas).edits

    unwanted = sum(meta.status in (Status.DELETED, Status.DETACHED) for meta in metas.values())
    empty = sum(entry_of(0, turn).is_empty for turn in before)
    assert unwanted <= edits.get(Edit.HISTORY_REMOVED, 0) <= unwanted + empty
    assert all(count > 0 for count in edits.values())


@given(st.lists(READABLE, max_size=14))
def test_in_a_broken_conversation_each_result_stands_behind_its_call_and_each_call_has_its_results(
    messages: list[Body],
) -> None:
    assert unmatched(bodies(ruled(conversation(messages), {}).conversation)) == []


@given(VALID, st.lists(st.sampled_from(Status), max_size=40))
def test_in_a_valid_conversation_that_is_shortened_each_call_keeps_its_results(
    messages: list[Body], statuses: list[Status]
) -> None:
    found = conversation([*messages, user("now?")])

    assert unmatched(bodies(ruled(found, metas_for(found, statuses)).conversation)) == []


@given(VALID)
def test_a_valid_conversation_of_which_the_client_says_nothing_is_sent_as_it_came(messages: list[Body]) -> None:
    found = conversation([*messages, user("now?")])

    assert ruled(found, {}) == RuledHistory(found, tuple(range(len(messages) + 1)), {})


@given(VALID, VALID)
def test_a_conversation_that_grows_by_turns_keeps_what_was_sent(first: list[Body], more: list[Body]) -> None:
    short = ruled(conversation([*first, user("now?")]), {}).conversation
    long = ruled(conversation([*first, user("now?"), *more, user("and now?")]), {}).conversation

    assert bodies(long)[: len(bodies(short))] == bodies(short)


@pytest.mark.parametrize("index", [-1, 2, 10**12])
def test_an_index_out_of_range_is_refused_and_named(index: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"message {index}, but there is none: the request has 2") as refusal:
        ruled(conversation([system("s"), user("q")]), {index: MessageMeta(index, Status.ACTIVE)})

    assert (refusal.value.param, refusal.value.code) == ("stratiform.messages_meta", "invalid_index")


def test_a_message_that_is_no_object_keeps_its_place_though_the_client_summarizes_it() -> None:
    found = Conversation.of([b"5", b'{"role":"user","content":"q"}'])

    assert ruled(found, {0: MessageMeta(0, Status.SUMMARIZED, "short")}).conversation == found


# What becomes of a message by its status.


@pytest.mark.parametrize(("status", "is_sent"), list(zip(Status, (True, True, False, False), strict=True)))
def test_a_message_is_sent_unless_it_is_deleted_or_detached(status: Status, is_sent: bool) -> None:
    assert MessageMeta(0, status).is_sent is is_sent
