"""An example: a chat that keeps three panels live. It needs the library ``openai``, which the helper itself does not.

    python -m proxy.client.example_panels --base-url http://127.0.0.1:4000/v1 --model claude "What is left to do?"

The panels are the files of a folder, the output of ``git status``, and a list of tasks. They are read again before each
question: if you edit a file or the list while the chat waits, the model knows the change. Without questions on the
command line the chat asks for them, until the input ends. The oldest messages of a long chat are frozen.
"""

import argparse
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from openai import OpenAI

from proxy.client import Context, chat

SYSTEM = "You help with the folder whose files, state and tasks are shown. Answer in a few sentences."
MOST_FILES = 500
_HIDDEN_FOLDERS = ("node_modules", "__pycache__")


def refresh(context: Context, folder: Path, todo: Path) -> None:
    """Show the current state of the folder. Unchanged content is sent in the same bytes, and stays in the cache."""
    context.set_panel("tree", tree_of(folder), kind="tree", header=f"Files of {folder.name}")
    context.set_panel("git", git_status(folder), kind="git", header="git status")
    context.set_panel("todo", text_of(todo), kind="todo", header="Tasks")


def tree_of(folder: Path) -> str:
    """The files of the folder and of its subfolders, one a line, in an order that does not change by itself."""
    paths: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _HIDDEN_FOLDERS)
        paths += [Path(place, name).relative_to(folder).as_posix() for name in sorted(names)]
        if len(paths) > MOST_FILES:
            return "\n".join([*paths[:MOST_FILES], "..."])
    return "\n".join(paths)


def git_status(folder: Path) -> str:
    """The output of ``git status``. It is empty if there is no repository or no git; then no panel is shown."""
    try:
        command = ["git", "-C", str(folder), "status", "--short", "--branch"]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def text_of(path: Path) -> str:
    """The text of a file; empty if there is no file."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def asked(questions: Sequence[str]) -> Iterator[str]:
    """The questions of the command line, or else the questions that the user types."""
    yield from questions
    with suppress(EOFError):
        while not questions:
            yield input("> ")


def talk(
    client: Any, model: str, context: Context, questions: Iterable[str], refresh_panels: Callable[[], None]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Each answer, with how many tokens the prompt had and how many of them came from the provider's cache."""
    messages: list[dict[str, str]] = [{"role": "system", "content": SYSTEM}]
    for question in questions:
        messages.append({"role": "user", "content": question})
        refresh_panels()
        answer = chat(client, context, model=model, messages=messages)
        text = answer.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": text})
        details = getattr(answer.usage, "prompt_tokens_details", None)
        cached = getattr(details, "cached_tokens", None) or 0
        yield text, {"prompt": answer.usage.prompt_tokens, "cached": cached}


def main(arguments: Sequence[str] | None = None) -> None:
    """Chat about a folder."""
    parser = argparse.ArgumentParser(prog="python -m proxy.client.example_panels", description="Chat with live panels.")
    parser.add_argument("questions", nargs="*", help="what to ask; without any they are read from the input")
    parser.add_argument("--base-url", default="http://127.0.0.1:4000/v1", help="where the proxy is")
    parser.add_argument("--api-key", default="any", help="a key of the proxy's")
    parser.add_argument("--model", required=True, help="the name of a model of the proxy's")
    parser.add_argument("--folder", type=Path, default=Path(), help="the folder that is shown")
    parser.add_argument("--todo", type=Path, default=Path("TODO.md"), help="the list of tasks, a file in the folder")
    parser.add_argument("--session", default="", help="a name that no other conversation has")
    found = parser.parse_args(arguments)
    folder = found.folder.resolve()
    context = Context(found.session, detach=True)
    with OpenAI(base_url=found.base_url, api_key=found.api_key) as client:
        live = talk(
            client, found.model, context, asked(found.questions), lambda: refresh(context, folder, folder / found.todo)
        )
        for text, tokens in live:
            print(f"{text}\n[{tokens['prompt']} tokens, {tokens['cached']} of them from the cache]")


if __name__ == "__main__":
    main()
