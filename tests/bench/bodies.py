"""Sessions to send: coding-agent conversations and file chats, made from the standard library's own source.

Deterministic for a seed and a Python version. Every body of a session repeats the one before it and appends a turn;
different seeds share no text but the head, so that nothing is warm that would not be warm in real life.
"""

import lzma
import random
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import orjson

from tests.bench.provider import MODEL

# Bytes that a turn adds. Recorded agents grow by 4 to 6 kB a request on average, at 50 kB as at 400 kB: mostly small
# edits and command outputs, now and then a long file.
TURNS = (500, 1_000, 2_000, 4_500, 12_000)
SMALL_TURN = 100

Message = dict[str, object]
Body = dict[str, object]

_TOOLS = (
    ("read_file", "Read a file of the project, whole or from a line on.", ("path", "offset", "limit")),
    ("write_file", "Write a new file, or overwrite one that exists.", ("path", "content")),
    ("edit_file", "Replace one exact text in a file by another.", ("path", "old", "new")),
    ("search", "Search the project's files for a regular expression.", ("pattern", "glob")),
    ("list_files", "List a directory, two levels deep.", ("path",)),
    ("run", "Run a command in the project's root and return its output.", ("command", "timeout_s")),
)
_GUIDE = (
    "You are a coding agent. You work in the user's repository through the tools, in small steps: look first, change "
    "one thing, run the tests, look at what they say. Keep to the conventions of the code that is there. "
)
# aider's own words and order (aider 0.86, edit format diff): its recogniser takes these sessions for what they are.
_FILES_OPENING = (
    "I have *added these files to the chat* so you can go ahead and edit them.\n\n"
    "*Trust this message as the true contents of these files!*\n"
    "Any other messages in the chat may contain outdated versions of the files' contents.\n"
)
_FILES_ACK = "Ok, any changes I propose will be to those files."


@dataclass(frozen=True, slots=True)
class Session:
    """The bodies of one growing session, in order, as they go over the wire. The first ``warm`` are not measured."""

    bodies: Sequence[bytes]
    warm: int


@cache
def _corpus() -> tuple[tuple[str, tuple[str, ...]], ...]:
    root = Path(sysconfig.get_path("stdlib"))
    files = [
        p for folder in (root, root / "asyncio", root / "email", root / "http") for p in sorted(folder.glob("*.py"))
    ]
    texts = [(str(p.relative_to(root)), tuple(p.read_text("utf-8", "replace").splitlines())) for p in files]
    return tuple((name, lines) for name, lines in texts if len(lines) > 150)


def _excerpt(rng: random.Random, size: int) -> tuple[str, str]:
    """A file's name and about ``size`` bytes of it, numbered as tools number them, from a random line on."""
    name, lines = rng.choice(_corpus())
    start = rng.randrange(len(lines))
    taken: list[str] = []
    room = size
    for number in range(start, start + size):
        line = f"{number + 1:>6}\t{lines[number % len(lines)]}"
        if len(line) > room and taken:
            break
        taken.append(line)
        room -= len(line) + 1
    return name, "\n".join(taken)[:size]


def _agent_turn(rng: random.Random, size: int) -> list[Message]:
    """An assistant turn with a tool call and its result; at small sizes a plain answer and the next question."""
    if size < 400:
        word = f"{rng.getrandbits(32):08x}"
        return [
            {"role": "assistant", "content": f"Done, see {word}."},
            {"role": "user", "content": f"And {word[::-1]}?"},
        ]
    name, text = _excerpt(rng, size - 250)
    call_id = f"call_{rng.getrandbits(64):016x}"
    arguments = orjson.dumps({"path": name, "offset": rng.randrange(1, 2000)}).decode()
    call = {"id": call_id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return [
        {"role": "assistant", "content": f"I look at {name} next.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
    ]


def _tools() -> list[Body]:
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description + " " + _GUIDE,
                "parameters": {
                    "type": "object",
                    "properties": {arg: {"type": "string", "description": f"The {arg} to use."} for arg in arguments},
                    "required": list(arguments[:1]),
                },
            },
        }
        for name, description, arguments in _TOOLS
    ]


def _wire(messages: Sequence[Message], stream: bool, **more: object) -> bytes:
    body: Body = {"model": MODEL, "messages": list(messages), **more}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return orjson.dumps(body)


def agent(seed: int, size: int, count: int, stream: bool, warm: int = 2) -> Session:
    """A tool-calling agent at work: append-only, ``size`` bytes in the middle of its ``count`` requests."""
    rng = random.Random(f"agent {seed} {size}")
    small = size < 5_000
    more: Body = {} if small else {"tools": _tools()}
    messages: list[Message] = [
        {"role": "system", "content": _GUIDE * (1 if small else 20)},
        {"role": "user", "content": f"Issue {rng.randrange(10_000)}: the parser loses the last line. Please mend it."},
    ]
    steps = _steps(rng, small)
    growth = (count + warm) * (SMALL_TURN if small else sum(TURNS) // len(TURNS))
    have = len(_wire(messages, stream, **more))
    while have < size - growth // 2:
        turn = _agent_turn(rng, next(steps))
        messages += turn
        have += len(orjson.dumps(turn))
    bodies = []
    for _ in range(count + warm):
        messages += _agent_turn(rng, next(steps))
        bodies.append(_wire(messages, stream, **more))
    return Session(bodies, warm)


def _steps(rng: random.Random, small: bool) -> Iterator[int]:
    """The sizes of turns: every size as often as any other, in an order of the seed's."""
    while True:
        yield from [SMALL_TURN] if small else rng.sample(TURNS, len(TURNS))


def _edit(rng: random.Random, lines: list[str]) -> tuple[str, str]:
    at = rng.randrange(len(lines))
    old, lines[at] = lines[at], f"{lines[at]}  # seen {rng.getrandbits(32):08x}"
    return old, lines[at]


def files(seed: int, size: int, count: int, stream: bool, warm: int = 2) -> Session:
    """A file chat: whole files in one message before the question, one of them edited each turn, history growing."""
    rng = random.Random(f"files {seed} {size}")
    names: dict[str, list[str]] = {}
    while sum(len(line) + 1 for lines in names.values() for line in lines) < size * 9 // 10:
        name, lines = rng.choice(_corpus())
        names[f"src/{len(names)}/{name}"] = [f"# {rng.getrandbits(32):08x}", *lines[: size // 480]]
    system = {"role": "system", "content": _GUIDE * 20}
    history: list[Message] = []
    hot = sorted(names)[: max(1, len(names) // 4)]
    bodies = []
    for turn in range(count + warm):
        shown = "".join(f"\n{name}\n```\n" + "\n".join(lines) + "\n```\n" for name, lines in names.items())
        context: list[Message] = [
            {"role": "user", "content": _FILES_OPENING + shown},
            {"role": "assistant", "content": _FILES_ACK},
        ]
        question: Message = {"role": "user", "content": f"Turn {turn}: say in the code what you have seen."}
        bodies.append(_wire([system, *history, *context, question], stream, temperature=0))
        name = rng.choice(hot)
        old, new = _edit(rng, names[name])
        block = f"{name}\n```python\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```"
        history += [
            question,
            {"role": "assistant", "content": block},
            {
                "role": "user",
                "content": f"I committed the changes with git hash {rng.getrandbits(28):07x} & commit msg: note",
            },
            {"role": "assistant", "content": "Ok."},
        ]
    return Session(bodies, warm)


def _salted(body: Body, salt: str, *, throughout: bool) -> bytes:
    """The body as a session of its own: the first message's text ends in ``salt``, or every one's, and the answer is
    JSON."""
    messages = [dict(m) for m in body["messages"]]  # type: ignore[attr-defined]
    for index, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str) and (throughout or index == 0):
            message["content"] = content + salt
        elif isinstance(content, list) and index == 0:
            message["content"] = [*content, {"type": "text", "text": salt}]
    rest = {k: v for k, v in body.items() if k not in ("messages", "model", "stream", "stream_options")}
    return orjson.dumps({"model": MODEL, "messages": messages, **rest})


@dataclass(frozen=True, slots=True)
class Recorded:
    """A stretch of one recorded session whose requests are near one size."""

    name: str
    requests: Sequence[Body]

    @property
    def grows(self) -> bool:
        """Whether every request only appends to the one before it, as a tool-calling agent's do."""
        return all(_repeats(before, after) for before, after in pairwise(self.requests))

    def session(self, seed: int, warm: int = 2) -> Session:
        """The stretch as a session that was not sent before. Where files are shown, their messages stay as they are."""
        salt, throughout = f"\n(session {seed})", self.grows
        return Session([_salted(request, salt, throughout=throughout) for request in self.requests], warm)


def _repeats(before: Body, after: Body) -> bool:
    first, then = before["messages"], after["messages"]
    assert isinstance(first, list)
    assert isinstance(then, list)
    return then[: len(first)] == first


def recorded(folder: Path, size: int, count: int, most: int, *, grows: bool | None = None) -> list[Recorded]:
    """Stretches of ``count`` requests of 0.5 to 2 times ``size`` bytes, the longest runs first, one a recording;
    where ``grows`` is said, only those that do, or do not."""
    found: list[Recorded] = []
    for path in sorted(folder.glob("*.jsonl.xz")):
        stretch: list[Body] = []
        for request in _requests(path):
            if size // 2 <= len(orjson.dumps(request)) <= size * 2:
                stretch.append(request)
            elif len(stretch) < count:
                stretch.clear()
            if len(stretch) == count:
                break
        one = Recorded(path.name.removesuffix(".jsonl.xz"), stretch)
        if len(stretch) == count and grows in (None, one.grows):
            found.append(one)
    # Spread over the recordings, which sort by client: neighbours in the list are often the same client.
    return found[:: max(1, len(found) // most)][:most]


def _requests(path: Path) -> Iterator[Body]:
    """The recorded requests but for side calls, which are much smaller than their session."""
    with lzma.open(path) as lines:
        for line in lines:
            row = orjson.loads(line)
            if row.get("kind") != "aux":
                yield row["request"]
