"""What is read beside the event loop before a request is planned."""

import asyncio
from collections.abc import Sequence

import orjson

from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.planner_port import read_ahead
from tests.windows import Watched

MANY = [f"message {number}" for number in range(1_200)]


def read(*requests: Sequence[str]) -> tuple[int, int]:
    """How many of these requests are read beside the event loop, and how many messages of the last one are not read
    yet."""

    async def each() -> tuple[int, int]:
        reader, aside, unread = RequestReader(bytes_over_four, (), 1 << 26), Watched(), 0
        for texts in requests:
            messages = [{"role": "user", "content": text} for text in texts]
            parsed = reader.parse(orjson.dumps({"model": "m", "messages": messages}))
            await read_ahead(reader, aside, parsed)
            unread = len(reader.messages.unread(parsed.unread()))
        aside.close()
        return len(aside.sizes), unread

    return asyncio.run(each())


def test_many_small_messages_are_read_beside_the_event_loop() -> None:
    assert read(MANY) == (1, 0)


def test_a_few_small_messages_are_left_to_the_planner() -> None:
    assert read(MANY[:50]) == (0, 50)


def test_one_long_message_is_read_beside_the_event_loop() -> None:
    assert read(["word " * 100_000]) == (1, 0)


def test_known_messages_are_not_read_beside_the_event_loop_again() -> None:
    assert read(MANY, [*MANY, "and one more"]) == (1, 1)
