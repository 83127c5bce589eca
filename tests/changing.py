"""Random sessions whose context changes: files, documents, state and tools, wherever clients show them.

A client shows its context anew in each request. How it writes the context, where the context stands, what changes in it
between two turns, and what the client keeps of the conversation are drawn independently, so that most combinations are
of no client that anybody knows.
"""

import json
from collections.abc import Sequence
from random import Random

from proxy.lab.demo.tool_agent import NOUNS
from tests.append_only import Message, Sent
from tests.fidelity.chats import EDITABLE_ACK, EDITABLE_OPENING

_WORDS = [word for pair in NOUNS for word in pair]
_FORMS = ("fences", "tags", "documents", "headings", "json", "aider")
_PLACES = ("system", "front", "tail", "question")
_CHANGES = ("first", "in turn", "any", "two", "all", "rarely", "never")
_KEPT = ("all", "all", "window", "first and window", "summary", "no results")
_RHYTHMS = ((0.0, 0, 0), (0.0, 0, 0), (0.15, 310, 3000), (0.1, 200, 400))


def changing(seed: int, count: int = 0) -> list[Sent]:
    """The requests of one client, ``count`` of them or a random number."""
    client = _Client(Random(seed))
    count = count or round(4 * 8 ** client.chance.random())
    while len(client.sent) < count:
        client.take_turn()
    return client.sent[:count]


class _Client:
    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.sent: list[Sent] = []
        self.at = 1_800_000_000.0
        self.form, self.place = chance.choice(_FORMS), chance.choice(_PLACES)
        self.changes, self.kept = chance.choice(_CHANGES), chance.choice(_KEPT)
        self.line = chance.choice((0.0, 0.5, 1.0, None))
        self.is_shuffled = chance.random() < 0.2
        self.files = {f"src/{name}.py": self.lines(round(5 * 40 ** chance.random())) for name in self.names()}
        self.instructions = self.words(round(20 * 100 ** chance.random()))
        self.turn_words = round(5 * 100 ** chance.random())
        self.tools = [self.tool(number) for number in range(chance.choice((0, 0, 4, 12)))]
        self.tool_changes = chance.choice((0.0, 0.0, 0.1, 0.5))
        self.most_calls = chance.choice((0, 3, 8)) if self.tools else 0
        self.rhythm = chance.choice(_RHYTHMS)
        self.window = chance.randint(2, 8)
        self.turns: list[list[Message]] = []
        self.summary: list[Message] = []

    def words(self, count: int) -> str:
        return " ".join(self.chance.choices(_WORDS, k=max(1, count)))

    def lines(self, count: int) -> list[str]:
        return [self.words(self.chance.randint(2, 12)) for _ in range(count)]

    def names(self) -> Sequence[str]:
        return self.chance.sample(_WORDS, self.chance.randint(1, 8))

    def tool(self, number: int) -> Message:
        return {"type": "function", "function": {"name": f"tool{number}", "description": self.words(30)}}

    def take_turn(self) -> None:
        """A question, the calls on the way to its answer, and what changes until the next question."""
        question = self.words(round(self.chance.expovariate(1 / self.turn_words)))
        body, behind = self.body(f"{question} {self.chance.randrange(10**6)}"), list[Message]()
        self.send(body, behind)
        for number in range(self.chance.randint(0, self.most_calls)):
            call_id = f"call-{len(self.turns)}-{number}"
            call = {"id": call_id, "type": "function", "function": {"name": "tool0", "arguments": "{}"}}
            result = self.words(round(5 * 60 ** self.chance.random()))
            behind += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call_id, "content": result},
            ]
            self.at += self.chance.uniform(3, 20)
            self.send(body, behind)
        answer = {"role": "assistant", "content": self.words(round(self.chance.expovariate(1 / self.turn_words)))}
        self.turns.append([{"role": "user", "content": question}, *behind, answer])
        self.change()
        share, least, most = self.rhythm
        self.at += self.chance.uniform(least, most) if self.chance.random() < share else self.chance.uniform(3, 90)

    def send(self, body: Message, behind: Sequence[Message]) -> None:
        tools = {"tools": self.tools} if self.tools else {}
        whole = {"model": "m", "messages": [*body["messages"], *behind], **tools}
        self.sent.append(Sent(self.at, json.dumps(whole).encode()))

    def change(self) -> None:
        names, number = list(self.files), len(self.turns)
        chosen = {
            "first": names[:1],
            "in turn": [names[number % len(names)]],
            "two": self.chance.choices(names, k=2),
            "all": names,
            "rarely": names[:1] if self.chance.random() < 0.15 else [],
            "never": [],
        }
        for name in chosen.get(self.changes, [self.chance.choice(names)]):
            self.edit(self.files[name])
        if self.tools and self.chance.random() < self.tool_changes:
            place = self.chance.randrange(len(self.tools))
            self.tools = [self.tool(place) if n == place else tool for n, tool in enumerate(self.tools)]

    def edit(self, lines: list[str]) -> None:
        share = self.chance.random() if self.line is None else self.line
        place, kind = round(share * (len(lines) - 1)), self.chance.random()
        if kind < 0.6 or len(lines) < 3:
            lines[place] = self.lines(1)[0]
        elif kind < 0.85:
            lines.insert(place, self.lines(1)[0])
        else:
            del lines[place]

    def body(self, question: str) -> Message:
        context, system, last = self.context(), self.instructions, question
        before = [{"role": "user", "content": context}, {"role": "assistant", "content": EDITABLE_ACK}]
        if self.place == "system":
            system = f"{system}\n{context}\nAnswer briefly.\n"
        elif self.place == "question":
            last = f"{context}\n{question}"
        front, tail = (before if self.place == place else [] for place in ("front", "tail"))
        head, asked = {"role": "system", "content": system}, {"role": "user", "content": last}
        return {"messages": [head, *front, *self.conversation(), *tail, asked]}

    def context(self) -> str:
        files = list(self.files.items())
        if self.is_shuffled and self.chance.random() < 0.3:
            self.chance.shuffle(files)
        texts = [(name, "\n".join(lines)) for name, lines in files]
        if self.form == "json":
            return "State:\n" + json.dumps(dict(texts), indent=1)
        pattern = {
            "tags": '<file path="{}">\n{}\n</file>\n',
            "documents": '<document id="{}">\n{}\n</document>\n',
            "headings": "## {}\n{}\n",
        }.get(self.form, "\n{}\n```\n{}\n```\n")
        opening = EDITABLE_OPENING if self.form == "aider" else "Here are the files:\n"
        return opening + "".join(pattern.format(name, text) for name, text in texts)

    def conversation(self) -> list[Message]:
        """What the client keeps of the turns before this one."""
        turns, window = self.turns, self.window
        if self.kept == "summary" and len(turns) > 2 * window:
            self.summary = [{"role": "user", "content": f"Before: {self.words(80)}"}]
            self.summary.append({"role": "assistant", "content": "Understood."})
            turns = self.turns = turns[-2:]
        elif self.kept == "window":
            turns = turns[-window:]
        elif self.kept == "first and window" and len(turns) > window:
            turns = [turns[0], *turns[-window:]]
        elif self.kept == "no results":
            cleared = [[{**m, "content": "[cleared]"} if m["role"] == "tool" else m for m in one] for one in turns[:-2]]
            turns = [*cleared, *turns[-2:]]
        return [*self.summary, *(message for turn in turns for message in turn)]
