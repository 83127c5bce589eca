"""Where the conversation stands, and where something may be put without parting a call from its results."""

from proxy.context import Turn
from proxy.context.panels import Progress, message_digest
from tests.contexts import conversation_of
from tests.examples import for_every
from tests.talk import MARK, Body, assistant, calling, result, system, text_part, user

LOOP = [user("u"), calling("a", "b"), result("a", "x"), result("b", "y")]
PARTS = user([{"type": "tool_result", "tool_use_id": "a", "content": "x"}])


def progress(*messages: Body, has_thinking: bool = False) -> Progress:
    return Progress.of(conversation_of(system("s"), *messages), has_thinking=has_thinking)


def test_system_messages_do_not_count() -> None:
    assert progress(user("u")).digests == Progress.of(conversation_of(user("u"))).digests


@for_every(
    [
        ([user("u")], False, 0),
        ([user("u"), assistant("a"), user("v")], False, 2),
        (LOOP, False, 4),
        (LOOP, True, 0),
        ([*LOOP, user("v")], False, 4),
        ([*LOOP, assistant("and so")], False, 0),
        ([], False, 0),
        ([assistant("a")], False, 0),
        ([user("u"), calling("a"), PARTS], False, 3),
        ([user("u"), calling("a"), PARTS], True, 0),
        ([result("a", "x"), PARTS, assistant("a")], False, 2),
    ]
)
def test_what_is_new_stands_here(messages: list[Body], has_thinking: bool, now_at: int) -> None:
    assert progress(*messages, has_thinking=has_thinking).now_at == now_at


def test_results_have_nothing_in_front_of_them() -> None:
    assert list(progress(*LOOP, assistant("a")).outside) == [0, 1, 4, 4, 4, 5]
    assert list(progress(result("a", "x"), user("u"), PARTS).outside) == [1, 1, 3, 3]


def test_the_prompt_is_the_last_message_of_a_user_that_is_no_result() -> None:
    assert progress(user("u"), calling("a"), PARTS).prompt_at == 0
    assert progress(calling("a"), PARTS).prompt_at is None
    assert progress().prompt_at is None
    assert progress(user("u"), user("v")).is_prompt_last
    assert not progress(user("u"), assistant("a")).is_prompt_last
    assert not progress().is_prompt_last


def test_a_marker_that_moves_changes_no_message() -> None:
    marked = progress(user([text_part("u", **MARK)]), assistant("a"))
    assert marked.digests == progress(user([text_part("u")]), assistant("a")).digests
    assert marked.digests == progress(user("u"), assistant("a")).digests
    assert marked.digests != progress(user([text_part("v", **MARK)]), assistant("a")).digests


def test_spaces_and_the_order_of_members_make_no_other_message() -> None:
    one = message_digest(Turn.of(b'{"role": "user", "content": [{"type": "text", "text": "u"}], "cache_control": {}}'))
    assert one == message_digest(Turn.of(b'{"content":"u","role":"user"}'))


@for_every(
    [
        b'{"role":"user","content":"u","name":"n"}',
        b'{"role":"assistant","content":"u"}',
        b'{"role":"user","content":["u"]}',
        b'{"role":"user","content":[{"type":"text","text":"u","more":1}]}',
        b'{"role":"user","content":[{"type":"image","text":"u"}]}',
        b'{"role":"user","content":[{"type":"text","text":"u"},{"type":"text","text":""}]}',
        b'{"role":"user","content":null}',
        b'{"role":"user"}',
        b'"u"',
        b"[",
        b"",
    ]
)
def test_what_says_something_else_is_another_message(other: bytes) -> None:
    assert message_digest(Turn.of(other)) != message_digest(Turn.of(b'{"role":"user","content":"u"}'))


def test_a_text_about_results_is_no_result() -> None:
    assert progress(user('what is a "tool_result"?')).prompt_at == 0
