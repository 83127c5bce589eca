"""Git repositories for tests: the files of a history, and its commits."""

import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.lab.demo.structured import History

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    """The output of a git command."""
    command = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write_repository(history: History, folder: Path) -> None:
    """Make a repository in an empty folder: the files before the first commit, then each commit."""
    git(folder, "init", "--quiet", "--initial-branch=main")
    messages = ["Import the files", *(commit.message for commit in history.commits)]
    for message, files in zip(messages, history.states(), strict=True):
        git(folder, "rm", "-r", "--quiet", "--force", "--ignore-unmatch", ".")
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8", newline="")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "--allow-empty-message", f"--message={message}")
