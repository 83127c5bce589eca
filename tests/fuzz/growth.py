"""Bodies of growing size: four times the bytes must not cost much more than four times the CPU.

Each is one short random unit, again and again, in a place where something reads it: what is superlinear in this proxy
is so for some unit. What is found is measured again before it counts, for CPU times err where little is measured.
"""

import time
from random import Random

import orjson
from starlette.types import ASGIApp

from tests.fuzz.asgi import exchange
from tests.fuzz.cases import Case
from tests.fuzz.values import WORDS
from tests.security.bodies import WIRE

SMALL_BYTES, LARGE_BYTES = 24_000, 96_000
MOST_RATIO = 9.0
_FLOOR_S = 0.006
_AGAIN = 8
_MARKS = (
    "<", ">", "</", "/>", "<file ", "<document ", 'path="a"', "```", "~~~", "`", "#", "-", "*", "|", "\n", "\n\n",
    "\r\n", " ", "\t", "a", "a.b", "a/b.py", "1", ":", "12:00", "2026-01-01", "Today's date is ", '"', "\\", "{", "}",
    "[", "]", "(", ".", ",", "'", "=", "é", "漢", "\U0001f389", "\u200b", "\x00",
)  # fmt: skip
_ROLES = ("user", "user", "system", "assistant", "tool", "developer")


def pumped(seed: int, number: int, size: int) -> bytes:
    """The body of that number, about ``size`` bytes: the same unit at any size."""
    random = Random(f"growth/{seed}/{number}")
    if random.random() < 0.15:
        return random.choice(list(WIRE.values()))(size).replace(b'"model":"m"', b'"model":"claude"', 1)
    unit = "".join(random.choice(random.choice((_MARKS, _MARKS, WORDS))) for _ in range(random.randrange(1, 5)))
    front, behind = (random.choice(("", "", random.choice(_MARKS), random.choice(WORDS))) for _ in range(2))
    text = front + unit * max(1, size // len(unit.encode("utf-8", "surrogatepass"))) + behind
    message: dict[str, object] = {"role": random.choice(_ROLES), "content": text}
    if random.random() < 0.2:
        message["content"] = [{"type": "text", "text": text}]
    messages: list[object] = [{"role": "system", "content": "You help. " * 300}, message]
    body = {"model": "claude", "messages": [*messages, {"role": "user", "content": "And now?"}]}
    return orjson.dumps(body)


async def superlinear(app: ASGIApp, seed: int, number: int) -> str:
    """What is wrong with how the cost of that body grows; empty where nothing is."""
    before = after = 0.0
    for _ in range(_AGAIN):
        before, after = [await _cpu_s(app, number, pumped(seed, number, size)) for size in (SMALL_BYTES, LARGE_BYTES)]
        if after <= MOST_RATIO * max(before, _FLOOR_S):
            return ""
    return f"{number} (growth): {before * 1000:.0f} ms of CPU, and {after * 1000:.0f} ms for four times the bytes"


async def _cpu_s(app: ASGIApp, number: int, body: bytes) -> float:
    headers = [
        (b"host", b"x"), (b"authorization", b"Bearer sk-blue"), (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]  # fmt: skip
    one = Case(number, "growth", "POST", "/v1/chat/completions", b"", headers, (body,))
    began = time.process_time()
    await exchange(app, one)
    return time.process_time() - began
