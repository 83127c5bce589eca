"""Coding sessions that follow a git history, in two forms: as an editor chat sends them, and as structured context.

A ``History`` has the files of a package or of a repository, and commits. Only the commits determine which files are
selected in which turn, what the user asks for, and what the model answers. Nothing is chosen to suit a form.

Two histories are made of an installed package, whose files they end with (``quiet``, ``busy``). Parts of the files are
missing at first, and are added commit by commit. Such a history is made backwards: the last commit adds some function,
method, class or guard, so the state before it is the file without that part; and so on to the first commit. The commits
of the quiet history change one file each and stay with that file for a while. The commits of the busy history change a
file and up to three files that import it or are imported by it. A hash of a part's name decides when the part comes, so
nobody has chosen the order, and the same package always gives the same history. ``read_history`` takes the last commits
of any git repository instead.

A session has one turn for each commit (``turns``). The user asks for the change that the commit's message describes.
The answer is the commit's change, as SEARCH/REPLACE blocks. Then the editor commits it. The selected files of a turn
are those that this commit, the commit before it and the commit after it change. ``sendings`` sends the turns in a
``TurnForm``: system prompt, history and prompt are the same in all forms.
"""

import ast
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.table import Table
from rich.text import Text

from proxy.client import Context
from proxy.kit.value import dataclass
from proxy.lab.demo import BEGIN, Message, Sending, Tally, Wanted, added_up, assistant, chat, shown_table, system, user
from proxy.lab.demo.chats import FILES_ACK, RULES, answer, committed, shown
from proxy.lab.replay import OURS, SYSTEM_LAST, Setting
from proxy.protocol.prices import Price


@dataclass(frozen=True, slots=True)
class Commit:
    """``changes`` has the whole new text by path; None if the commit removes the file."""

    message: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class History:
    """``files`` are the texts by path before the first commit. ``source`` describes their origin in a few words."""

    name: str
    source: str
    files: Mapping[str, str]
    commits: Sequence[Commit]

    def states(self) -> list[Mapping[str, str]]:
        """The files before each commit, and after the last one."""
        states = [self.files]
        for commit in self.commits:
            files = dict(states[-1])
            for path, text in commit.changes.items():
                if text is None:
                    files.pop(path, None)
                else:
                    files[path] = text
            states.append(MappingProxyType(files))
        return states


def neighbours(files: Mapping[str, str]) -> dict[str, set[str]]:
    """For each path: the files that it imports, and the files that import it. A file that is not a Python module has
    none."""
    modules = {_module(path): path for path in files if path.endswith(".py")}
    near: dict[str, set[str]] = {path: set() for path in files}
    for name, path in modules.items():
        for imported in _imports(files[path], name, is_package=path.endswith("/__init__.py")):
            other = modules.get(imported) or modules.get(imported.rpartition(".")[0])
            if other is not None and other != path:
                near[path].add(other)
                near[other].add(path)
    return near


def _parsed(text: str) -> ast.Module | None:
    """The syntax tree of a Python module; None if the text is not a Python module."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _module(path: str) -> str:
    path = path.removeprefix("src/").removeprefix("lib/")
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(text: str, name: str, *, is_package: bool) -> Iterator[str]:
    """The dotted names that a module imports at any place."""
    module = _parsed(text)
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # The dots of a relative import stand for the first parts of the module's own name.
            parts = name.split(".")
            own = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join(filter(None, [*own, node.module]))
            yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)


_MOST_LINES = 60
_MOST_GUARD_LINES = 12
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole lines of a text, ``start`` included and ``end`` excluded, counted from 0. ``name`` is dotted, as
    ``Request.cookies``; a guard has the name of its function."""

    name: str
    is_guard: bool
    start: int
    end: int


def units_of(text: str) -> list[Unit]:
    """The units in their order. A text that is not a Python module has none."""
    module, lines = _parsed(text), text.splitlines(keepends=True)
    # Python's parser counts only line feeds; ``splitlines`` also ends a line at a form feed.
    return list(_units(module, lines)) if module is not None and len(lines) == text.count("\n") else []


def without(text: str, unit: Unit) -> str:
    """The text without the unit's lines."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[: unit.start] + lines[unit.end :])


def _units(module: ast.Module, lines: list[str]) -> Iterator[Unit]:
    for node in module.body:
        if isinstance(node, _Function):
            yield from _of_function(node, node.name, lines)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, _Function) and len(node.body) > 1:
                    yield from _of_function(inner, f"{node.name}.{inner.name}", lines)
            yield from _whole(node, node.name, lines)


def _of_function(node: _Function, name: str, lines: list[str]) -> Iterator[Unit]:
    """The guards of a function, and the function itself."""
    for statement in node.body:
        if isinstance(statement, ast.If) and not statement.orelse and len(node.body) > 1:
            start, end = statement.lineno - 1, statement.end_lineno or statement.lineno
            if end - start <= _MOST_GUARD_LINES and lines[start].lstrip().startswith("if "):
                yield Unit(name, True, _with_comments(start, lines), end)
    if not node.name.startswith("__"):
        yield from _whole(node, name, lines)


def _whole(node: _Function | ast.ClassDef, name: str, lines: list[str]) -> Iterator[Unit]:
    """A definition with its decorators, the comments above it, and the empty lines above the comments."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    start, end = _with_comments(first, lines), node.end_lineno or node.lineno
    if end - start > _MOST_LINES:
        return
    while start > 0 and not lines[start - 1].strip():
        start -= 1
    yield Unit(name, False, start, end)


def _with_comments(start: int, lines: list[str]) -> int:
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start


PACKAGE = "starlette"
"""The proxy itself needs this package, so it is always installed with the proxy."""
TURNS = 30
_STRETCH = 6
_FEWEST_UNITS = 14
_MOST_USERS = 3


# A commit to be made: paths, and how many of them it changes. It takes the first ones that still have a part to take
# away.
_Step = tuple[Sequence[str], int]


def installed_files(name: str) -> dict[str, str]:
    """The Python files of an installed package by path, in the order of the paths. Raises OSError, UnicodeDecodeError,
    and ValueError if there is no such package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {name} is not installed")
    folder = Path(spec.submodule_search_locations[0])
    found = sorted(path for path in folder.rglob("*.py") if path.is_file())
    return {path.relative_to(folder.parent).as_posix(): path.read_text("utf-8") for path in found}


def package_source(name: str) -> str:
    """Name and version of an installed package, to be shown."""
    return f"{name} {importlib.metadata.version(name)}"


def quiet(source: str, files: Mapping[str, str], turns: int = TURNS) -> History:
    """One file a commit, and several commits in a row for each file. Raises ValueError if the files have too few
    parts."""
    rich = [path for path, text in files.items() if len(units_of(text)) >= _FEWEST_UNITS]
    if not rich:
        raise ValueError(f"the files of {source} are too small to make a history of them")
    order = sorted(rich, key=_chance)
    return _history("quiet", source, files, [([order[n // _STRETCH % len(order)]], 1) for n in range(turns)])


def busy(source: str, files: Mapping[str, str], turns: int = TURNS) -> History:
    """Two to four files a commit, spread over the package. Raises ValueError if the files have too few parts."""
    near = neighbours(files)
    order = [path for path in sorted(files, key=_chance) if units_of(files[path]) and near[path]]
    if not order:
        raise ValueError(f"the files of {source} are too small to make a history of them")
    plan: list[_Step] = []
    for number in range(turns):
        first = order[number % len(order)]
        others = sorted(near[first], key=lambda path: _chance(f"{number} {path}"))
        plan.append(([first, *others], 2 + number % _MOST_USERS))
    return _history("busy", source, files, plan)


def _history(name: str, source: str, files: Mapping[str, str], plan: Sequence[_Step]) -> History:
    """Take parts away from the last commit of the plan to the first one, then reverse the order."""
    state, commits = dict(files), list[Commit]()
    for paths, most in reversed(plan):
        after, units = dict[str, str](), list[Unit]()
        for path in paths:
            unit = _next_unit(state[path], units) if len(after) < most else None
            if unit is not None:
                after[path], state[path] = state[path], without(state[path], unit)
                units.append(unit)
        if after:
            commits.append(Commit(_message(list(after), units), after))
    if len(commits) < len(plan):
        raise ValueError(f"the files of {source} have too few parts for a history of {len(plan)} commits")
    return History(name, source, state, tuple(reversed(commits)))


def _next_unit(text: str, others: Sequence[Unit]) -> Unit | None:
    """The part to take away. A part that names something which this commit adds elsewhere is preferred."""
    lines = text.splitlines(keepends=True)
    names = [unit.name.rpartition(".")[2] for unit in others]

    def rank(unit: Unit) -> tuple[bool, str]:
        own = "".join(lines[unit.start : unit.end])
        return not any(name in own for name in names), _chance(f"{unit.name} {unit.is_guard}")

    return next((unit for unit in sorted(units_of(text), key=rank) if _parsed(without(text, unit)) is not None), None)


def _message(paths: Sequence[str], units: Sequence[Unit]) -> str:
    added = (
        f"{'a check to ' if one.is_guard else ''}{one.name} in {path}" for path, one in zip(paths, units, strict=True)
    )
    return f"Add {', '.join(added)}"


def _chance(text: str) -> str:
    return sha256(text.encode()).hexdigest()


_NEAR_COMMITS = 1
_MOST_CHARS = 500_000
# Seconds before each turn, repeated in a cycle. One in eight pauses is longer than the five minutes that an entry
# lives.
_PAUSES_S = (60, 95, 140, 75, 210, 110, 50, 480)


@dataclass(frozen=True, slots=True)
class FileTurn:
    """One request's content, independent of the form in which it is sent. ``files`` are the session's current files by
    path. ``selected`` are the paths of this turn's files, in the order in which they were selected."""

    at: float
    done: Sequence[Message]
    prompt: str
    files: Mapping[str, str]
    selected: tuple[str, ...]


def session_files(history: History, most_chars: int = _MOST_CHARS) -> list[str]:
    """The files of a session: all files that a commit changes, then the files that import one of them or are imported
    by one. Files are added as long as all of them together are not too long for a prompt."""
    states = history.states()
    sizes: dict[str, int] = {}
    for state in states:
        for path, text in state.items():
            sizes[path] = max(sizes.get(path, 0), len(text))
    changed = list(dict.fromkeys(path for one in history.commits for path in one.changes if path in sizes))
    near = neighbours(states[-1])
    others = sorted({other for path in changed for other in near.get(path, ())} - set(changed))
    found: list[str] = []
    for path in (*changed, *others):
        most_chars -= sizes[path]
        if most_chars < 0:
            break
        found.append(path)
    return sorted(found)


def turns(history: History) -> Iterator[FileTurn]:
    """The turns in their order."""
    paths, states, commits = set(session_files(history)), history.states(), history.commits
    done, selected, at = list[Message](), list[str](), BEGIN
    for number, commit in enumerate(commits):
        at += _PAUSES_S[number % len(_PAUSES_S)]
        state = states[number]
        around = commits[max(0, number - _NEAR_COMMITS) : number + _NEAR_COMMITS + 1]
        wanted = [path for one in around for path in one.changes if path in paths and path in state]
        selected = list(dict.fromkeys([*(path for path in selected if path in wanted), *wanted]))
        files = {path: text for path, text in state.items() if path in paths}
        prompt = f"{commit.message}, please." if commit.message else "Go on, please."
        yield FileTurn(at, tuple(done), prompt, files, tuple(selected))
        answered = answer(state, commit.changes)
        done += committed(prompt, answered, commit.message, answered)


_TIMEOUT_S = 60
_MOST_BYTES = 300_000
_SETTINGS = {
    # The Git settings of the demo's user have no effect.
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
}  # fmt: skip


class GitError(Exception):
    """git is not installed, or has refused. The message has the command and git's answer."""


def read_history(folder: Path, name: str, most: int) -> History:
    """The last commits of a repository that change a text, at most ``most``, without commits of merged branches. Raises
    GitError."""
    told = _git(folder, "rev-list", "--first-parent", "--parents", f"--max-count={most}", "HEAD").decode().split("\n")
    steps = [line.split() for line in reversed(told) if line]
    if not steps:
        raise GitError(f"{folder}: the repository has no commits")
    listed = _listing(folder, steps[0][1]) if len(steps[0]) > 1 else {}
    files, commits = _texts(folder, listed), []
    for commit, *_ in steps:
        before, listed = listed, _listing(folder, commit)
        new = _texts(folder, {path: blob for path, blob in listed.items() if before.get(path) != blob})
        changes = {**new, **dict.fromkeys(before.keys() - listed.keys())}
        if changes:
            message = _git(folder, "log", "-1", "--format=%s", commit).decode("utf-8", "replace").strip()
            commits.append(Commit(message, changes))
    if not commits:
        raise GitError(f"{folder}: the last {most} commits change no text file")
    return History(name, f"the last {len(commits)} commits of {folder}", files, tuple(commits))


def _listing(folder: Path, tree: str) -> dict[str, str]:
    """The blobs of a tree by path; links and submodules are left out."""
    found = {}
    for line in _git(folder, "ls-tree", "-r", "-z", tree).split(b"\0"):
        meta, _, path = line.partition(b"\t")
        words = meta.decode().split()
        if len(words) == 3 and words[0].startswith("100"):
            found[path.decode("utf-8", "replace")] = words[2]
    return found


def _texts(folder: Path, blobs: Mapping[str, str]) -> dict[str, str]:
    """The texts among the blobs: valid UTF-8 without null characters, and not too long."""
    if not blobs:
        return {}
    answer = _git(folder, "cat-file", "--batch", given="\n".join(blobs.values()).encode() + b"\n")
    found, at = {}, 0
    for path in blobs:
        head, _, _ = answer[at : at + 200].partition(b"\n")
        size = int(head.split()[2])
        content = answer[at + len(head) + 1 : at + len(head) + 1 + size]
        at += len(head) + 1 + size + 1
        if len(content) <= _MOST_BYTES and b"\0" not in content:
            with suppress(UnicodeDecodeError):
                found[path] = content.decode("utf-8")
    return found


def _git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    program = shutil.which("git")
    if program is None:
        raise GitError("git is not installed")
    settings = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.autocrlf=false")
    # With this path git finds its own helpers. It needs nothing else from the environment.
    path = f"{Path(program).parent}{os.pathsep}{os.defpath}"
    try:
        done = subprocess.run(
            [program, *settings, *arguments], cwd=folder, input=given, capture_output=True, timeout=_TIMEOUT_S,
            check=False, env={"PATH": path, "LC_ALL": "C", **_SETTINGS},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git {arguments[0]} in {folder}: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(f"git {arguments[0]} in {folder}: {said[-1] if said else f'status {done.returncode}'}")
    return done.stdout


class TurnForm(StrEnum):
    """The way in which a turn is sent (messages of an editor chat, or structured context), and the files in it.

    ``EDITOR_ALL`` and ``FULL_ALL``: the full text of every file of the session, and no symbols. ``SYMBOLS``: the full
    text of the selected files, and the symbols of the others. ``EDITOR_SELECTED`` and ``FULL_SELECTED``: the full text
    of the selected files; the others are not shown.
    """

    EDITOR_ALL = "editor, all files"
    FULL_ALL = "structured, all files"
    SYMBOLS = "structured, symbols"
    EDITOR_SELECTED = "editor, selected"
    FULL_SELECTED = "structured, selected"

    @property
    def is_structured(self) -> bool:
        """Whether the request has a section of structured context."""
        return self in (TurnForm.FULL_ALL, TurnForm.SYMBOLS, TurnForm.FULL_SELECTED)


GOALS: Mapping[TurnForm, tuple[TurnForm, float]] = {
    TurnForm.FULL_ALL: (TurnForm.EDITOR_ALL, 1.0),
    TurnForm.SYMBOLS: (TurnForm.EDITOR_ALL, 0.7),
    TurnForm.FULL_SELECTED: (TurnForm.EDITOR_SELECTED, 1.0),
}
"""For each structured form: the form that it is compared with, and the largest share of that form's cost that it may
cost."""


def sendings(form: TurnForm, turns: Sequence[FileTurn], session: str) -> Iterator[Sending]:
    """The requests of one form. A structured form sends each content once, and from then on its digest."""
    context, has_all = (
        Context(session, use_repo_map=form is TurnForm.SYMBOLS),
        form in (TurnForm.EDITOR_ALL, TurnForm.FULL_ALL),
    )
    for turn in turns:
        full = {path: turn.files[path] for path in (turn.files if has_all else turn.selected)}
        # Only an editor chat shows its files in messages.
        files = [user(shown(full)), assistant(FILES_ACK)] if full and not form.is_structured else []
        body = chat([system(RULES), *turn.done, *files, user(turn.prompt)], stream=False, temperature=0)
        if form.is_structured:
            body["extra_body"] = {
                "stratiform": _section(context, turn.files if form is TurnForm.SYMBOLS else full, full)
            }
        hidden = {path: text for path, text in turn.files.items() if path not in full}
        yield Sending(turn.at, body, Wanted([*turn.done, user(turn.prompt)], full, hidden))


def _section(context: Context, shown: Mapping[str, str], full: Mapping[str, str]) -> dict[str, Any]:
    """The value of ``stratiform`` for the files of a turn, as the helper for clients writes it."""
    for file in context.body()["files"]:
        if file["path"] not in shown:
            context.hide(file["path"])
    for path, text in shown.items():
        if path in full:
            context.select(path, text)
        else:
            context.show(path, text)
    body = context.body()
    context.delivered(body)
    return body


@dataclass(frozen=True, slots=True)
class FormComparison:
    """All forms of one session."""

    history: History
    tallies: dict[TurnForm, Tally]

    def ratio(self, form: TurnForm) -> float | None:
        """The form's cost as a share of the form that it is compared with; None before anything was sent."""
        other = self.tallies[GOALS[form][0]].usd[OURS] if form in GOALS else 0.0
        return self.tallies[form].usd[OURS] / other if other else None

    def is_reached(self, form: TurnForm) -> bool:
        """Whether a form costs no more than it may. A form that is not compared with another may cost anything."""
        ratio = self.ratio(form)
        return form not in GOALS or (ratio is not None and ratio <= GOALS[form][1])


def comparison(history: History, setting: Setting, price: Price) -> FormComparison:
    """A session in every form, before anything is sent."""
    steps, session = list(turns(history)), f"{history.name}-session"
    return FormComparison(
        history,
        {
            form: Tally(
                f"{history.name}-{form.name.lower().replace('_', '-')}",
                form.value,
                tuple(sendings(form, steps, session)),
                setting,
                price,
                accounts={} if form.is_structured else {SYSTEM_LAST: setting.account()},
            )
            for form in TurnForm
        },
    )


def histories(repository: Path | None, commits: int) -> list[History]:
    """The last commits of a repository, or the quiet and the busy history of an installed package. Raises GitError,
    OSError, ValueError."""
    if repository is not None:
        return [read_history(repository, "repository", commits)]
    source, files = package_source(PACKAGE), installed_files(PACKAGE)
    return [quiet(source, files), busy(source, files)]


def table_of(one: FormComparison) -> Table:
    history, files = one.history, len(session_files(one.history))
    title = f"{history.name}: {len(history.commits)} commits, {files} files ({history.source})"
    table = shown_table(title, ("sent", "kB", "tokens", "cached", "USD", "share", "goal"))
    table.caption = "share: of the cost of the editor; kB: what the client has uploaded"
    table.caption_justify = "left"
    for form, tally in one.tallies.items():
        ratio, share = one.ratio(form), Text("" if form in GOALS else "1.000")
        if ratio is not None:
            share = Text(f"{ratio:.3f}", "green" if one.is_reached(form) else "red")
        table.add_row(
            form.value,
            f"{tally.requests}/{len(tally.sendings)}",
            f"{tally.uploaded // 1000:,}",
            f"{tally.ours.prompt:,}",
            f"{tally.ours.hit_rate:.0%}",
            f"{tally.usd[OURS]:.4f}",
            share,
            f"{GOALS[form][1]:.1f}" if form in GOALS else "",
        )
    return table


def summary_of(compared: Sequence[FormComparison]) -> Iterator[tuple[str, bool]]:
    """What there is to say beside the tables. The goals stand in the tables, so no line is of a missed one."""
    for one in compared:
        tally = one.tallies[TurnForm.EDITOR_ALL]
        yield (
            (
                f"{one.history.name}, editor, all files, for comparison: without a cache {tally.uncached_usd:.4f} USD, "
                f"markers on system + last message {tally.usd[SYSTEM_LAST]:.4f} USD"
            ),
            True,
        )
        symbols, selected = one.tallies[TurnForm.SYMBOLS], one.tallies[TurnForm.FULL_SELECTED]
        more = f"{symbols.usd[OURS] - selected.usd[OURS]:.4f} USD more than nothing of these files"
        yield f"{one.history.name}: the symbols of the other files cost {more}", True
    yield "Who selects which file in which turn follows from the commits alone: this one, the last and the next.", True


def report_of(one: FormComparison) -> dict[str, object]:
    return {
        "name": one.history.name,
        "source": one.history.source,
        "files": len(session_files(one.history)),
        "turns": len(one.history.commits),
        "forms": [_form_report(one, form, tally) for form, tally in one.tallies.items()],
        "losses": added_up(one.tallies.values()).losses,
    }


def _form_report(one: FormComparison, form: TurnForm, tally: Tally) -> dict[str, object]:
    usd = tally.usd[OURS]
    found: dict[str, object] = {
        "form": form.value,
        "requests": tally.requests,
        "uploaded_bytes": tally.uploaded,
        "prompt_tokens": tally.ours.prompt,
        "hit_rate": tally.ours.hit_rate,
        "usd": {"structured" if form.is_structured else "transparent": usd, "no caching": tally.uncached_usd},
    }
    if form in GOALS:
        found |= {"compared_with": GOALS[form][0].value, "ratio": one.ratio(form), "at_most": GOALS[form][1]}
        found["is_reached"] = one.is_reached(form)
    else:
        found["usd"] = {"transparent": usd, SYSTEM_LAST: tally.usd[SYSTEM_LAST], "no caching": tally.uncached_usd}
    return found
