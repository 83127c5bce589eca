from proxy.core.request.transcript import Transcript, head_digest, tokens_from, user_turns
from tests.fidelity.chats import File
from tests.talk import Body, assistant, calling, lines, read, result, shown, system, user

HEAD, A, B = system("Be kind."), user("a"), user("b")


def turns(*messages: Body, start: bytes = b"s", without: frozenset[int] = frozenset()) -> list[tuple[int, bytes]]:
    """The user's turns of these messages."""
    return user_turns(start, Transcript(read(messages)), without)


def keys(*messages: Body) -> list[bytes]:
    """Their keys alone."""
    return [key for _, key in turns(*messages)]


def test_a_turn_has_the_same_key_when_the_conversation_goes_on() -> None:
    first, second = [HEAD, A], [HEAD, A, assistant("ok"), B]
    assert [index for index, _ in turns(*second)] == [1, 3]
    assert keys(*second)[:1] == keys(*first)


def test_another_answer_or_an_earlier_turn_that_changed_makes_another_key() -> None:
    found = {keys(HEAD, user(first), assistant(answer), B)[1] for first in "ax" for answer in ("ok", "no")}
    assert len(found) == 4


def test_equal_turns_have_keys_of_their_own() -> None:
    assert len(set(keys(HEAD, A, assistant("ok"), A, assistant("ok"), A, assistant("ok"), A))) == 4


def test_whose_it_is_makes_another_key() -> None:
    assert turns(HEAD, A) != turns(HEAD, A, start=b"other")


def test_instructions_and_context_do_not_count() -> None:
    plain = keys(HEAD, A, assistant("ok"), B)
    assert keys(system("other"), *shown(File("a.py", lines(9))), A, assistant("ok"), B) == plain


def test_messages_of_the_proxys_own_do_not_count() -> None:
    panel = [calling("p"), result("p", "shown")]
    messages = [HEAD, A, *panel, assistant("ok"), B]
    assert turns(*messages, without=frozenset({2, 3}))[1][1] == keys(HEAD, A, assistant("ok"), B)[1]


def behind(*messages: Body, message: int, caches_output: bool = False, without: frozenset[int] = frozenset()) -> int:
    """The tokens from a message on."""
    transcript = Transcript(read(messages))
    return tokens_from(transcript, user_turns(b"s", transcript), without, message, caches_output=caches_output)


def test_the_tokens_of_the_request_before_end_in_front_of_its_answer() -> None:
    messages = [HEAD, A, calling("1"), result("1", lines(20)), assistant("done"), B]
    counts = [message.tokens for message in read(messages)]
    assert behind(*messages, message=1) == sum(counts[1:4])
    assert behind(*messages, message=1, caches_output=True) == sum(counts[1:5])
    assert behind(*messages, message=1, without=frozenset({3})) == sum(counts[1:3])


def test_context_that_stands_between_turns_does_not_count() -> None:
    messages = [HEAD, A, assistant("ok"), *shown(File("a.py", lines(50))), B]
    counts = [message.tokens for message in read(messages)]
    assert behind(*messages, message=1, caches_output=True) == sum(counts[1:3])


def head(*messages: Body, tools: bytes | None = None) -> bytes:
    """The digest of what stands in front."""
    return head_digest(Transcript(read(messages)), tools)


def test_the_head_is_another_with_other_instructions_or_tools_and_not_with_another_time() -> None:
    now, then = (system(f"{lines(5)}Current time: 2026-01-01 10:0{n}:00\n{lines(5)}") for n in (1, 2))
    assert head(now, A) == head(then, A, B)
    assert len({head(now, A), head(HEAD, A), head(HEAD, A, tools=b"[]"), head(A)}) == 4
