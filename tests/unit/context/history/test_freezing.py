"""Properties of freezing, for conversations of any kind. Single cases stand in ``freezing.vectors``."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation, Turn
from proxy.context.history import DetachTerms, RuledHistory, chunk_text, frozen, ruled
from proxy.context.panels import HISTORY_KIND, Panel
from proxy.kit.modes import Edit
from proxy.protocol.wire.json_body import Unreadable
from tests.examples import for_every
from tests.talk import Body, as_parts, assistant, calling, result, said, system, text_part, user
from tests.turn_notation import IMAGE, noted, written

TERMS = st.builds(DetachTerms, *[st.integers(1, limit) for limit in (6, 30, 6, 30)])
ANSWERS = st.lists(
    st.one_of(
        st.just([assistant("see")]),
        st.lists(st.sampled_from("123"), min_size=1, unique=True).map(
            lambda ids: [calling(*ids, content="run"), *(result(i, "found") for i in ids)]
        ),
        st.just([system("hurry")]),
        st.just([user("also")]),
    ),
    max_size=3,
).map(lambda groups: [message for group in groups for message in group])
TURNS = st.lists(ANSWERS, max_size=12).map(lambda answers: [[user("do"), *answer] for answer in answers])
PIECES = st.lists(
    st.sampled_from(
        [
            [user("a")], [user("b"), assistant("c")], [assistant("d")], [calling("1", content="e")],
            [calling("2", content="f"), result("2", "r")], [result("1", "r")], [system("s")],
        ]
    ),
    max_size=25,
)  # fmt: skip
ODD = st.sampled_from(
    [
        user([IMAGE]),
        said("narrator", "x"),
        said("user", [{"type": "tool_result", "tool_use_id": "1"}]),
        assistant(None, function_call={"name": "run"}),
    ]
)
BROKEN = st.builds(
    lambda pieces, odd, at: of([*pieces[:at], odd, *pieces[at:]]), PIECES, st.lists(ODD, max_size=1), st.integers(0, 25)
)
STEP = [calling("9"), result("9", "found")]
LOOPS = st.lists(st.sampled_from([STEP, as_parts(*STEP), [assistant("see")]]), max_size=12)


def of(turns: Sequence[Sequence[Body]]) -> list[Body]:
    """The messages of the turns, and a question."""
    return [*(message for turn in turns for message in turn), user("and now?")]


TALKS = st.builds(
    lambda talk, loop: [*talk, *(message for step in loop for message in step)],
    st.one_of(TURNS.map(of), BROKEN),
    st.one_of(st.just([]), LOOPS),
)


def numbered(messages: Sequence[Body]) -> Conversation:
    """The conversation, with a number in each content that is a text, so that each message is another."""
    found = []
    for number, message in enumerate(messages):
        content = message.get("content")
        found.append({**message, "content": f"{content}-{number}-"} if isinstance(content, str) else message)
    return Conversation.of(map(written, found))


def tokens(turn: Turn) -> int:
    return len(turn.raw) // 16


def count_of(chunk: Panel) -> int:
    return int(chunk.header.removeprefix("Chat (").removesuffix(")"))


def froze(conversation: Conversation, terms: DetachTerms) -> tuple[RuledHistory, tuple[Panel, ...]]:
    return frozen(ruled(conversation, {}), terms, tokens)


def parsed(turns: Sequence[Turn]) -> list[Any]:
    return [json.loads(turn.raw) for turn in turns]


def spoken(turns: Sequence[Turn]) -> list[Turn]:
    return [turn for turn in turns if not turn.is_system]


@given(TURNS, TERMS)
def test_for_each_shorter_conversation_the_first_chunks_are_the_same(
    turns: list[list[Body]], terms: DetachTerms
) -> None:
    messages = of(turns)
    _, last = froze(numbered(messages), terms)

    for length in range(len(messages)):
        _, chunks = froze(numbered(messages[:length]), terms)
        assert last[: len(chunks)] == chunks


@given(BROKEN, BROKEN, TERMS)
def test_chunks_of_a_broken_conversation_do_not_change_with_another_question(
    first: list[Body], more: list[Body], terms: DetachTerms
) -> None:
    _, short = froze(numbered(first), terms)
    _, long = froze(numbered([*first, *more]), terms)

    assert long[: len(short)] == short


@given(TALKS, TERMS)
def test_each_message_is_live_or_in_one_chunk(messages: list[Body], terms: DetachTerms) -> None:
    before = ruled(numbered(messages), {})
    found, chunks = frozen(before, terms, tokens)

    texts = "".join(chunk.content for chunk in chunks)
    live = Counter(found.conversation)
    gone = [turn for turn in before.conversation if turn not in live]
    assert not live - Counter(before.conversation)
    assert len(gone) == sum(map(count_of, chunks)) == found.edits.get(Edit.HISTORY_FROZEN, 0)
    for message in parsed(gone):
        if isinstance(message["content"], str):
            assert texts.count(message["content"]) == 1
    calls = sum(len(message.get("tool_calls") or ()) for message in parsed(gone))
    assert texts.count('tool_call run({"x":1})') == calls


@given(TALKS, TERMS)
def test_the_minimums_are_kept(messages: list[Body], terms: DetachTerms) -> None:
    before = ruled(numbered(messages), {})
    found, chunks = frozen(before, terms, tokens)

    turns = spoken(before.conversation.turns)
    start = 0
    for chunk in chunks:
        part = turns[start : start + count_of(chunk)]
        start += count_of(chunk)
        assert count_of(chunk) >= terms.chunk_messages
        assert sum(map(tokens, part)) >= terms.chunk_tokens
    left = spoken(found.conversation.turns)
    if chunks:
        assert left == turns[start:]
        assert len(left) >= terms.keep_messages
        assert sum(map(tokens, left)) >= terms.keep_tokens


def tool_ids(messages: list[Body]) -> tuple[Counter[str], Counter[str]]:
    """How often tools are called under each id, and how often they answer under it."""
    calls = Counter(call["id"] for message in messages for call in message.get("tool_calls") or ())
    return calls, Counter(message["tool_call_id"] for message in messages if message["role"] == "tool")


@given(TALKS, TERMS)
def test_no_tool_group_is_split_and_what_stays_begins_with_a_user_message(
    messages: list[Body], terms: DetachTerms
) -> None:
    before = ruled(numbered(messages), {})
    found, chunks = frozen(before, terms, tokens)

    if chunks:
        left = spoken(found.conversation.turns)
        assert left[0].role == "user"
        turns = spoken(before.conversation.turns)
        calls, results = tool_ids(parsed(turns[: len(turns) - len(left)]))
        assert calls.keys() == results.keys()
        # Of two neighbouring calls of one id nobody knows which is answered: both go as they came. So does a second
        # answer to one call.
        all_calls, all_results = tool_ids(parsed(turns))
        assert results <= calls or not all_results <= all_calls
    assert ruled(found.conversation, {}).edits == {}


@given(TALKS, TERMS)
def test_the_prompt_and_the_system_messages_stay_in_their_order(messages: list[Body], terms: DetachTerms) -> None:
    before = ruled(numbered(messages), {})
    found, _ = frozen(before, terms, tokens)

    assert found.conversation.prompt == before.conversation.prompt
    assert found.conversation.system == before.conversation.system
    assert [t for t in found.conversation if t.is_system] == [t for t in before.conversation if t.is_system]
    assert len(found.origins) == len(found.conversation.history) + len(found.conversation.prompt)
    own = dict(zip(before.origins, before.conversation.turns, strict=True))
    behind = zip(found.origins, found.conversation.turns, strict=True)
    assert all(own[origin] == turn for origin, turn in behind if origin >= 0)
    assert list(found.origins) == [origin for origin in before.origins if origin in set(found.origins)]


def test_panels_of_the_history_are_numbered_and_of_their_kind() -> None:
    _, chunks = froze(noted("3x{user asst} user"), DetachTerms(1, 1, 1, 1))

    assert [(chunk.id, chunk.kind, chunk.header) for chunk in chunks] == [
        ("history_1", HISTORY_KIND, "Chat (2)"),
        ("history_2", HISTORY_KIND, "Chat (2)"),
        ("history_3", HISTORY_KIND, "Chat (2)"),
    ]


def test_each_message_is_counted_once_and_none_where_there_are_too_few() -> None:
    counted: list[Turn] = []

    def count(turn: Turn) -> int:
        counted.append(turn)
        return 1

    frozen(ruled(noted("sys 4x{user asst} user"), {}), DetachTerms(5, 1, 5, 1), count)
    assert counted == []

    frozen(
        ruled(numbered([system("s"), *([user("a"), assistant("b")] * 5), user("c")]), {}),
        DetachTerms(1, 1, 1, 1),
        count,
    )
    assert len(counted) == len(set(counted)) == 11


# How messages read in a frozen chunk. Most cases stand in ``freezing.vectors``.


def text_of(*messages: Body) -> str:
    return chunk_text(Conversation.of(map(written, messages)))


@for_every(
    [
        (user("a\nb\ud83d"), "[user]: a\nb\ud83d\n"),
        (user("a", name="bob"), "[user bob]: a\n"),
        (user([text_part("a"), text_part(""), text_part("b")]), "[user]: a\nb\n"),
        (assistant(None, refusal="no"), "[assistant]: no\n"),
        (assistant("", refusal="no"), "[assistant]: no\n"),
        (assistant([{"type": "refusal", "refusal": "no"}]), "[assistant]: no\n"),
        (assistant([{"type": "thinking", "thinking": "hm"}, text_part("a")]), "[assistant]: a\n"),
        (assistant("a", reasoning_content="hm"), "[assistant]: a\n"),
        (assistant(None, reasoning_content="hm"), "[assistant]: \n"),
        (system("s"), ""),
    ]
)
def test_a_message_reads_as_its_role_and_texts(message: Body, text: str) -> None:
    assert text_of(message) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"id": "1", "function": {"name": "run", "arguments": '{"a": 1}'}}, 'tool_call run({"a": 1})'),
        ({"id": "1", "function": {"name": "run", "arguments": "no json"}}, "tool_call run(no json)"),
        ({"id": "1", "function": {"name": "run", "arguments": ""}}, "tool_call run({})"),
        ({"id": "1", "function": {"name": "run", "arguments": None}}, "tool_call run({})"),
        ({"id": "1", "function": {"name": "run"}}, "tool_call run({})"),
        ({"id": "1", "type": "custom", "custom": {"name": "run", "input": "a b"}}, "tool_call run(a b)"),
    ],
)
def test_a_call_reads_as_its_name_and_arguments(call: Body, text: str) -> None:
    assert text_of({"role": "assistant", "tool_calls": [call]}, result("1", "r")) == f"{text}\nr\n"


@for_every(
    [
        [user([IMAGE])],
        [user([{"type": "input_audio"}])],
        [user([{"type": "file", "file": {}}])],
        [user([{"type": "text", "text": 5}])],
        [user("a", name=5)],
        [assistant("a", audio={"id": "x"})],
        [assistant("a", refusal={"no": 1})],
        [said("narrator", "a")],
        [assistant(None, function_call={"name": "run"})],
        [calling("1"), result("1", [IMAGE])],
        [calling("1")],
        [result("1", "r")],
        [calling("1", "2"), result("1", "r")],
        [calling("1"), user("a"), result("1", "r")],
        [calling("1"), result("1", "r"), result("2", "r")],
    ]
)
def test_what_is_no_text_or_not_whole_cannot_be_frozen(messages: list[Body]) -> None:
    with pytest.raises(Unreadable):
        text_of(*messages)


@for_every(
    [
        {},
        {"function": "run"},
        {"function": {"arguments": "{}"}},
        {"function": {"name": 5}},
        {"function": {"name": "a", "arguments": [1]}},
        {"function": {"name": "a", "arguments": {"b": 1}}},
        {"custom": {"name": "a", "input": 5}},
        {"server": {"name": "a"}},
    ]
)
def test_a_call_of_no_known_form_cannot_be_frozen(call: Body) -> None:
    with pytest.raises(Unreadable):
        text_of({"role": "assistant", "tool_calls": [{"id": "1", **call}]}, result("1", "r"))


def test_calls_of_the_same_id_in_two_turns_read_one_behind_the_other() -> None:
    assert text_of(calling("1"), result("1", "a"), calling("1"), result("1", "b")).count("tool_call") == 2
