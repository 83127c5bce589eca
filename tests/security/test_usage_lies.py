"""What a provider says of its usage never lowers what a team has spent, and never stops the proxy.

Each row is a usage that an upstream, or who stands in for it, may report. Whatever it is, the entry costs no less than
nothing and what was spent before stays spent; where it can be no usage at all, the answer is billed by an estimate.
"""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.examples import sampled
from tests.security.provider import Answer, Seen, event
from tests.security.world import World, chat

CHAT = "/v1/chat/completions"

LIES: dict[str, str] = {
    "none at all": "null",
    "an empty object": "{}",
    "negative tokens": '{"prompt_tokens": -1000000, "completion_tokens": -1000000, "total_tokens": -2000000}',
    "negative output": '{"prompt_tokens": 5, "completion_tokens": -1000000}',
    "a negative total": '{"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": -99999}',
    "more cached than there were": '{"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1000000}}',
    "negative cached": '{"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1000000}}',
    "negative written": '{"prompt_tokens": 5, "completion_tokens": 5, "cache_creation_input_tokens": -1000000}',
    "negative read": '{"prompt_tokens": 5, "completion_tokens": 5, "cache_read_input_tokens": -1000000}',
    "NaN": '{"prompt_tokens": NaN, "completion_tokens": NaN}',
    "infinity": '{"prompt_tokens": Infinity, "completion_tokens": -Infinity}',
    "1e400": '{"prompt_tokens": 1e400, "completion_tokens": 5}',
    "floats": '{"prompt_tokens": 5.5, "completion_tokens": 2.5}',
    "texts": '{"prompt_tokens": "5", "completion_tokens": "many"}',
    "booleans": '{"prompt_tokens": true, "completion_tokens": false}',
    "lists": '{"prompt_tokens": [5], "completion_tokens": {"n": 5}}',
    "a list": "[1, 2, 3]",
    "a number": "7",
    "a text": '"free of charge"',
    "an integer beyond 64 bits": '{"prompt_tokens": 99999999999999999999999999, "completion_tokens": 5}',
    "an integer of 5000 digits": '{"prompt_tokens": ' + "9" * 5000 + ', "completion_tokens": 5}',
    "zero for a long prompt": '{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}',
    "details of another type": '{"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": "none"}',
    "a cost of its own": '{"prompt_tokens": 5, "completion_tokens": 5, "cost": -100, "total_cost": -100}',
    "a NUL in a name": '{"prompt_tokens\\u0000": 5, "completion_tokens": 5}',
    "contradictory names": '{"prompt_tokens": 5, "input_tokens": -5, "completion_tokens": 5, "output_tokens": -5}',
    "members twice": '{"prompt_tokens": 5, "prompt_tokens": -5, "completion_tokens": 5, "completion_tokens": -5}',
}  # fmt: skip


def whole(usage: str) -> bytes:
    """An answer with this usage."""
    said = json.dumps([{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}])
    return f'{{"id":"c","object":"chat.completion","choices":{said},"usage":{usage}}}'.encode()


def streamed(*usages: str) -> Iterable[bytes]:
    """A stream that reports these one behind the other."""
    yield event({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Yes."}}]})
    for usage in usages:
        yield f'data: {{"id":"c","choices":[],"usage":{usage}}}\n\n'.encode()
    yield b"data: [DONE]\n\n"


def check_nothing_was_given_back(world: World, before: float, requests: int) -> None:
    entries = world.ledger("team-a")
    assert all(entry.cost >= 0 for entry in entries)
    assert min(entry.output_tokens for entry in entries) >= 0
    assert min(entry.plain_tokens + entry.read_tokens for entry in entries) >= 0
    assert world.spent("team-a") >= before
    assert len(entries) == requests + 1
    assert "Traceback" not in world.log


@pytest.mark.parametrize("usage", sampled(LIES.values(), 3), ids=LIES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_lie_about_usage_costs_no_less_than_nothing(world: World, usage: str, stream: bool) -> None:
    before, requests = world.spent("team-a"), len(world.ledger("team-a"))

    def script(seen: Seen) -> Answer:
        if stream:
            return Answer(body=streamed(usage), headers=[("content-type", "text/event-stream")])
        return Answer(body=whole(usage))

    world.providers["alpha"].script = script
    reply = world.call("POST", CHAT, chat("cheap", "word " * 200, stream=stream))
    assert reply.status == 200
    booked = world.ledger("team-a")[-1]
    assert booked.plain_tokens + booked.read_tokens + booked.write_5m_tokens > 0, "no prompt is empty"
    assert booked.output_tokens > 0, "an answer came"
    check_nothing_was_given_back(world, before, requests)


HIGH = '{"prompt_tokens": 1000, "completion_tokens": 1000}'
SEVERAL: dict[str, list[str]] = {
    "a high one, then zero": [HIGH, '{"prompt_tokens": 0, "completion_tokens": 0}'],
    "a high one, then negative": [HIGH, '{"prompt_tokens": -9, "completion_tokens": -9}'],
    "a hundred": ['{"prompt_tokens": 5, "completion_tokens": 5}'] * 100,
}  # fmt: skip


@pytest.mark.parametrize("usages", SEVERAL.values(), ids=SEVERAL)
def test_several_reports_in_one_stream_are_one_bill(world: World, usages: list[str]) -> None:
    before, requests = world.spent("team-a"), len(world.ledger("team-a"))
    world.providers["alpha"].script = lambda seen: Answer(
        body=streamed(*usages), headers=[("content-type", "text/event-stream")]
    )
    assert world.call("POST", CHAT, chat("cheap", stream=True)).status == 200
    check_nothing_was_given_back(world, before, requests)


ENDPOINTS = {
    "completions": ("/v1/completions", {"prompt": "x"}, '{"prompt_tokens": -50, "completion_tokens": -50}'),
    "embeddings": ("/v1/embeddings", {"input": "x"}, '{"prompt_tokens": -50, "total_tokens": -50}'),
    "responses": ("/v1/responses", {"input": "x"}, '{"input_tokens": -50, "output_tokens": -50}'),
    "messages": ("/v1/messages", {"messages": [], "max_tokens": 5}, '{"input_tokens": -5, "output_tokens": -5}'),
}


@pytest.mark.parametrize(("path", "more", "usage"), ENDPOINTS.values(), ids=ENDPOINTS)
def test_a_lie_costs_no_less_on_every_path_that_asks_a_model(
    world: World, path: str, more: dict[str, Any], usage: str
) -> None:
    before, requests = world.spent("team-a"), len(world.ledger("team-a"))
    world.providers["alpha"].script = lambda seen: Answer(body=whole(usage))
    assert world.call("POST", path, {"model": "cheap", **more}).status == 200
    check_nothing_was_given_back(world, before, requests)


def test_a_hard_budget_is_not_opened_again_by_lies(world: World) -> None:
    """A team that has reached its budget stays there, whatever its provider says of later answers."""
    lie = whole('{"prompt_tokens": -100000000, "completion_tokens": -100000000}')
    truth = whole('{"prompt_tokens": 5000, "completion_tokens": 4000}')
    answers = iter([truth, lie] * 20)
    world.providers["alpha"].script = lambda seen: Answer(body=next(answers))
    statuses = [world.call("POST", CHAT, chat("cheap", max_tokens=1000), key="tight").status for _ in range(20)]
    assert 429 in statuses
    assert set(statuses[statuses.index(429) :]) == {429}


SAID = "word " * 400  # 400 tokens; the estimate of a text may be off by a tenth
EARLY = {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001}
CHUNK = event({"id": "c", "choices": [{"index": 0, "delta": {"content": SAID}}]})
STARTED = event({"id": "c", "choices": [{"index": 0, "delta": {"content": "Yes."}}], "usage": EARLY})
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAID}}
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}
FORMS = {"responses": {"input": "x"}, "messages": {"messages": [], "max_tokens": 500}, "chat/completions": {}}
PARTS: dict[str, tuple[str, list[bytes], int]] = {
    "an error behind a running usage": (
        "chat/completions", [STARTED, CHUNK, event({"error": {"message": "broke", "code": 500}})], 360),
    "an error without a member of that name": (
        "responses", [event({"type": "response.output_text.delta", "delta": SAID}),
                      event({"type": "error", "code": "server_error", "message": "broke"}, "error")], 360),
    "an error behind an early report": (
        "messages", [event({"type": "message_start", "message": {"usage": {"input_tokens": 1000}}}),
                     event({"type": "message_delta", "usage": {"output_tokens": 1}}), event(DELTA),
                     event({"type": "error", "error": OVERLOADED}, "error")], 360),
    "a body that calls itself events": (
        "chat/completions", [b'{"choices": [{"message": {"content": "%b"}}]}' % SAID.encode()], 360),
    "no event at all": ("chat/completions", [], 0),
    "comments alone": ("messages", [b": ping\n\n"], 0),
}  # fmt: skip


@pytest.mark.parametrize(("path", "parts", "tokens"), PARTS.values(), ids=PARTS)
def test_what_came_of_a_stream_without_its_whole_usage_is_booked(
    world: World, path: str, parts: list[bytes], tokens: int
) -> None:
    requests = len(world.ledger("team-a"))
    world.providers["alpha"].script = lambda seen: Answer(
        body=iter(parts), headers=[("content-type", "text/event-stream")]
    )
    asked = {**chat("cheap", max_tokens=1000), "stream": True} | FORMS[path]
    assert world.call("POST", f"/v1/{path}", asked | {"model": "cheap"}).status == 200
    *before, booked = world.ledger("team-a")
    assert len(before) == requests
    assert booked.plain_tokens > 0
    assert booked.output_tokens >= tokens
    assert booked.estimated


@pytest.mark.parametrize(("path", "more"), FORMS.items(), ids=FORMS)
def test_an_answer_without_a_byte_is_booked(world: World, path: str, more: dict[str, Any]) -> None:
    requests = len(world.ledger("team-a"))
    world.providers["alpha"].script = lambda seen: Answer(body=b"")
    assert world.call("POST", f"/v1/{path}", chat("cheap") | more).status == 200
    *before, booked = world.ledger("team-a")
    assert len(before) == requests
    assert booked.plain_tokens > 0
