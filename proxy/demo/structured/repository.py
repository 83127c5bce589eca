"""Histories in git: the last commits of any repository."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from proxy.demo.structured.package import Commit, History

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
