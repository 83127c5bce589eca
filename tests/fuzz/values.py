"""Random JSON, conversations, and what becomes of them when bits flip."""

import json
from random import Random
from typing import Any

KEYS = (
    "role", "content", "type", "text", "tool_calls", "id", "function", "name", "arguments", "cache_control",
    "messages", "tools", "model", "stream", "stream_options", "include_usage", "stratiform", "tool_call_id",
    "image_url", "url", "prompt_cache_breakpoint", "prompt_cache_key", "max_tokens", "max_completion_tokens", "n",
    "user", "metadata", "temperature", "response_format", "parameters", "input", "prompt", "system", "", "x",
    "\u0000", "é",
)  # fmt: skip
WORDS = (
    "user", "system", "assistant", "tool", "developer", "text", "image_url", "ephemeral", "1h", "5m", "function",
    "auto", "Today's date is 2026-01-01.", "```py\nx = 1\n```\n", '<doc id="1">a</doc>', "\x00", "\x7f",
    "data:image/png;base64,AAAA", "../../etc/passwd", "http://169.254.169.254/", "\r\nx-injected: 1", "%0d%0a",
    "漢字 🎉", "I have *added these files to the chat* so you can go ahead and edit them.\n", "[DONE]", "data: ",
    "null", "NaN",
)  # fmt: skip
HALVES = ("\ud800", "a\udfff\ud800b")
MODELS = ("claude", "gpt", "pair", "strange", "behind/a", "behind/b", "nobody's")


def text(random: Random) -> str:
    """A short text, or a long one."""
    kind = random.random()
    if kind < 0.005:
        return random.choice(HALVES)
    if kind < 0.4:
        return random.choice(WORDS)
    if kind < 0.9:
        return " ".join(random.choice(WORDS) for _ in range(random.randrange(12)))
    return (random.choice(WORDS) + " ") * random.randrange(400)


def scalar(random: Random) -> Any:
    """Anything small."""
    return random.choice(
        (None, True, False, 0, -1, 2**70, -(2**63), 1e308, 0.1, random.randrange(9999), text(random), text(random))
    )


def value(random: Random, depth: int = 4) -> Any:
    """Any JSON."""
    kind = random.random()
    if depth == 0 or kind < 0.45:
        return scalar(random)
    if kind < 0.7:
        return [value(random, depth - 1) for _ in range(random.randrange(5))]
    return {random.choice(KEYS): value(random, depth - 1) for _ in range(random.randrange(6))}


def messages(random: Random, count: int) -> list[dict[str, Any]]:
    """Messages that a client might send: about that many."""
    return [m for number in range(count) for m in _turn(random, f"c{random.randrange(99)}.{number}")]


def _turn(random: Random, call: str) -> list[dict[str, Any]]:
    kind = random.randrange(8)
    mark = {"cache_control": {"type": "ephemeral", **({"ttl": "1h"} if random.random() < 0.3 else {})}}
    if kind == 0:
        return [
            {"role": "assistant", "content": None, "tool_calls": [_call(call)]},
            {"role": "tool", "tool_call_id": call, "content": text(random)},
        ]
    if kind == 1:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        return [{"role": "user", "content": [{"type": "text", "text": text(random)}, image]}]
    if kind == 2:
        return [{"role": "user", "content": [{"type": "text", "text": text(random), **mark}]}]
    role = random.choice(("system", "user", "assistant", "user", "developer"))
    return [{"role": role, "content": text(random)}]


def _call(name: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "run", "arguments": '{"x": 1}'}}


def chat(random: Random) -> dict[str, Any]:
    """A chat request. Few beginnings, so that many are turns of the same conversations."""
    topic = Random(random.randrange(40))
    begin = [{"role": "system", "content": "You help. " * topic.randrange(300)}]
    begin += messages(topic, topic.randrange(12))
    body: dict[str, Any] = {
        "model": random.choice(MODELS),
        "messages": [*begin, *messages(random, random.randrange(4)), {"role": "user", "content": text(random)}],
    }
    if random.random() < 0.5:
        body["stream"] = True
    if random.random() < 0.2:
        body["stream_options"] = {"include_usage": random.random() < 0.5}
    if random.random() < 0.4:
        schema = {"type": "object", "properties": {"messages": {"type": "array"}}}
        names = range(topic.randrange(1, 4))
        body["tools"] = [{"type": "function", "function": {"name": f"t{i}", "parameters": schema}} for i in names]
    if random.random() < 0.2:
        body[random.choice(KEYS)] = value(random, 2)
    return body


def near_miss(random: Random) -> Any:
    """A chat request in which something is something else."""
    body = chat(random)
    for _ in range(random.randrange(1, 4)):
        holder: Any = body
        for _ in range(random.randrange(5)):
            inner = [v for v in (holder.values() if isinstance(holder, dict) else holder) if isinstance(v, dict | list)]
            if not inner:
                break
            holder = random.choice(inner)
        if isinstance(holder, dict):
            holder[random.choice([*holder, *KEYS[:4]])] = value(random, 3)
        elif holder:
            holder[random.randrange(len(holder))] = value(random, 3)
    return body


def written(random: Random, body: Any) -> bytes:
    """As some client would write it."""
    separators = random.choice(((",", ":"), (", ", ": "), (" ,\n", "\t:\r\n")))
    plain = random.random() < 0.5
    return json.dumps(body, ensure_ascii=plain, separators=separators).encode("utf-8", "surrogatepass")


def mutated(random: Random, data: bytes) -> bytes:
    """A few bytes flipped, cut out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 6)):
        at, size = random.randrange(len(changed) + 1), random.choice((1, 1, 2, 8, 64))
        kind = random.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del changed[at : at + size]
        elif kind == 2:
            changed[at:at] = changed[at : at + size]
        elif kind == 3:
            changed[at:at] = random.randbytes(size)
        else:
            changed[at:at] = random.choice(
                (b'"', b"\\", b"{", b"]", b",", b"\n\n", b"\\ud800", b'"messages":[', b"\xff")
            )
    return bytes(changed)


def deep(random: Random) -> bytes:
    """Deep, wide, or full of the same."""
    kind, many = random.randrange(6), random.choice((50, 2000, 20000))
    head = b'{"model":"claude","messages":'
    if kind == 0:
        return head + b"[" * many
    if kind == 1:
        return head + b'[{"role":"user","content":' + b"[" * many + b"]" * many + b"}]}"
    if kind == 2:
        return head + b"[" + b",".join([b'{"role":"user","content":"a"}'] * (many // 10)) + b"]}"
    if kind == 3:
        return head + b"[1]" + b',"x":1' * many + b"}"
    if kind == 4:
        return head + b'[{"role":"user","content":"' + b"\\ud83d" * many + b'"}]}'
    return head + b'[{"role":"user","content":[' + b",".join([b'{"type":"text","text":"a"}'] * (many // 10)) + b"]}]}"
