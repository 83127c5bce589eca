"""Random sessions of a client that knows its context, each in the forms that the client could have sent.

Files and panels change at random between the turns, and some panels between the calls of a turn. Sizes are in tokens,
log-uniform, so that small and large ones are equally likely. Files do not stand beside loops of calls: the planner is
there up to 1.4 times dearer than files in the prompt, because it expects that each answer edits files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

_WORDS = tuple(Random(0).sample([a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"], 300))
_KINDS = ("own", "file", "todo", "git", "tree", "console", "memory", "scratchpad")


class Form(StrEnum):
    """How a client sends its context."""

    STRUCTURED = "structured"
    FLAT = "flat"
    PASTED = "pasted"


@dataclass(frozen=True)
class Thing:
    """A file or a panel: its tokens, and the probability that a turn changes it."""

    name: str
    tokens: int
    rate: float
    kind: str = ""
    in_loops: bool = False


@dataclass(frozen=True)
class Spec:
    """What a session is like. ``files_a_commit`` of the files change in each turn; ``pause`` is P(a pause is long)."""

    seed: int
    turns: int
    system: int
    prompt: int
    answer: int
    calls: int
    panels: tuple[Thing, ...] = ()
    files: tuple[Thing, ...] = ()
    files_a_commit: int = 0
    pause: float = 0.0
    pause_s: float = 1_000.0


@dataclass(frozen=True)
class Moment:
    """One request."""

    at: float
    done: Sequence[Mapping[str, Any]]
    shown: Mapping[str, str]


def _size(chance: Random, low: int, high: int) -> int:
    return round(low * (high / low) ** chance.random())


def spec_of(seed: int) -> Spec:
    """A random session."""
    chance = Random(seed)
    shape = chance.choice(("chat", "panels", "panels", "files", "both"))
    panels: list[Thing] = []
    files: list[Thing] = []
    if shape in ("panels", "both"):
        common = _size(chance, 50, 4_000) if chance.random() < 0.4 else 0
        for number in range(chance.randint(1, 8)):
            rate = chance.choice((0.0, 0.02, 0.1, 0.3, 0.6, 1.0))
            panels.append(
                Thing(
                    f"p{number}", common or _size(chance, 50, 4_000), rate, chance.choice(_KINDS), chance.random() < 0.5
                )
            )
    calls = chance.choice((0, 0, 0, 2, 5))
    commit = 0
    if shape in ("files", "both"):
        files = [Thing(f"src/f{number}.py", _size(chance, 100, 3_000), 1.0) for number in range(chance.randint(1, 20))]
        commit = chance.randint(0, min(16, len(files)))
    return Spec(
        seed=seed,
        turns=_size(chance, 3, 40),
        system=_size(chance, 20, 3_000),
        prompt=_size(chance, 20, 3_000),
        answer=_size(chance, 20, 3_000),
        calls=0 if files else calls,
        panels=tuple(panels),
        files=tuple(files),
        files_a_commit=commit,
        pause=chance.choice((0.0, 0.0, 0.05, 0.15)),
        pause_s=chance.choice((400.0, 1_000.0, 5_000.0)),
    )


def text_of(chance: Random, tokens: int) -> str:
    """Words of about so many tokens."""
    words = chance.choices(_WORDS, k=max(1, tokens))
    return "\n".join(" ".join(words[at : at + 12]) for at in range(0, len(words), 12))


def _edited(chance: Random, text: str) -> str:
    """The text with one line changed."""
    lines = text.split("\n")
    lines[chance.randrange(len(lines))] = " ".join(chance.choices(_WORDS, k=12))
    return "\n".join(lines)


def moments(spec: Spec) -> Iterator[Moment]:
    """The requests of a session."""
    chance, at = Random(spec.seed + 1), 1_800_000_000.0
    shown = {thing.name: text_of(chance, thing.tokens) for thing in (*spec.files, *spec.panels)}
    done: list[Mapping[str, Any]] = [{"role": "system", "content": text_of(chance, spec.system)}]
    for turn in range(spec.turns):
        if turn:
            _change(chance, [*spec.panels, *chance.sample(spec.files, spec.files_a_commit)], shown)
        done.append(
            {"role": "user", "content": text_of(chance, _size(chance, max(1, spec.prompt // 2), 2 * spec.prompt))}
        )
        yield Moment(at, tuple(done), dict(shown))
        for call in range(chance.randint(0, spec.calls)):
            name = f"c{turn}_{call}"
            function = {"name": "run", "arguments": f'{{"n":{call}}}'}
            done.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": name, "type": "function", "function": function}],
                }
            )
            done.append(
                {
                    "role": "tool",
                    "tool_call_id": name,
                    "content": text_of(chance, _size(chance, max(1, spec.answer // 2), 2 * spec.answer)),
                }
            )
            at += chance.uniform(3, 20)
            _change(chance, [thing for thing in spec.panels if thing.in_loops], shown)
            yield Moment(at, tuple(done), dict(shown))
        done.append(
            {"role": "assistant", "content": text_of(chance, _size(chance, max(1, spec.answer // 2), 2 * spec.answer))}
        )
        at += spec.pause_s if chance.random() < spec.pause else chance.uniform(10, 120)


def _change(chance: Random, things: Iterable[Thing], shown: dict[str, str]) -> None:
    for thing in things:
        if chance.random() < thing.rate:
            shown[thing.name] = _edited(chance, shown[thing.name])


def body_of(spec: Spec, form: Form, moment: Moment) -> dict[str, Any]:
    """The request in this form."""
    body: dict[str, Any] = {"model": "claude", "messages": list(moment.done)}
    if spec.calls:
        body["tools"] = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
    if form is Form.STRUCTURED:
        section: dict[str, Any] = {"session": f"s{spec.seed}"}
        if spec.files:
            section["files"] = [
                {"path": one.name, "selected": True, "content": moment.shown[one.name]} for one in spec.files
            ]
        if spec.panels or not spec.files:
            section["panels"] = [
                {"id": one.name, "kind": one.kind, "header": one.name, "content": moment.shown[one.name]}
                for one in spec.panels
            ]
        return {**body, "stratiform": section}
    files = (f"{one.name}\n```\n{moment.shown[one.name]}\n```\n" for one in spec.files)
    panels = (f"======= [{one.name}] {one.name} =======\n{moment.shown[one.name]}" for one in spec.panels)
    words = "\n\n".join((*files, *panels))
    messages = body["messages"]
    if form is Form.FLAT and words:
        messages[1:1] = [{"role": "user", "content": words}, {"role": "assistant", "content": "Ok."}]
    elif words:
        last = max(at for at, message in enumerate(messages) if message["role"] == "user")
        messages[last] = {"role": "user", "content": f"{words}\n\n{messages[last]['content']}"}
    return body
