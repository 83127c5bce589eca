"""A coding client that assembles its prompts by itself, in sections under fixed headers, and renders them all anew for
every request: the repository map and stable files in the system prompt, further files in pairs of messages, working
files in front of the conversation. It does not sort its files by how often they change, and it sets no markers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.talk import Body, assistant, chat, system, user

INCLUDED = "These files are included for reference:\n\n"
MAP = (
    "# Repository Structure\n\nBelow is a map of the repository showing classes, functions, and their relationships.\n"
    "Use this to understand the codebase structure and find relevant code.\n\n"
)
MORE_MAP = "# Repository Structure (continued)\n\n"
TREE = "# Repository Files\n\nComplete list of files in the repository:\n\n"
URLS = "# URL Context\n\nThe following content was fetched from URLs mentioned in the conversation:\n\n"
REVIEW = "# Code Review Context\n\n"
WORKING = "# Working Files\n\nHere are the files:\n\n"
TIERS = ("L0", "L1", "L2", "L3")
REFERENCE = {
    tier: f"# Reference Files{words}\n\n{INCLUDED}"
    for tier, words in zip(TIERS, (" (Stable)", "", " (L2)", " (L3)"), strict=True)
}
OK, OK_URLS, OK_REVIEW = "Ok.", "Ok, I've reviewed the URL content.", "Ok, I've reviewed the code changes."
REMINDER = "\n\n# Reminder\n\nClose every edit block, and copy anchors exactly."

_VERBS = ("read", "write", "parse", "merge", "check", "send", "store", "find")
_NOUNS = ("header", "token", "session", "record", "budget", "stream", "answer", "client")


def block(path: str, content: str) -> str:
    """A file in the form in which such clients show it."""
    return f"{path}\n```\n{content}\n```"


def section(header: str, files: list[str]) -> str:
    """Files under their header; an empty text without files."""
    return header + "\n\n".join(files) if files else ""


@dataclass(slots=True)
class Repository:
    """Files of code that somebody edits."""

    random: Random
    files: dict[str, list[str]] = field(default_factory=dict)

    def add(self, path: str, functions: int) -> None:
        """Add a new file."""
        self.files[path] = [self._function() for _ in range(functions)]

    def edit(self, path: str) -> None:
        """Replace one function by another."""
        lines = self.files[path]
        lines[self.random.randrange(len(lines))] = self._function()

    def _function(self) -> str:
        verb, noun = self.random.choice(_VERBS), self.random.choice(_NOUNS)
        number = self.random.randrange(10_000)
        return (
            f"def {verb}_{noun}_{number}(source: str, limit: int = {number % 97}) -> list[str]:\n"
            f'    """{verb.capitalize()} each {noun} of the source, up to the limit."""\n'
            f"    found = [part for part in source.split({noun!r}) if len(part) > {number % 13}]\n"
            f"    return found[:limit]\n"
        )

    def shown(self, path: str) -> str:
        """The file with its path and fences."""
        return block(path, "\n\n".join(self.files[path]))

    def symbols(self, path: str) -> str:
        """The file's entry in the repository map."""
        names = [line.partition("(")[0].removeprefix("def ") for line in self.files[path]]
        return f"{path}:\n" + "\n".join(f"  f {name}(source, limit)->list" for name in names) + "\n"


def repository(random: Random, files: int) -> Repository:
    """Files of several sizes."""
    found = Repository(random)
    for number in range(files):
        found.add(f"src/{_NOUNS[number % 8]}/{_VERBS[number * 5 % 8]}_{number}.py", random.choice((4, 8, 16, 30)))
    return found


def flat(requests: int = 24, seed: int = 1, *, in_system: bool = False) -> Iterator[Body]:
    """The map in the system prompt, then the tree, and all selected files before the conversation; with ``in_system``
    the selected files end the system prompt. A selected file is edited in each turn, and one is added from time to
    time."""
    random = Random(seed)
    code = repository(random, 40)
    paths = list(code.files)
    selected = paths[3:11]
    hot = selected[2:4] + selected[6:7]
    turns: list[Body] = []
    for number in range(requests):
        if number and number % 8 == 0:
            selected.insert(random.randrange(len(selected)), paths[11 + number // 8])
        head = instructions() + "\n\n" + MAP + "\n".join(code.symbols(path) for path in paths[14:])
        files = section(WORKING, [code.shown(path) for path in selected])
        tree = pair(TREE + f"# File Tree ({len(paths)} files)\n\n" + "\n".join(sorted(paths)), OK)
        context = [system(f"{head}\n{files}"), *tree] if in_system else [system(head), *tree, *pair(files, OK)]
        prompt = f"q{number}: please {random.choice(_VERBS)} the {random.choice(_NOUNS)} in {hot[number % 3]}."
        yield chat(*context, *turns, user(prompt + REMINDER))
        turns += [user(prompt), assistant(f"I have changed {hot[number % 3]}: " + "the limit is checked. " * 20)]
        code.edit(random.choice(hot))


def pair(text: str, acknowledgement: str) -> list[Body]:
    """A message of context and its acknowledgement."""
    return [user(text), assistant(acknowledgement)]


def instructions() -> str:
    """The client's own system prompt."""
    rules = [
        f"{number}. Read what is shown before you change it, and say what rule {number} asks." for number in range(40)
    ]
    return "You are an expert coding agent.\n\n# Rules\n\n" + "\n".join(rules)


def tiered(requests: int = 24, seed: int = 2, *, has_map_below: bool = True, is_calm: bool = False) -> Iterator[Body]:
    """Files in tiers that are not updated: stable files in the system prompt, further files with their part of the map
    in pairs of messages, then the tree, a fetched page and working files. Some files of each tier are edited; with
    ``is_calm``, none of those in the system prompt."""
    random = Random(seed)
    code = repository(random, 48)
    paths = list(code.files)
    held = {tier: paths[4 * n : 4 * n + 4] for n, tier in enumerate(TIERS)}
    mapped = {tier: paths[20 + 6 * n : 26 + 6 * n] for n, tier in enumerate(TIERS)}
    working = paths[16:20]
    turns: list[Body] = []
    for number in range(requests):
        head = instructions() + "\n\n" + MAP + "\n".join(map(code.symbols, mapped["L0"]))
        messages = [system(head + "\n" + section(REFERENCE["L0"], [code.shown(path) for path in held["L0"]]))]
        for tier in TIERS[1:]:
            entries = MORE_MAP + "\n".join(map(code.symbols, mapped[tier])) + "\n" if has_map_below else ""
            messages += pair(entries + section(REFERENCE[tier], [code.shown(path) for path in held[tier]]), OK)
        messages += pair(TREE + f"# File Tree ({len(paths)} files)\n\n" + "\n".join(sorted(paths)), OK)
        if number % 6 >= 4:
            messages += pair(URLS + f"A page about {number // 6}\n\n" + "It says this and that. " * 80, OK_URLS)
        messages += pair(section(WORKING, [code.shown(path) for path in working]), OK)
        edited = random.choice(
            working[1:3] * 4 + held["L3"][1:2] * 2 + held["L1"][2:3] + held["L0"][1 : 1 + (not is_calm)]
        )
        prompt = f"q{number}: please {random.choice(_VERBS)} the {random.choice(_NOUNS)} in {edited}."
        yield chat(*messages, *turns, user(prompt + REMINDER))
        turns += [user(prompt), assistant(f"I have changed {edited}: " + "the limit is checked. " * 20)]
        code.edit(edited)
