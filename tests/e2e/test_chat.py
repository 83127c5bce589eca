"""Chat completions with the real SDK: what the client meant arrives, what the provider said comes back."""

import base64
from typing import Any, Literal

import pydantic
import pytest

from proxy.engine.exchange import ExchangeOutcome
from tests.doubles import PassthroughPlanner, serving
from tests.e2e.conftest import Start
from tests.e2e.provider import (
    DONE,
    Scripted,
    chunk,
    completion,
    embedded_app,
    new_embedded,
    replies,
    streams,
    usage_chunk,
)

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("read_file", "list_files")
]


def test_a_completion_of_the_embedded_provider(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()))
    answer = proxy.client.chat.completions.with_raw_response.create(model="m", messages=HELLO)
    found = answer.parse()
    assert found.choices[0].message.content
    assert found.usage is not None
    (exchange,) = proxy.ledger.wait()
    assert exchange.answer.outcome.usage is not None
    assert (exchange.answer.outcome.usage.prompt, exchange.answer.outcome.usage.output) == (
        found.usage.prompt_tokens,
        found.usage.completion_tokens,
    )
    assert answer.headers["x-stratiform-id"] == exchange.arrival.id
    assert answer.headers["x-request-id"].startswith("req_")
    assert exchange.ending is ExchangeOutcome.COMPLETED


def test_an_answer_has_the_same_words_streamed_or_not(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()))
    whole = proxy.client.chat.completions.create(model="m", messages=HELLO).choices[0].message.content
    with proxy.client.chat.completions.create(model="m", messages=HELLO, stream=True) as stream:
        parts = list(stream)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole
    assert all(part.usage is None for part in parts)
    assert parts[-1].choices[0].finish_reason == "stop"
    streamed = proxy.ledger.wait(2)[1]
    assert streamed.answer.outcome.usage is not None
    assert streamed.answer.outcome.usage.output > 0


@pytest.mark.parametrize(
    "request_fields",
    [
        {"messages": HELLO, "temperature": 0.10, "seed": 7, "user": "ü-user"},
        {"messages": HELLO, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": True},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what is this?"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"\x89PNG" * 50).decode()},
                        },
                    ],
                }
            ]
        },
        {"messages": [{"role": "user", "content": "𝄞 naïve \u2028 \x7f \u0000 日本語 \\ud83d 👩‍👩‍👧"}]},
        {"messages": HELLO, "extra_body": {"provider": {"order": ["a"]}, "top_k": 40, "nested": {"x": [1.0, 1e-7]}}},
    ],
)
def test_in_passthrough_the_provider_gets_the_clients_bytes(start: Start, request_fields: dict[str, Any]) -> None:
    direct, behind = Scripted(replies(completion())), Scripted(replies(completion()))
    proxy = start(behind, planner=PassthroughPlanner())
    with serving(direct) as url, proxy.other_client(base_url=f"{url}/v1") as client:
        straight = client.chat.completions.with_raw_response.create(model="m", **request_fields)
    through = proxy.client.chat.completions.with_raw_response.create(model="m", **request_fields)
    assert behind.seen[0].body == direct.seen[0].body
    assert through.http_response.content == straight.http_response.content
    ours = {"host", "accept-encoding", "connection", "content-length", "x-request-id"}
    sent, got = ({k: v for k, v in s.headers if k not in ours} for s in (direct.seen[0], behind.seen[0]))
    assert got == sent


def test_parallel_tool_calls_and_their_results(start: Start) -> None:
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": '{"path": "a b"}'}}
        for i, name in enumerate(("read_file", "list_files"))
    ]
    provider = Scripted(
        replies(completion({"content": None, "tool_calls": calls}, "tool_calls")), replies(completion())
    )
    proxy = start(provider)
    message = proxy.client.chat.completions.create(model="m", messages=HELLO, tools=TOOLS).choices[0].message
    assert message.tool_calls is not None
    assert [call.id for call in message.tool_calls] == ["call_0", "call_1"]
    results: list[Any] = [{"role": "tool", "tool_call_id": call.id, "content": call.id} for call in message.tool_calls]
    history: list[Any] = [*HELLO, message.model_dump(exclude_none=True), *results]
    proxy.client.chat.completions.create(model="m", messages=history, tools=TOOLS)
    sent = provider.seen[1].json
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [m["tool_call_id"] for m in sent["messages"][2:]] == ["call_0", "call_1"]
    assert [t["function"]["name"] for t in sent["tools"]] == ["read_file", "list_files"]


def test_streamed_tool_calls_keep_their_pieces(start: Start) -> None:
    def piece(index: int, **function: str) -> bytes:
        return chunk(tool_calls=[{"index": index, "id": f"call_{index}", "type": "function", "function": function}])

    pieces = [
        chunk(role="assistant"), piece(0, name="read_file", arguments=""), piece(0, arguments='{"pa'),
        piece(0, arguments='th": 1}'), piece(1, name="list_files", arguments="{}"), chunk(finish="tool_calls"),
    ]  # fmt: skip
    proxy = start(Scripted(streams(*pieces, usage_chunk(), DONE)))
    with proxy.client.chat.completions.stream(model="m", messages=HELLO, tools=TOOLS) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert calls is not None
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("read_file", '{"path": 1}'),
        ("list_files", "{}"),
    ]
    assert proxy.ledger.wait()[0].answer.outcome.usage is not None


def test_structured_output(start: Start) -> None:
    class Weather(pydantic.BaseModel):
        city: str
        sky: Literal["clear", "cloudy"]

    provider = Scripted(replies(completion({"content": '{"city": "Wien", "sky": "clear"}'})))
    proxy = start(provider)
    answer = proxy.client.chat.completions.parse(model="m", messages=HELLO, response_format=Weather)
    assert answer.choices[0].message.parsed == Weather(city="Wien", sky="clear")
    schema = provider.seen[0].json["response_format"]["json_schema"]
    assert (schema["strict"], schema["name"]) == (True, "Weather")


@pytest.mark.parametrize("ends", ["\n\n", "\r\n\r\n"])
def test_comments_and_either_line_ending_pass(start: Start, ends: str) -> None:
    events = [b": PROCESSING\n\n", chunk("a"), usage_chunk(), DONE]
    proxy = start(Scripted(streams(*(e.replace(b"\n\n", ends.encode()) for e in events))))
    raw = proxy.client.chat.completions.with_raw_response.create(model="m", messages=HELLO, stream=True)
    expected = b"".join(e.replace(b"\n\n", ends.encode()) for e in (*events[:2], events[3]))
    assert raw.http_response.read() == expected
    raw.http_response.close()


def test_paths_without_a_version_work_too(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()))
    with proxy.other_client(base_url=proxy.url) as client:
        assert client.chat.completions.create(model="m", messages=HELLO).choices
