"""Tokens are counted as the encoder counts them, once a text, and in a bounded memory."""

import json

from proxy.prompts.window import ExactTokens
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, quick
from proxy.services import local_encode
from tests.talk import calling, result, system, text_part, tool, user
from tests.windows import Body


class Counting:
    """An encoder that says how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        return len(text)


def read(messages: list[Body], **members: object) -> tuple[RequestReader, bytes]:
    reader = RequestReader(quick(local_encode()), (), 1 << 22)
    return reader, json.dumps({"model": "m", "messages": messages, **members}).encode()


def test_a_message_has_the_tokens_of_its_texts_and_of_its_frame() -> None:
    encode = local_encode()
    repetitive = "def f(x):\n" * 2_000
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    messages = [system(repetitive), user([text_part(repetitive), image]), calling("c"), result("c", repetitive)]
    reader, body = read(messages)
    exact = ExactTokens(encode, capacity=100)
    found = [exact.of_message(message) for message in reader.read(reader.parse(body)).messages]
    own = encode(repetitive) + MESSAGE_OVERHEAD_TOKENS
    call = json.dumps(messages[2]["tool_calls"][0])
    assert found == [own, own + IMAGE_TOKENS, encode(call), own]


def test_tools_have_the_tokens_of_their_json() -> None:
    tools = [tool("a", description="b " * 400), tool("c")]
    reader, body = read([user("q")], tools=tools)
    parsed = reader.parse(body)
    raw = parsed.members["tools"]
    elements = reader.tools.read(raw)
    counting = Counting()
    exact = ExactTokens(counting, capacity=100)
    expected = sum(len(json.dumps(each)) for each in tools)
    assert [exact.of_tools(raw, elements) for _ in range(2)] == [expected] * 2
    assert counting.calls == 2
    assert exact.of_tools(None, ()) == 0


def test_each_text_is_counted_once_and_a_short_one_is_not_remembered() -> None:
    counting = Counting()
    exact = ExactTokens(counting, capacity=100)
    assert [exact.of_text("x" * 257) for _ in range(3)] == [257] * 3
    assert counting.calls == 1
    assert [exact.of_text("x" * 256) for _ in range(3)] == [256] * 3
    assert counting.calls == 4
    raw = json.dumps(user("y" * 300)).encode()
    assert [exact.of_written(raw) for _ in range(3)] == [300 + MESSAGE_OVERHEAD_TOKENS] * 3
    assert counting.calls == 5


def test_a_fork_knows_what_was_counted_and_hands_back_what_it_counts() -> None:
    counting = Counting()
    exact = ExactTokens(counting, capacity=100)
    exact.of_text("x" * 300)
    fork = exact.fork()
    fork.of_text("x" * 300)
    assert counting.calls == 1
    fork.of_text("y" * 300)
    exact.merge(fork)
    exact.of_text("y" * 300)
    assert counting.calls == 2


def test_only_so_many_counts_are_remembered_the_least_recently_used_goes_first() -> None:
    counting = Counting()
    exact = ExactTokens(counting, capacity=2)
    texts = [letter * 300 for letter in "abc"]
    exact.of_text(texts[0])
    exact.of_text(texts[1])
    exact.of_text(texts[0])
    exact.of_text(texts[2])
    assert counting.calls == 3
    exact.of_text(texts[0])
    assert counting.calls == 3
    exact.of_text(texts[1])
    assert counting.calls == 4


def test_messages_that_were_counted_are_known() -> None:
    reader, body = read([user("a"), user("b")])
    messages = reader.read(reader.parse(body)).messages
    exact = ExactTokens(Counting(), capacity=10)
    exact.of_message(messages[1])
    assert [exact.known(message.digest) for message in messages] == [None, 1 + MESSAGE_OVERHEAD_TOKENS]
