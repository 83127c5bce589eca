"""Small recorded sessions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.lab import Step, Trace
from proxy.lab.replay import Setting
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four

RECOGNISERS = recognisers(build_plugin_manager())
MARK = {"type": "ephemeral"}

Message = dict[str, Any]


def setting(**changes: Any) -> Setting:
    """Anthropic's rules, tokens by length."""
    return Setting(**{"profile": ANTHROPIC, "encode": bytes_over_four, "recognisers": RECOGNISERS, **changes})


def text(name: str, tokens: int) -> str:
    """A text of about that many tokens that nothing else begins like."""
    return (f"{name}: the quick brown fox jumps over the lazy dog. " * tokens)[: 4 * tokens]


def body(*messages: Message, **members: Any) -> bytes:
    """A chat request."""
    return orjson.dumps({"model": "m", "messages": list(messages), **members})


def say(role: str, content: Any, **members: Any) -> Message:
    """One message."""
    return {"role": role, "content": content, **members}


def growing(turns: int, *, gap_s: float = 10.0) -> Trace:
    """A conversation that only grows: each request holds all before it."""
    history = [say("system", text("instructions", 2000))]
    steps = []
    for turn in range(turns):
        history.append(say("user", text(f"question {turn}", 300)))
        steps.append(Step(1000.0 + turn * gap_s, "s", body(*history)))
        history.append(say("assistant", text(f"answer {turn}", 300)))
    return Trace("growing", steps)


def lines(trace: Trace) -> list[bytes]:
    """As a file holds it."""
    return [
        orjson.dumps({"t": step.at, "client": "c", "session": step.session, "request": orjson.loads(step.body)})
        for step in trace.steps
    ]


def write(path: Path, rows: Sequence[bytes]) -> Path:
    """A plain file."""
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path
