"""The turns of a coding session that follows a history: the questions, the answers, and the selected files.

There is one turn for each commit. The user asks for the change that the commit's message describes. The answer is the
commit's change, as SEARCH/REPLACE blocks. Then the editor commits it. The selected files of a turn are those that this
commit, the commit before it and the commit after it change. So only the commits decide what is sent.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from proxy.core.value import dataclass
from proxy.demo.editor_chat import line_ended
from proxy.demo.sample import BEGIN, Message, assistant, user
from proxy.demo.structured.package import Commit, History, neighbours

_NEAR_COMMITS = 1
_CONTEXT_LINES = 3
_MOST_CHARS = 500_000
# Seconds before each turn, repeated in a cycle. One in eight pauses is longer than the five minutes that an entry
# lives.
_PAUSES_S = (60, 95, 140, 75, 210, 110, 50, 480)


@dataclass(frozen=True, slots=True)
class Turn:
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
    changed = [path for path in history.changed() if path in sizes]
    near = neighbours(states[-1])
    others = sorted({other for path in changed for other in near.get(path, ())} - set(changed))
    found: list[str] = []
    for path in (*changed, *others):
        most_chars -= sizes[path]
        if most_chars < 0:
            break
        found.append(path)
    return sorted(found)


def turns(history: History) -> Iterator[Turn]:
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
        yield Turn(at, tuple(done), prompt, files, tuple(selected))
        done += _exchange(prompt, answer(state, commit), commit)


def answer(before: Mapping[str, str], commit: Commit) -> str:
    """The answer of a model that makes the commit's change."""
    parts = ["I make this change; nothing else is touched.\n"]
    for path, after in commit.changes.items():
        if after is None:
            parts.append(f"\n`{path}` is not needed any more: remove it.\n")
        else:
            parts += [_block(path, *change) for change in _changes(before.get(path, ""), after)]
    return "".join(parts)


def _block(path: str, old: str, new: str) -> str:
    return f"\n{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"


def _changes(before: str, after: str) -> Iterator[tuple[str, str]]:
    """The removed lines and the added lines, with some lines around them."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES):
        (_, from_old, _, from_new, _), (_, _, to_old, _, to_new) = group[0], group[-1]
        yield line_ended("".join(old[from_old:to_old])), line_ended("".join(new[from_new:to_new]))


def _exchange(prompt: str, answered: str, commit: Commit) -> list[Message]:
    name = sha256(answered.encode()).hexdigest()[:7]
    committed = f"I committed the changes with git hash {name} & commit msg: {commit.message}"
    return [user(prompt), assistant(answered), user(committed), assistant("Ok.")]
