"""The turns of a coding session with live panels, and the workspace that they show."""

from collections.abc import Iterator, Sequence
from random import Random

from proxy.core.structured.panels.panel import Panel
from proxy.core.value import dataclass, replace
from proxy.demo.sample import BEGIN, Message, assistant, user
from proxy.demo.source import NOUNS, SOURCE, function, source_file
from proxy.demo.tool_agent import exchange, read, tested

_FOLDERS = ("shop", "shop/web", "shop/reports", "shop/storage", "tests", "tests/web", "docs", "tools")
_FILES_A_FOLDER = 15
# The files that are open, by how many nouns each is about: about 3,800, 2,200 and 1,500 tokens.
_OPEN = (("shop/baskets.py", (0, 1, 2, 3, 4)), ("shop/invoices.py", (5, 6, 7)), ("shop/labels.py", (8, 9)))
_TASKS = 16
_CONSOLE_LINES = 45
_NOTES = 14
_CHANGED = 15


class Workspace:
    """One project and the tools around it. ``chance`` makes the decisions that people would make."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.changed: list[str] = []
        self.console: list[str] = []
        self.runs = self.edits = 0
        self.files = [source_file(path, f"About {path}.", nouns) for path, nouns in _OPEN]
        names = [NOUNS[number % len(NOUNS)][0] for number in range(_FILES_A_FOLDER)]
        self.paths = sorted(f"{folder}/{name}s_of_{folder[-4:]}.py" for folder in _FOLDERS for name in names)
        self.tasks = [(self._task(), False) for _ in range(_TASKS)]
        self.notes = [self._note() for _ in range(_NOTES)]
        self.work()

    def work(self) -> None:
        """Do a step of work: something is run, and the state of the repository changes."""
        self.runs += 1
        noun, _ = self.chance.choice(NOUNS)
        passed, seconds = self.chance.randrange(80, 400), self.chance.uniform(0.5, 30)
        lines = [f"$ pytest tests -k {noun} --maxfail=3", f"collected {passed} items", ""]
        for _ in range(self.chance.randrange(6, 16)):
            path, share = self.chance.choice(self.paths), self.chance.randrange(100)
            lines.append(f"{path} {'.' * self.chance.randrange(4, 30)} [{share:3d}%]")
        lines.append(f"===== {passed} passed in {seconds:.2f}s =====")
        self.console = [*self.console, *lines][-_CONSOLE_LINES:]
        path = self.chance.choice(self.paths)
        self.changed = [*(one for one in self.changed if one != path), path][-_CHANGED:]

    def edit(self) -> str:
        """Change one of the open files. Returns its path."""
        place = self.chance.randrange(len(self.files))
        file, self.edits = self.files[place], self.edits + 1
        if self.chance.random() < 0.4:
            made = function(self.chance.choice(SOURCE), self.chance.randrange(len(NOUNS)))
            self.files[place] = file.with_function(made)
        else:
            at = self.chance.randrange(len(file.functions))
            text = file.functions[at].text.replace('    """', f'    """(revised: {self.edits}) ', 1)
            functions = (*file.functions[:at], replace(file.functions[at], text=text), *file.functions[at + 1 :])
            self.files[place] = replace(file, functions=functions)
        return file.path

    def tick(self) -> None:
        """Replace a done task by a new one."""
        place = next((number for number, (_, is_done) in enumerate(self.tasks) if not is_done), 0)
        self.tasks[place] = (self.tasks[place][0], True)
        self.tasks = [*self.tasks[-_TASKS + 1 :], (self._task(), False)]

    def remember(self) -> None:
        """Write down a note, and drop the oldest one."""
        self.notes = [*self.notes[1:], self._note()]

    def create(self) -> None:
        """Add a file to the project."""
        folder, (noun, field_name) = self.chance.choice(_FOLDERS), self.chance.choice(NOUNS)
        self.paths = sorted({*self.paths, f"{folder}/{noun}_{field_name}_{self.runs}.py"})

    def panels(self) -> tuple[Panel, ...]:
        """The current state of all panels, in the order in which the client keeps them."""
        files = [Panel(f"file_{number}", "file", file.path, file.text) for number, file in enumerate(self.files, 1)]
        tasks = "".join(f"[{'x' if done else ' '}] {text}\n" for text, done in self.tasks)
        return (
            Panel("tree", "tree", "Project files", "\n".join(self.paths)),
            Panel("git", "git", "Repository", _status(self.changed, self.runs)),
            *files,
            Panel("todo", "todo", "Tasks", tasks),
            Panel("console", "console", "Console: tests", "\n".join(self.console)),
            Panel("memory", "memory", "Notes", "".join(f"- {note}\n" for note in self.notes)),
        )

    def _task(self) -> str:
        noun, field_name = self.chance.choice(NOUNS)
        wish = self.chance.choice(("make {} of {} optional", "test {} of a closed {}", "log each change of {} of {}"))
        return f"{wish.format(field_name, noun)}, see {self.chance.choice(self.paths)}"

    def _note(self) -> str:
        noun, field_name = self.chance.choice(NOUNS)
        return (
            f"The {field_name} of a {noun} is kept when it is saved, merged or exported. The user wants it to be asked "
            f"for where it is missing, and never guessed ({self.chance.choice(self.paths)})."
        )


def _status(changed: Sequence[str], runs: int) -> str:
    rows = "".join(f" M {path}\n" for path in sorted(changed))
    stat = "".join(f" {path} | {1 + (runs * 7 + number) % 30}\n" for number, path in enumerate(sorted(changed)))
    return f"On branch work, ahead of main by {1 + runs // 3} commits\n{rows}\ngit diff --stat\n{stat}"


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
# How often, in turns, the things change that do not change with every step.
_STEPS = ((8, Workspace.edit), (5, Workspace.tick), (30, Workspace.remember), (24, Workspace.create))
# Seconds between turns. An entry of the cache lives for five minutes.
_QUICK_S, _LONG_S = (20.0, 60.0), (400.0, 1500.0)
_CALLS, _CALL_S = (3, 8), (4.0, 20.0)
# P(the effect of a tool is visible in a panel).
_SHOWS = 0.6
_ASKS = (
    "Why is the {field} of a {noun} rounded here? I would have expected the exact amount in this place.",
    "Please make the {field} of a {noun} optional, here and wherever it is read.",
    "The {noun} page is slow. Tell me what you would look at first, and why.",
    "What happens to the {field} if two {noun}s are merged, and one of them is closed?",
)


@dataclass(frozen=True, slots=True)
class Pace:
    """The course of a session: the number of user turns, a pause of more than five minutes every ``pause_every`` turns
    (0: no pauses), and whether each turn is a loop of calls (``has_calls``). A prompt has up to ``most_pasted``
    functions in it, an answer one less."""

    turns: int
    pause_every: int = 0
    has_calls: bool = False
    most_pasted: int = 6
    seed: int = 4


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's content, independent of the form in which it is sent. ``done`` is the conversation so far, and
    ``prompt`` is the last user message. ``loop`` are the calls and results that have followed it."""

    at: float
    done: Sequence[Message]
    prompt: str
    loop: Sequence[Message]
    panels: tuple[Panel, ...]

    @property
    def conversation(self) -> list[Message]:
        """The whole conversation."""
        return [*self.done, user(self.prompt), *self.loop]


def turns(pace: Pace) -> Iterator[Turn]:
    """The requests of a session."""
    chance, at, done = Random(pace.seed), BEGIN, list[Message]()
    workspace = Workspace(Random(pace.seed))
    for number in range(1, pace.turns + 1):
        workspace.work()
        for every, change in _STEPS:
            if number % every == 0:
                change(workspace)
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
