"""The turns of a coding session with live panels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from proxy.core.structured.panels.panel import Panel
from proxy.demo.panels.workspace import Workspace
from proxy.demo.sample import BEGIN, Message, assistant, user
from proxy.demo.source import NOUNS, SOURCE, function
from proxy.demo.tool_agent import exchange, read, tested

RULES = """You are a coding assistant. You see the user's project as it is now: its files, its tasks, what ran last.

# How you work
- Look at what you are shown before you ask. Say so where it does not hold what you need.
- Make the smallest change that does what was asked, in the style of the file.
- Do not change what you were not asked to change, and do not add comments that repeat the code.
- Where a test is wrong, say so and stop. Never weaken one so that it passes.

# How you answer
- Short. Name files with their path, and places with path:line.
- Show whole functions, in fences. When you are done, say what changed in at most five lines.
"""
# How often what does not change with every step changes, in turns.
_EDIT_EVERY, _TASK_EVERY, _FILE_EVERY, _NOTE_EVERY = 8, 5, 24, 30
# Seconds between turns. An entry of the cache lives for five minutes.
_QUICK_S, _LONG_S = (20.0, 60.0), (400.0, 1500.0)
_CALLS, _CALL_S = (3, 8), (4.0, 20.0)
# P(what a tool did shows in a panel).
_SHOWS = 0.6
_ASKS = (
    "Why is the {field} of a {noun} rounded here? I would have expected the exact amount in this place.",
    "Please make the {field} of a {noun} optional, here and wherever it is read.",
    "The {noun} page is slow. Tell me what you would look at first, and why.",
    "What happens to the {field} if two {noun}s are merged, and one of them is closed?",
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a session goes: so many user turns, a pause of more than five minutes every ``pause_every`` turns (0: none),
    and whether each turn is a loop of calls (``has_calls``). A prompt has up to ``most_pasted`` functions in it, an
    answer one less."""

    turns: int
    pause_every: int = 0
    has_calls: bool = False
    most_pasted: int = 6
    seed: int = 4


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's content, whatever form it is sent in. ``done`` is the conversation so far, and ``prompt`` the last
    user message; ``loop`` are the calls and results that have followed it."""

    at: float
    done: Sequence[Message]
    prompt: str
    loop: Sequence[Message]
    panels: tuple[Panel, ...]

    @property
    def conversation(self) -> list[Message]:
        """All of it."""
        return [*self.done, user(self.prompt), *self.loop]


def turns(pace: Pace) -> Iterator[Turn]:
    """The requests of a session."""
    chance, at, done = Random(pace.seed), BEGIN, list[Message]()
    workspace = Workspace(Random(pace.seed))
    for number in range(1, pace.turns + 1):
        _move(workspace, number)
        prompt, loop = _ask(chance, pace.most_pasted), list[Message]()
        for call in range(chance.randint(*_CALLS) if pace.has_calls else 0):
            yield Turn(at, tuple(done), prompt, tuple(loop), workspace.panels())
            step = read(workspace.files[0]) if call % 4 == 3 else tested("tests", call % 2)
            loop += exchange(10 * number + call, step)
            at += chance.uniform(*_CALL_S)
            if chance.random() < _SHOWS:
                workspace.work()
        yield Turn(at, tuple(done), prompt, tuple(loop), workspace.panels())
        done += [user(prompt), *loop, assistant(_answer(chance, pace.most_pasted))]
        is_long = pace.pause_every and number % pace.pause_every == 0
        at += chance.uniform(*(_LONG_S if is_long else _QUICK_S))


def _move(workspace: Workspace, number: int) -> None:
    """What has changed in the workspace since the turn before."""
    workspace.work()
    if number % _EDIT_EVERY == 0:
        workspace.edit()
    if number % _TASK_EVERY == 0:
        workspace.tick()
    if number % _NOTE_EVERY == 0:
        workspace.remember()
    if number % _FILE_EVERY == 0:
        workspace.create()


def _ask(chance: Random, most_pasted: int) -> str:
    noun, field = chance.choice(NOUNS)
    pasted = _code(chance, chance.randint((most_pasted + 1) // 2, most_pasted))
    return f"{chance.choice(_ASKS).format(noun=noun, field=field)}\n\nThis is what I look at:\n```python\n{pasted}```\n"


def _answer(chance: Random, most_pasted: int) -> str:
    noun, field = chance.choice(NOUNS)
    code = _code(chance, chance.randint((most_pasted + 1) // 3, most_pasted - 1))
    words = f"The {field} of a {noun} is not the point; this is how I would write it"
    return f"{words}:\n```python\n{code}```\nNothing else changes."


def _code(chance: Random, count: int) -> str:
    return "\n".join(function(chance.choice(SOURCE), chance.randrange(len(NOUNS))).text for _ in range(count))
