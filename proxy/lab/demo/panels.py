"""Coding sessions with live panels: the same turns as unsorted context messages, and as panels.

A panel is a view of the user's project that the client keeps up to date: the tree of files, a file, the state of the
repository, a console. The client sends all of its panels with every request, because the model shall see their current
state. A ``Workspace`` is the project that the panels show. ``turns`` makes the turns of a session; a fixed seed
determines the changes of each turn, which are not chosen to suit a form. ``sendings`` sends the turns in a
``PanelForm``: system prompt, conversation and prompt are the same in all forms. A ``Scenario`` says what the forms may
cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from random import Random

from rich.table import Table

from proxy.context.panels import Panel
from proxy.kit.value import dataclass
from proxy.lab.demo import BEGIN, Message, Sending, Tally, Wanted, added_up, assistant, chat, shown_table, system, user
from proxy.lab.demo.tool_agent import NOUNS, SOURCE, exchange, function, read, source_file, tested
from proxy.lab.replay import OURS, Setting
from proxy.protocol.prices import Price

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
            self.files[place] = file.with_change(at, '    """', f'    """(revised: {self.edits}) ')
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
            Panel("git", "git", "Repository", self._status()),
            *files,
            Panel("todo", "todo", "Tasks", tasks),
            Panel("console", "console", "Console: tests", "\n".join(self.console)),
            Panel("memory", "memory", "Notes", "".join(f"- {note}\n" for note in self.notes)),
        )

    def _status(self) -> str:
        changed, runs = sorted(self.changed), self.runs
        rows = "".join(f" M {path}\n" for path in changed)
        stat = "".join(f" {path} | {1 + (runs * 7 + number) % 30}\n" for number, path in enumerate(changed))
        return f"On branch work, ahead of main by {1 + runs // 3} commits\n{rows}\ngit diff --stat\n{stat}"

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
class PanelTurn:
    """One request's content, independent of the form in which it is sent. The conversation ends in the prompt, or in
    the result of the newest call."""

    at: float
    conversation: Sequence[Message]
    panels: tuple[Panel, ...]


def turns(pace: Pace) -> Iterator[PanelTurn]:
    """The requests of a session."""
    chance, at, done = Random(pace.seed), BEGIN, list[Message]()
    workspace = Workspace(Random(pace.seed))
    for number in range(1, pace.turns + 1):
        workspace.work()
        for every, change in _STEPS:
            if number % every == 0:
                change(workspace)
        done.append(user(_ask(chance, pace.most_pasted)))
        for call in range(chance.randint(*_CALLS) if pace.has_calls else 0):
            yield PanelTurn(at, [*done], workspace.panels())
            step = read(workspace.files[0]) if call % 4 == 3 else tested("tests", call % 2)
            done += exchange(10 * number + call, step)
            at += chance.uniform(*_CALL_S)
            if chance.random() < _SHOWS:
                workspace.work()
        yield PanelTurn(at, [*done], workspace.panels())
        done.append(assistant(_answer(chance, pace.most_pasted)))
        is_long = pace.pause_every and number % pace.pause_every == 0
        at += chance.uniform(*(_LONG_S if is_long else _QUICK_S))


def _ask(chance: Random, most_pasted: int) -> str:
    noun, field = chance.choice(NOUNS)
    pasted = _code(chance, chance.randint((most_pasted + 1) // 2, most_pasted))
    return f"{chance.choice(_ASKS).format(noun=noun, field=field)}\n\nThis is what I look at:\n```python\n{pasted}```\n"


def _answer(chance: Random, most_pasted: int) -> str:
    noun, field = chance.choice(NOUNS)
    code = _code(chance, chance.randint((most_pasted + 1) // 3, most_pasted - 1))
    return (
        f"The {field} of a {noun} is not the point; this is how I would write it:\n```python\n{code}```\n"
        "Nothing else changes."
    )


def _code(chance: Random, count: int) -> str:
    return "\n".join(function(chance.choice(SOURCE), chance.randrange(len(NOUNS))).text for _ in range(count))


SEEN = "Thank you. I know the state of the project now."


class PanelForm(StrEnum):
    """The way in which a session is sent, and in which the proxy then handles it.

    ``UNTOUCHED``: the panels are messages in front of the conversation, in the client's order, and the proxy forwards
    them untouched. ``CONTEXT``: the same messages, which the proxy lays out as far as it understands them. ``PANELS``:
    the panels are structured context, and the proxy puts them into the conversation. ``FREEZING``: the same, and old
    parts of the conversation are frozen.
    """

    UNTOUCHED = "context messages, as they come"
    CONTEXT = "context messages, planned"
    PANELS = "live panels"
    FREEZING = "live panels, freezing"

    @property
    def has_panels(self) -> bool:
        """Whether the panels are sent as structured context."""
        return self in (PanelForm.PANELS, PanelForm.FREEZING)


def sendings(form: PanelForm, turns: Sequence[PanelTurn], session: str) -> Iterator[Sending]:
    """The requests of one form."""
    is_frozen = form is PanelForm.FREEZING
    for turn in turns:
        shown = [] if form.has_panels else _shown(turn)
        body = chat([system(RULES), *shown, *turn.conversation], stream=False, temperature=0)
        if form.has_panels:
            section = {"session": session, "panels": list(map(asdict, turn.panels)), "detach": is_frozen}
            body["extra_body"] = {"stratiform": section}
        panels = {f"panel {panel.id}": panel.content for panel in turn.panels}
        yield Sending(turn.at, body, Wanted(turn.conversation, panels, is_frozen=is_frozen))


def _shown(turn: PanelTurn) -> list[Message]:
    """The messages of a client that shows all of its panels in a fixed order, each time anew. Like such clients, it
    tells the time. The time is next to the state of the repository, which changes with each turn anyway."""
    times = {"git": f" (as of {datetime.fromtimestamp(turn.at, UTC):%Y-%m-%d %H:%M:%S})"}
    shown = [user(f"# {panel.header}{times.get(panel.kind, '')}\n\n{panel.content}") for panel in turn.panels]
    return [*shown, assistant(SEEN)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A session, the forms in which it is sent, and the goals for live panels. They may cost at most ``most_share`` of
    the same requests without a cache, and ``most_ratio`` of each other form. After ten turns, at least ``least_read``
    of the prompt tokens must be read from the cache. At most ``most_live`` messages may follow the frozen ones. No
    prompt may have more than ``most_prompt`` tokens. 0: there is no such goal."""

    name: str
    words: str
    pace: Pace
    forms: tuple[PanelForm, ...]
    most_share: float = 0.0
    most_ratio: float = 0.0
    least_read: float = 0.0
    most_live: int = 0
    most_prompt: int = 0


WINDOW_TOKENS = 200_000
"""The most tokens that the demo's model reads (https://platform.claude.com/docs/en/about-claude/models/overview)."""

_ALL, _TWO = (PanelForm.UNTOUCHED, PanelForm.CONTEXT, PanelForm.PANELS), (PanelForm.UNTOUCHED, PanelForm.PANELS)
SCENARIOS = (
    Scenario("chat", "60 turns, eight panels", Pace(60), _ALL, most_share=0.25, most_ratio=0.5),
    Scenario("pauses", "the same, two pauses beyond the life", Pace(60, pause_every=20), _TWO, most_ratio=0.5),
    Scenario("loops", "12 turns of 3 to 8 calls each", Pace(12, has_calls=True), _ALL, most_share=0.25, most_ratio=0.5),
    Scenario(
        "long",
        "300 turns, frozen",
        Pace(300, most_pasted=2),
        (PanelForm.FREEZING,),
        least_read=0.85,
        most_live=80,
        most_prompt=WINDOW_TOKENS,
    ),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal, and the value that the session has reached. ``bound`` says whether ``found`` must be at most or at
    least ``wanted``."""

    words: str
    found: float
    wanted: float
    bound: str = "at most"

    @property
    def is_reached(self) -> bool:
        """Whether the goal is reached."""
        return self.found <= self.wanted if self.bound == "at most" else self.found >= self.wanted


@dataclass(frozen=True, slots=True)
class PanelComparison:
    """All forms of one session."""

    scenario: Scenario
    tallies: Mapping[PanelForm, Tally]

    def goals(self) -> list[Goal]:
        """The goals of live panels, after everything was sent."""
        scenario = self.scenario
        ours = next(tally for form, tally in self.tallies.items() if form.has_panels)
        others = {form: tally for form, tally in self.tallies.items() if tally is not ours}
        goals = (
            Goal("of no caching", ours.share(), scenario.most_share),
            *(
                Goal(f"of '{form}'", ours.usd[OURS] / one.usd[OURS], scenario.most_ratio)
                for form, one in others.items()
            ),
            Goal("read after ten turns", ours.late.hit_rate, scenario.least_read, "at least"),
            Goal("live messages", ours.most_live, scenario.most_live),
            Goal("tokens of the longest prompt", ours.most_prompt, scenario.most_prompt),
        )
        return [goal for goal in goals if goal.wanted]


def comparison(scenario: Scenario, setting: Setting, price: Price) -> PanelComparison:
    """A session in every form, before anything is sent."""
    steps, session = list(turns(scenario.pace)), f"{scenario.name}-session"
    return PanelComparison(
        scenario,
        {
            form: Tally(
                f"panels-{scenario.name}-{form.name.lower()}",
                form.value,
                tuple(sendings(form, steps, session)),
                setting,
                price,
                headers={"x-stratiform-mode": "passthrough"} if form is PanelForm.UNTOUCHED else {},
            )
            for form in scenario.forms
        },
    )


def table_of(one: PanelComparison) -> Table:
    title = f"{one.scenario.name}: {one.scenario.words}"
    table = shown_table(title, ("sent", "tokens", "cached", "USD", "of no caching"))
    for tally in one.tallies.values():
        table.add_row(
            tally.words,
            f"{tally.requests}/{len(tally.sendings)}",
            f"{tally.ours.prompt:,}",
            f"{tally.ours.hit_rate:.0%}",
            f"{tally.usd[OURS]:.4f}",
            f"{tally.share():.3f}" if tally.requests else "",
        )
    return table


def summary_of(compared: Sequence[PanelComparison]) -> Iterator[tuple[str, bool]]:
    """The goals of all sessions in words, and whether they were reached."""
    for one in compared:
        for goal in one.goals():
            shown = [f"{number:.0f}" if number >= 1 else f"{number:.3f}" for number in (goal.found, goal.wanted)]
            told = f"{goal.words} {shown[0]}, asked for {goal.bound} {shown[1]}"
            yield f"{one.scenario.name}: {told}: {'reached' if goal.is_reached else 'MISSED'}", goal.is_reached


def report_of(one: PanelComparison) -> dict[str, object]:
    return {
        "name": one.scenario.name,
        "turns": one.scenario.pace.turns,
        "forms": [
            {
                "form": tally.words,
                "requests": tally.requests,
                "prompt_tokens": tally.ours.prompt,
                "hit_rate": tally.ours.hit_rate,
                "hit_rate_after_ten_turns": tally.late.hit_rate,
                "usd": {"sent": tally.usd[OURS], "no caching": tally.uncached_usd},
                "share": tally.share(),
            }
            for tally in one.tallies.values()
        ],
        "goals": [
            {
                "what": goal.words,
                "found": goal.found,
                goal.bound.replace(" ", "_"): goal.wanted,
                "is_reached": goal.is_reached,
            }
            for goal in one.goals()
        ],
        "losses": added_up(one.tallies.values()).losses,
    }
