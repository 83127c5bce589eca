"""Two agents that call tools, and the files of a small shop application that they read.

The files are written by rule: realistic in size and shape, the same on every run.

Every request of the coding agent is the request before it with something appended. The instructions of the other agent
begin with the time of day: in the client's own order, nothing is ever read again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from proxy.kit.value import dataclass, replace
from proxy.lab.demo import BEGIN, DemoRequest, Message, Sample, assistant, chat, system, user

NOUNS = (
    ("order", "total"), ("basket", "weight"), ("customer", "balance"), ("supplier", "rating"), ("parcel", "distance"),
    ("invoice", "amount"), ("voucher", "discount"), ("crate", "capacity"), ("harvest", "yield_kg"), ("orchard", "area"),
    ("picker", "shift_hours"), ("payment", "fee"), ("refund", "reason_code"), ("stall", "rent"), ("season", "length"),
)  # fmt: skip

_FIND = '''
def find_@noun(store: Store, @noun_id: str) -> @Noun | None:
    """Return the @noun with that id, or None where there is none."""
    row = store.get("@noun", @noun_id)
    if row is None:
        log.debug("no @noun %s", @noun_id)
        return None
    return @Noun.from_row(row)
'''
_TOTAL = '''
def total_@field(@nouns: Iterable[@Noun], *, include_closed: bool = False) -> Decimal:
    """Add up the @field of each open @noun, and of the closed ones where they are asked for."""
    result = Decimal(0)
    for @noun in @nouns:
        if @noun.is_closed and not include_closed:
            continue
        result += @noun.@field or Decimal(0)
    return result.quantize(CENT)
'''
_CHECK = '''
def check_@noun(@noun: @Noun, rules: Rules) -> list[str]:
    """Return what is wrong with the @noun, worst first; an empty list means that it can be saved."""
    problems = []
    if not @noun.name.strip():
        problems.append("name is empty")
    if @noun.@field is not None and @noun.@field < rules.lowest_@field:
        problems.append(f"@field is below {rules.lowest_@field}")
    if @noun.updated_at < @noun.created_at:
        problems.append("updated before it was created")
    return problems
'''
_RANK = '''
def rank_@nouns(@nouns: Sequence[@Noun], limit: int = 20) -> list[@Noun]:
    """Return the @nouns with the largest @field, newest first where they are equal."""
    ordered = sorted(@nouns, key=lambda item: (item.@field or 0, item.created_at), reverse=True)
    return ordered[:limit]
'''
_CHANGE = '''
def change_@noun_@field(store: Store, @noun_id: str, value: Decimal, actor: Actor) -> @Noun:
    """Set the @field of one @noun and write the change to the audit log. Raises Missing where there is none."""
    with store.transaction() as transaction:
        row = transaction.get("@noun", @noun_id)
        if row is None:
            raise Missing("@noun", @noun_id)
        before = row["@field"]
        row["@field"] = value
        transaction.put("@noun", @noun_id, row)
        transaction.audit(actor.id, "@noun.@field", before, value)
    return @Noun.from_row(row)
'''
_EXPORT = '''
def export_@nouns(@nouns: Iterable[@Noun], writer: RowWriter) -> int:
    """Write every @noun as one row of a spreadsheet; return how many rows were written."""
    writer.header("id", "name", "@field", "created", "updated")
    count = 0
    for @noun in @nouns:
        writer.row(@noun.id, @noun.name, @noun.@field, @noun.created_at.isoformat(), @noun.updated_at.isoformat())
        count += 1
    return count
'''
_MERGE = '''
def merge_@nouns(kept: @Noun, removed: @Noun) -> @Noun:
    """Merge two records of the same @noun: the kept one wins, empty fields are filled from the removed one."""
    return replace(
        kept,
        name=kept.name or removed.name,
        @field=kept.@field if kept.@field is not None else removed.@field,
        created_at=min(kept.created_at, removed.created_at),
        updated_at=max(kept.updated_at, removed.updated_at),
    )
'''
_TEST = """
def test_@noun_without_@field_is_refused(store: Store) -> None:
    @noun = make_@noun(store, name="first", @field=None)
    problems = check_@noun(@noun, Rules(lowest_@field=Decimal(1)))
    assert problems == []
    assert total_@field([@noun]) == Decimal(0)
    assert find_@noun(store, @noun.id) == @noun
    assert rank_@nouns([@noun], limit=0) == []
    assert export_@nouns([@noun], MemoryWriter()) == 1
    assert merge_@nouns(@noun, replace(@noun, name="other")).name == "first"
    assert change_@noun_@field(store, @noun.id, Decimal(2), NOBODY).@field == Decimal(2)
"""
_TEST_LOOKUP = """
def test_@noun_is_found_by_its_id(store: Store) -> None:
    @noun = make_@noun(store, name="second")
    assert find_@noun(store, @noun.id) == @noun
    assert find_@noun(store, "no such id") is None
"""
_TEST_NAME = """
def test_@noun_with_a_long_name_is_refused(store: Store) -> None:
    @noun = make_@noun(store, name="x" * 201)
    assert check_@noun(@noun, Rules()) == ["name does not fit the label"]
"""
# Source files are made of the first seven.
TEMPLATES = (_FIND, _TOTAL, _CHECK, _RANK, _CHANGE, _EXPORT, _MERGE, _TEST, _TEST_LOOKUP, _TEST_NAME)
SOURCE, TEST, TEST_LOOKUP, TEST_NAME = range(7), 7, 8, 9

_HEAD = '''"""@title"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from logging import getLogger

from shop.base import Actor, Missing, RowWriter, Rules, Store
from shop.records import @records

CENT = Decimal("0.01")
log = getLogger(__name__)

'''
_HEAD_OF_TESTS = '"""@title"""\n\nfrom decimal import Decimal\n\nfrom shop.testing import *\n\n'


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a file."""

    name: str
    text: str

    @property
    def signature(self) -> str:
        """Its first line."""
        return self.text.lstrip("\n").partition("\n")[0]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file. ``text`` is its whole text."""

    path: str
    head: str
    functions: tuple[Function, ...]

    @property
    def text(self) -> str:
        """Its content."""
        return self.head + "\n".join(function.text for function in self.functions)

    def with_change(self, index: int, old: str, new: str) -> "SourceFile":
        """The file with a text of one function replaced, once."""
        function = self.functions[index]
        assert old in function.text, f"{function.name} has no such line"
        changed = replace(function, text=function.text.replace(old, new, 1))
        return replace(self, functions=(*self.functions[:index], changed, *self.functions[index + 1 :]))

    def with_function(self, function: Function) -> "SourceFile":
        """The file with a further function at its end."""
        return replace(self, functions=(*self.functions, function))


def source_file(
    path: str, title: str, nouns: Sequence[int], templates: Sequence[int] = SOURCE, head: str = _HEAD
) -> SourceFile:
    """A file with one function for each pair of noun and template (by their numbers)."""
    names = [NOUNS[i % len(NOUNS)] for i in nouns]
    records = ", ".join(sorted({noun.capitalize() for noun, _ in names}))
    begun = head.replace("@title", title).replace("@records", records)
    return SourceFile(path, begun, tuple(_functions(names, [TEMPLATES[i] for i in templates])))


def file_of_tests(path: str, title: str, nouns: Sequence[int]) -> SourceFile:
    """A file of tests."""
    return source_file(path, title, nouns, (TEST,), _HEAD_OF_TESTS)


def function(template: int, noun: int) -> Function:
    """One function that is in no file yet."""
    return next(_functions([NOUNS[noun % len(NOUNS)]], [TEMPLATES[template]]))


def _functions(names: Sequence[tuple[str, str]], templates: Sequence[str]) -> Iterator[Function]:
    for noun, field in names:
        for template in templates:
            text = template.replace("@nouns", noun + "s").replace("@noun", noun)
            text = text.replace("@Noun", noun.capitalize()).replace("@field", field)
            yield Function(text.partition("def ")[2].partition("(")[0], text)


_INSTRUCTIONS = """You are a coding agent. You work in the user's repository with the tools that you are given, and you
stop when the task is done and the tests pass.

# How you work
- Look before you change anything: list, search, read. Read a file before you edit it.
- Make the smallest change that does what was asked. Keep to the style of the file.
- Do not add comments that repeat the code. Do not change what you were not asked to change.
- After a change run the tests that touch it, then the whole suite once.
- If a command fails, read its output, say in one sentence why it failed, and correct that.
- Never commit, push, or touch anything outside the repository unless the user asks for it.
- Call several tools at once where their results do not depend on each other.

# How you answer
- Short. No preamble, no summary of what the tools said.
- Name files with their path, and places with path:line.
- When you are done, say what changed and what you ran, in at most five lines.

# What you must not do
- Do not invent results of commands, names of files, or the content of files.
- Do not weaken a test so that it passes. Where a test is wrong, say so and stop.
- Do not print secrets, keys or tokens, and do not put them into files.

<env>
Working directory: /home/dev/shop
Is directory a git repo: yes
Platform: linux
</env>
"""

_TOOLS = (
    ("list_files", "List the files below a folder, sorted by path. Folders that git ignores are left out.",
     {"folder": "The folder, relative to the repository", "depth": "How many levels down, 2 by default"}),
    ("search", "Search the contents of files for a regular expression. Gives path, line number and the line.",
     {"pattern": "The expression, in Python's syntax", "folder": "Where to search", "glob": "Which file names, *.py"}),
    ("read_file", "Read a text file. Gives the lines with their numbers, at most 2000 of them.",
     {"path": "The file, relative to the repository", "offset": "The first line", "limit": "How many lines"}),
    ("edit_file", "Replace one text in a file by another. The old text must stand in the file exactly once.",
     {"path": "The file", "old": "The text that stands there, with its white space", "new": "The text instead of it"}),
    ("write_file", "Write a file anew, whole. A file that exists is replaced.",
     {"path": "The file", "content": "All of its text"}),
    ("run", "Run a command in the repository, without a terminal, for at most two minutes. Gives exit code and output.",
     {"command": "The command line, for bash", "timeout_s": "A shorter limit in seconds"}),
    ("run_tests", "Run pytest. Gives the summary, and the output of the tests that failed.",
     {"paths": "Files or folders, separated by blanks", "expression": "Only tests whose name matches"}),
    ("todo", "Keep the list of what is still to be done. Give the whole list each time.",
     {"items": "One task a line, those that are done marked with x"}),
)  # fmt: skip


def tools(count: int = len(_TOOLS)) -> list[dict[str, Any]]:
    """Definitions in OpenAI's form."""
    found = []
    for name, text, arguments in _TOOLS[:count]:
        properties = {key: {"type": "string", "description": value} for key, value in arguments.items()}
        schema = {"type": "object", "properties": properties, "required": list(arguments)[:1]}
        found.append({"type": "function", "function": {"name": name, "description": text, "parameters": schema}})
    return found


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of the model: its text, its tool calls, and their results."""

    words: str
    calls: tuple[tuple[str, dict[str, str]], ...]
    results: tuple[str, ...]


Task = tuple[int, str, Sequence[Round], str]
"""The number of the first round, the prompt, the rounds, and the last answer."""


def tool_agent() -> Sample:
    """Two tasks, 25 requests."""

    requests = _requests(
        BEGIN + 30,
        _tasks(),
        lambda at, messages: chat([system(_INSTRUCTIONS), *messages], stream=True, tools=tools(), tool_choice="auto"),
        lambda number: 6 + number % 4 * 5,
        rest_s=190,
    )
    return Sample("agent", "tool-calling agent", tuple(requests))


def _requests(
    at: float,
    tasks: Iterable[Task],
    body: Callable[[float, Sequence[Message]], dict[str, Any]],
    pause_s: Callable[[int], float],
    rest_s: float,
) -> Iterator[DemoRequest]:
    """The requests of a session: one after each prompt, and one after each round. ``pause_s`` is the time that a round
    takes, by its number, and ``rest_s`` is the time between an answer and the next prompt."""
    messages: list[Message] = []
    for first, prompt, rounds, answer in tasks:
        messages.append(user(prompt))
        for number, step in enumerate(rounds, first):
            yield DemoRequest(at, body(at, messages))
            messages += exchange(number, step)
            at += pause_s(number)
        yield DemoRequest(at, body(at, messages))
        messages.append(assistant(answer))
        at += rest_s


def exchange(number: int, step: Round) -> Iterator[Message]:
    """The model's message with its calls, and the results."""
    ids = [f"call_{number:02d}{place}" for place in range(len(step.calls))]
    calls = [
        {"id": one, "type": "function", "function": {"name": name, "arguments": orjson.dumps(arguments).decode()}}
        for one, (name, arguments) in zip(ids, step.calls, strict=True)
    ]
    yield {"role": "assistant", "content": step.words, "tool_calls": calls}
    for one, result in zip(ids, step.results, strict=True):
        yield {"role": "tool", "tool_call_id": one, "content": result}


def _tasks() -> Iterator[Task]:
    sources = repository()
    yield (
        0,
        "Parcels heavier than 30 kg cannot be sent any more. Find where weights are checked and add the limit.",
        [
            listed(sources),
            searched("weight", sources),
            *(read(file) for file in sources[:4]),
            edited(sources[0]),
            tested("tests/test_parcels.py", 1),
            read(sources[4]),
            edited(sources[4]),
            tested("tests/test_parcels.py", 0),
            tested("tests", 0),
        ],
        "The limit is in `shop/parcels.py`; the test that expected 31 kg to pass now uses 30. `pytest tests`: passed.",
    )
    yield (
        12,
        "Good. The web site shows the fee before the parcel is weighed. Make it use the same check.",
        [
            searched("fee", sources),
            *(read(file) for file in sources[5:8]),
            edited(sources[5]),
            tested("tests/test_site.py", 1),
            searched("check_parcel", sources),
            edited(sources[6]),
            tested("tests/test_site.py", 0),
            read(sources[7]),
            tested("tests", 0),
        ],
        "`shop/site.py` asks `check_parcel` before it shows a fee. `pytest tests`: passed.",
    )


def repository() -> list[SourceFile]:
    """Eight files that the agent may read."""
    names = ("parcels", "weights", "baskets", "labels", "fees", "site", "forms")
    files = [source_file(f"shop/{n}.py", f"About {n}.", (i, i + 4, i + 9)[: 1 + i % 3]) for i, n in enumerate(names, 1)]
    return [*files[:4], file_of_tests("tests/test_parcels.py", "Tests of parcels.", range(6)), *files[4:]]


def listed(files: Sequence[SourceFile]) -> Round:
    """A listing."""
    paths = [file.path for file in files] + [f"shop/area_{i}/service.py" for i in range(14)]
    return Round("I look around first.", (("list_files", {"folder": "."}),), ("\n".join(sorted(paths)),))


def searched(word: str, files: Sequence[SourceFile]) -> Round:
    """A search."""
    lines = [
        f"{file.path}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.text.splitlines(), 1)
        if word in line
    ]
    return Round("", (("search", {"pattern": word, "folder": "shop"}),), ("\n".join(lines[:60]) or "nothing found",))


def read(file: SourceFile) -> Round:
    """A whole file with line numbers."""
    text = "".join(f"{number:5d}\t{line}\n" for number, line in enumerate(file.text.splitlines(), 1))
    return Round("", (("read_file", {"path": file.path}),), (text,))


def edited(file: SourceFile) -> Round:
    """An edit of a file."""
    old = file.functions[0].signature
    arguments = {"path": file.path, "old": old, "new": f"# The carrier's limit.\nHEAVIEST_KG = 30\n\n\n{old}"}
    return Round("I make the change.", (("edit_file", arguments),), (f"{file.path}: 1 replacement",))


def tested(paths: str, failures: int) -> Round:
    """A run of the tests."""
    shown = f"{failures} failed, " if failures else ""
    detail = "E   AssertionError: assert ['weight is above 30'] == []\n" * failures
    result = f"collected 84 items\n\n{paths} {'.' * 40}\n{detail}{shown}{84 - failures} passed in 3.1{len(paths)}s"
    return Round("", (("run_tests", {"paths": paths}),), (result,))


_STOCK_RULES = """You keep the shop's stock in order. You answer the staff's questions and change records for them.

# Stock
- A crate is free when it holds nothing and is not booked for tomorrow. Never book a crate twice.
- A harvest is entered on the day it comes in, with the orchard, the kind, the weight in kilograms and the picker.
- Weights are entered as they were read, never rounded. Where the scale showed nothing, enter nothing and say so.
- What is older than nine days is taken out of the shop and entered as waste, with the reason.
- Before anything is deleted, say what will be lost, and wait for a yes.

# Orders
- An order that was paid is changed only by a refund and a new order.
- Promise a day of delivery only where the route of that day still has room, and never for today after 14:00.
- Subscriptions are delivered on the same day of every week; a holiday moves them to the day before.
- A customer who has complained twice in a month gets a call, not a letter: put the number on the list.

# How you use the tools
- Search before you read, read before you change. One change at a time.
- After a change read the record again, and show it as it is now.
- If a tool fails, say which one and what it said. Do not try the same call more than twice.
- Records of people are shown only to those who look after them. When in doubt, ask who is asking.

# How you write
- In the language of the question, in whole sentences, without greetings.
- Amounts with the currency behind the number, weights in kg, days as "Tuesday, 3 March".
- Where there are more than five records, give the five that matter and the number of the others.
- No guesses. "I do not know" is a good answer where it is true; say what would have to be looked up.
"""

_QUESTIONS = (
    "How many crates are free for tomorrow's harvest?",
    "Book three of them for the early apples, please.",
    "Which orders can we still promise for today?",
)


def clock_agent() -> Sample:
    """Three questions, 21 requests."""

    answer = "Done. The records are as you asked; nothing else was changed."
    tasks = ((10 * turn, question, _rounds(turn), answer) for turn, question in enumerate(_QUESTIONS))
    requests = _requests(
        BEGIN + 47,
        tasks,
        lambda at, messages: chat([system(instructions(at)), *messages], stream=False, tools=tools(6)),
        lambda number: 9 + number % 10 * 4,
        rest_s=75,
    )
    return Sample("clock", "agent told the time", tuple(requests))


def instructions(at: float) -> str:
    """The system prompt. It is made anew for every request."""
    now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"Current date and time: {now} UTC\n\n{_STOCK_RULES}"


def _rounds(turn: int) -> Sequence[Round]:
    files = repository()
    return [
        searched(("crate", "parcel", "order")[turn], files),
        read(files[turn]),
        read(files[turn + 3]),
        edited(files[turn]),
        read(files[6 - turn]),
        tested("tests/test_stock.py", 0),
    ]
