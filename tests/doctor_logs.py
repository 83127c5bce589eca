"""One conversation in the log formats of several products. Each writer gives the bytes of a file."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import orjson

START = 1_790_000_000.0
MODEL = "claude-sonnet-4-6"
SECRET = "the quick brown fox"
"""This occurs in every text of the conversation."""
_STEP_S = 20.0
_WORDS = f"{SECRET} jumps over the lazy dog while rule {{}} says so. "


@dataclass(frozen=True, slots=True)
class Spoken:
    """One exchange: a chat body, and the usage that Anthropic reports for it."""

    at: float
    body: dict[str, Any]
    usage: dict[str, int]


def rules(count: int) -> str:
    """A text of ``count`` lines."""
    return "\n".join(_WORDS.format(number) * 4 for number in range(count))


def talk(turns: int = 12, *, has_clock: bool = True, start: float = START) -> list[Spoken]:
    """A conversation in which line 3 of the system text tells the time of day, so that nothing is ever read from the
    cache."""
    spoken: list[Spoken] = []
    history: list[dict[str, Any]] = []
    for number in range(turns):
        at = start + number * _STEP_S
        moment = datetime.fromtimestamp(at, UTC)
        clock = f"It is {moment:%H:%M:%S} now." if has_clock else "It is late."
        system = f"You are a helper.\nAnswer briefly.\n{clock}\n{rules(40)}"
        history.append({"role": "user", "content": f"question {number}: {SECRET}? " * 40})
        marks = {"cache_control": {"type": "ephemeral"}}
        messages = [
            {"role": "system", "content": [{"type": "text", "text": system, **marks}]},
            *history[:-1],
            {"role": "user", "content": [{"type": "text", "text": history[-1]["content"], **marks}]},
        ]
        size = sum(len(str(message["content"])) for message in messages) // 4
        usage = {
            "input_tokens": 4,
            "cache_read_input_tokens": 0 if has_clock or not number else size - 500,
            "cache_creation_input_tokens": size if has_clock or not number else 500,
            "output_tokens": 20,
        }
        spoken.append(Spoken(at, {"model": MODEL, "messages": messages, "max_tokens": 100}, usage))
        history.append({"role": "assistant", "content": f"answer {number}: {SECRET}."})
    return spoken


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def _prompt(usage: Mapping[str, int]) -> int:
    return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]


def _chat_usage(usage: Mapping[str, int]) -> dict[str, Any]:
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return {
        "prompt_tokens": _prompt(usage),
        "completion_tokens": usage["output_tokens"],
        "total_tokens": _prompt(usage) + usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": read, "cache_creation_tokens": written},
    }


def json_lines(values: Sequence[object]) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)


def recording(spoken: Sequence[Spoken]) -> bytes:
    return json_lines(
        [
            {"t": s.at, "client": "helper", "session": "s1", "request": s.body, "response": {"usage": s.usage}}
            for s in spoken
        ]
    )


def messages_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    system, *others = chat["messages"]
    return {**chat, "system": system["content"], "messages": others}


def responses_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    system, *others = chat["messages"]
    items = [
        {
            "type": "message",
            "role": message["role"],
            "content": [{"type": "input_text", "text": _text(message["content"])}],
        }
        for message in others
    ]
    return {"model": "gpt-5.5", "instructions": _text(system["content"]), "input": items}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def exchanges_chat(spoken: Sequence[Spoken]) -> bytes:
    return json_lines(
        [
            {"timestamp": _iso(s.at), "user": "helper", "request": s.body, "response": {"usage": _chat_usage(s.usage)}}
            for s in spoken
        ]
    )


def exchanges_messages(spoken: Sequence[Spoken]) -> bytes:
    """The log of a gateway: the bodies as strings, and the answer as the text of a stream."""
    rows = []
    for s in spoken:
        started = {"type": "message_start", "message": {"usage": {**s.usage, "output_tokens": 1}}}
        ended = {"type": "message_delta", "usage": {"output_tokens": s.usage["output_tokens"]}}
        stream = "".join(f"event: {e['type']}\ndata: {orjson.dumps(e).decode()}\n\n" for e in (started, ended))
        rows.append(
            {
                "time": s.at * 1000,
                "service": "helper",
                "url": "https://api.anthropic.com/v1/messages?beta=true",
                "request_body": orjson.dumps(messages_body(s.body)).decode(),
                "response_body": stream,
            }
        )
    return json_lines(rows)


def exchanges_responses(spoken: Sequence[Spoken]) -> bytes:
    rows = []
    for s in spoken:
        usage = {
            "input_tokens": _prompt(s.usage),
            "output_tokens": s.usage["output_tokens"],
            "input_tokens_details": {"cached_tokens": s.usage["cache_read_input_tokens"]},
        }
        row = {"ts": s.at, "app": "helper", "req": responses_body(s.body), "resp": {"body": {"usage": usage}}}
        rows.append(row)
    return json_lines(rows)


def _litellm_row(s: Spoken) -> dict[str, Any]:
    usage = _chat_usage(s.usage)
    cached = {name: s.usage[name] for name in ("cache_read_input_tokens", "cache_creation_input_tokens")}
    return {
        "request_id": f"chatcmpl-{s.at}",
        "call_type": "acompletion",
        "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
        "spend": 0.01,
        **{name: usage[name] for name in ("total_tokens", "prompt_tokens", "completion_tokens")},
        "startTime": _iso(s.at),
        "endTime": _iso(s.at + 2),
        "model": f"anthropic/{MODEL}",
        "model_group": "sonnet",
        "custom_llm_provider": "anthropic",
        "user": "default_user_id",
        "metadata": {"user_api_key_alias": "helper", "additional_usage_values": cached},
        "team_id": "",
        "end_user": "",
        "messages": {},
        "response": {"choices": []},
        "session_id": "s1",
        "status": "success",
        "proxy_server_request": s.body,
    }


def litellm_lines(spoken: Sequence[Spoken]) -> bytes:
    return json_lines([_litellm_row(s) for s in spoken])


def litellm_array(spoken: Sequence[Spoken]) -> bytes:
    """The answer of the endpoint for spend logs, newest first."""
    return orjson.dumps([_litellm_row(s) for s in reversed(spoken)], option=orjson.OPT_INDENT_2)


def litellm_csv(spoken: Sequence[Spoken]) -> bytes:
    return _csv([_litellm_row(s) for s in spoken])


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([v if isinstance(v, str) else orjson.dumps(v).decode() for v in row.values()])
    return out.getvalue().encode()


def _observation(s: Spoken, *, is_camel: bool) -> dict[str, Any]:
    usage = {
        "input": s.usage["input_tokens"],
        "output": s.usage["output_tokens"],
        "cache_read_input_tokens": s.usage["cache_read_input_tokens"],
        "cache_creation_input_tokens": s.usage["cache_creation_input_tokens"],
        "total": _prompt(s.usage) + s.usage["output_tokens"],
    }
    input_ = {"messages": s.body["messages"]}
    if is_camel:
        return {
            "id": f"o-{s.at}", "traceId": f"t-{s.at}", "type": "GENERATION", "name": "answer", "startTime": _iso(s.at),
            "endTime": _iso(s.at + 2), "sessionId": "s1", "traceName": "helper", "model": MODEL, "input": input_,
            "output": {"role": "assistant"}, "usageDetails": usage,
        }  # fmt: skip
    moment = datetime.fromtimestamp(s.at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return {
        "id": f"o-{s.at}", "trace_id": f"t-{s.at}", "type": "GENERATION", "start_time": moment, "session_id": "s1",
        "trace_name": "helper", "provided_model_name": MODEL, "input": orjson.dumps(input_).decode(), "output": "",
        "usage_details": usage,
    }  # fmt: skip


def langfuse_json(spoken: Sequence[Spoken]) -> bytes:
    step = {"id": "x", "traceId": "t", "type": "SPAN", "name": "look up", "startTime": _iso(START), "input": "a word"}
    return orjson.dumps([step, *(_observation(s, is_camel=True) for s in spoken)])


def langfuse_lines(spoken: Sequence[Spoken]) -> bytes:
    return json_lines([_observation(s, is_camel=False) for s in spoken])


def langfuse_csv(spoken: Sequence[Spoken]) -> bytes:
    return _csv([_observation(s, is_camel=False) for s in spoken])


def langfuse_api(spoken: Sequence[Spoken]) -> bytes:
    return orjson.dumps({"data": [_observation(s, is_camel=True) for s in spoken], "meta": {"page": 1}})


def har(spoken: Sequence[Spoken], *, has_content: bool = True) -> bytes:
    entries: list[dict[str, Any]] = [
        {"startedDateTime": _iso(START), "request": {"url": "https://x.test/logo.svg"}, "response": {"content": {}}}
    ]
    for s in spoken:
        post = {"mimeType": "application/json", "text": orjson.dumps(s.body).decode()} if has_content else {}
        answer = {"text": orjson.dumps({"usage": _chat_usage(s.usage)}).decode()} if has_content else {"size": 3}
        entries.append(
            {
                "startedDateTime": _iso(s.at),
                "request": {
                    "method": "POST",
                    "url": "https://llm.test/v1/chat/completions",
                    "headers": [{"name": "User-Agent", "value": "helper/1.2 (x)"}],
                    "postData": post,
                },
                "response": {"status": 200, "content": answer},
            }
        )
    return orjson.dumps({"log": {"version": "1.2", "creator": {"name": "b"}, "pages": [], "entries": entries}})


def claude_code(spoken: Sequence[Spoken]) -> bytes:
    """Each answer has two lines with the same id and usage. The user's lines stand between the answers, and a snapshot
    in front of all."""
    rows: list[dict[str, Any]] = [{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}]
    for s in spoken:
        told = {"sessionId": "s1", "timestamp": _iso(s.at), "cwd": "/x", "version": "2.1.330", "isSidechain": False}
        rows.append({**told, "type": "user", "message": {"role": "user", "content": SECRET}})
        for kind in ("thinking", "text"):
            message = {"id": f"msg_{s.at}", "model": MODEL, "content": [{"type": kind}], "usage": s.usage}
            rows.append({**told, "type": "assistant", "requestId": f"req_{s.at}", "message": message})
    return json_lines(rows)


WITH_REQUESTS: Mapping[str, Callable[[Sequence[Spoken]], bytes]] = MappingProxyType(
    {
        writer.__name__: writer
        for writer in (
            recording, exchanges_chat, exchanges_messages, exchanges_responses, litellm_lines, litellm_array,
            litellm_csv, langfuse_json, langfuse_lines, langfuse_csv, langfuse_api, har,
        )
    }
)  # fmt: skip
"""All logs that hold whole requests."""
