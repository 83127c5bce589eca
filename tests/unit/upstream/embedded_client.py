"""A client of the embedded provider for its tests: requests, replies, and a clock."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from proxy.engine.exchange import Call
from proxy.models import Deployment, Transport
from proxy.protocol.providers import ANTHROPIC, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded import EmbeddedUpstream, account_name

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SMALL = replace(ANTHROPIC, min_tokens=1)
SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
EDIT = {"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": {}}}}


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = [line.removeprefix(b"data: ") for line in self.body.split(b"\n\n") if line]
        assert lines[-1] == b"[DONE]"
        return [orjson.loads(line) for line in lines[:-1]]

    @property
    def usage(self) -> dict[str, Any]:
        assert self.status == 200, self.body
        return self.json["usage"]


class Provider:
    """A running embedded provider and a clock."""

    def __init__(self, profile: CacheProfile = SMALL, encode=bytes_over_four, **params: object) -> None:
        self.upstream = EmbeddedUpstream(encode)
        self.deployment = Deployment("model", "model", Transport.EMBEDDED, profile, params=params)
        self.now = 1000.0

    def call(self, body: object, *, path="/chat/completions", method="POST", key="k", fault: str = "") -> Call:
        headers = [("Authorization", f"Bearer {key}")] if key else []
        headers += [("x-embedded-fault", fault)] if fault else []
        if isinstance(body, dict) and "model" not in body:
            body = {"model": "model", **body}
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        return Call(self.deployment, method, path, headers, raw, False, self.now)

    async def ask(self, body: object, **kind: Any) -> Reply:
        answer = await self.upstream.open(self.call(body, **kind))
        data = b"".join([chunk async for chunk in answer.chunks()])
        await answer.aclose()
        self.now += 1
        return Reply(answer.status, dict(answer.headers), data)

    def send(self, body: object, **kind: Any) -> Reply:
        return asyncio.run(self.ask(body, **kind))

    def chat(self, *messages: dict[str, Any], **rest: Any) -> Reply:
        return self.send({"messages": list(messages), **rest})

    @property
    def ledger(self):
        return self.upstream.ledgers[account_name("k")]


def system(text: str = "Be brief. " * 10, **rest: Any) -> dict[str, Any]:
    return {"role": "system", "content": text, **rest}


def user(content: Any = "What now?", **rest: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **rest}


def part(text: str, **rest: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **rest}


def called(*names: str, content: Any = None, **rest: Any) -> dict[str, Any]:
    calls = [{"id": name, "type": "function", "function": {"name": "search", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": content, "tool_calls": calls, **rest}


def result(name: str, content: Any = "found it", **rest: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content, **rest}


def written(reply: Reply) -> int:
    return reply.usage["cache_creation_input_tokens"]


def read(reply: Reply) -> int:
    return reply.usage["prompt_tokens_details"]["cached_tokens"]
