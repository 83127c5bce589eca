"""A history: the files at its beginning, and commits that change them one after another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Commit:
    """``changes`` has the whole new text by path; None where the commit removes the file."""

    message: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class History:
    """``files`` are the texts by path before the first commit. ``source`` says in a few words where they come from."""

    name: str
    source: str
    files: Mapping[str, str]
    commits: Sequence[Commit]

    def states(self) -> list[Mapping[str, str]]:
        """The files before each commit, and behind the last one."""
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

    def changed(self) -> list[str]:
        """The paths that any commit changes, each once, in the order of the first change."""
        return list(dict.fromkeys(path for commit in self.commits for path in commit.changes))
