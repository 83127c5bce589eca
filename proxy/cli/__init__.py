"""The ``stratiform`` command.

A command is one line in ``COMMANDS``: its name, the module with it, and what it does. Commands that share a module with
others stand there as a ``Command``. A command has ``configure(parser)``, which adds its arguments, and
``run(arguments)``, which does the work and returns the exit status. ``run`` may raise ConfigError. Only the module of
the command that is run gets imported.

Commands print by ``Output`` and its neighbours. A command that fails ends with one line and a status, never with a
traceback.
"""

import argparse
import codecs
import errno
import gc
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from signal import SIG_IGN, SIGINT, default_int_handler, getsignal, signal
from typing import Any, NoReturn

import orjson
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proxy import __version__
from proxy.app.settings import ConfigError, places, refuse_shadowed
from proxy.kit.messages import visible
from proxy.kit.value import dataclass

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("proxy.cli.serve", "run the proxy"),
    "check-config": ("proxy.cli.check_config", "check a configuration, and show what it means"),
    "prompts": ("proxy.cli.prompts", "list, render, check and compare composed prompts"),
    "teams": ("proxy.cli.accounts:teams", "make and change teams"),
    "keys": ("proxy.cli.accounts:keys", "make, change and revoke the proxy's own keys"),
    "budgets": ("proxy.cli.accounts:budgets", "make and change budgets, and show what is left"),
    "spend": ("proxy.cli.costs:spend", "report what was spent, and what caching saved"),
    "prices": ("proxy.cli.costs:prices", "show what models cost, and which pinned prices have changed"),
    "top": ("proxy.cli.costs:top", "watch live sessions, or one of them in its layers"),
    # A slice: without its folder and this line everything else works.
    **import_module("proxy.lab").COMMANDS,
}


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name. Returns the exit status: 0 done, 1 not done, 2 wrong usage, 130
    interrupted."""
    if isinstance(sys.stdout, TextIOWrapper):
        codecs.register_error("json", _as_json)
        sys.stdout.reconfigure(errors="json")
    try:
        refuse_shadowed()
        status = _run(sys.argv[1:], _loaded_for_good) if arguments is None else _run(arguments, command_of)
        sys.stdout.flush()
        return status
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno not in _FULL:
            raise
        # Python flushes the standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {visible(problem)}", file=sys.stderr)
        return 1


def _as_json(error: UnicodeError) -> tuple[str, int]:
    """The characters that the encoding of the output lacks, as JSON writes them."""
    assert isinstance(error, UnicodeEncodeError), "the standard output is only written"
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def command_of(name: str) -> Any:
    """The module or the ``Command`` of this name."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def _loaded_for_good(name: str) -> Any:
    """The command that this process runs, which an interrupt ends by an exception. The objects that its modules make
    stay in memory, so garbage collection is avoided here: it would take a tenth of the start time."""
    gc.disable()
    found = command_of(name)
    if getsignal(SIGINT) != SIG_IGN:  # a process in the background ignores interrupts
        signal(SIGINT, default_int_handler)
    gc.freeze()
    gc.enable()
    return found


def _run(words: Sequence[str], load: Callable[[str], Any]) -> int:
    parser = argparse.ArgumentParser(
        prog="stratiform", description="A transparent proxy that lays prompts out so that provider prompt caches hit."
    )
    parser.add_argument("--version", action="version", version=f"stratiform {__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    command: Any = None
    for name, (_, summary) in COMMANDS.items():
        subparser = choices.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
        if name == chosen:
            command = load(name)
            command.configure(subparser)
    parsed = parser.parse_args(words)
    assert command is not None, "argparse accepts no command that is not in COMMANDS"
    try:
        return int(command.run(parsed))
    except ConfigError as error:
        config = getattr(parsed, "config", None)
        if config is None:
            raise
        raise ConfigError(map(places(config).located, error.problems)) from error


# This is wide enough that no table is cut if the output is not a terminal.
_FILE_COLUMNS = 200
# The characters that a terminal would obey, as far as a JSON text may contain them as they are.
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}


@dataclass(frozen=True, slots=True)
class Command:
    """A command that shares its module with others. ``configure`` adds its arguments, and ``run`` does the work and
    returns the exit status."""

    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class Output(Console):
    """The standard output; ``main`` handles a closed pipe. Strings are shown as ``visible`` makes
    them, because clients and other servers choose many of the names in them."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, width=None if sys.stdout.isatty() else _FILE_COLUMNS)

    def render_str(self, text: str, **style: Any) -> Text:
        """A string, or a cell of a table, as Rich shows it."""
        return super().render_str(visible(text), **style)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError: Rich itself would end the process with an error."""
        raise BrokenPipeError


def plain_table(
    headings: Iterable[str], numbers: Collection[str] = (), rows: Iterable[Iterable[str | Text]] = ()
) -> Table:
    """A table without lines. The columns whose headings are in ``numbers`` hold numbers."""
    columns = (Column(one, overflow="fold", justify="right" if one in numbers else "left") for one in headings)
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table


def add_json(parser: "argparse._ActionsContainer", help: str = "print JSON") -> None:
    """Add the option that ``print_result`` reads."""
    parser.add_argument("--json", action="store_true", help=help)


def print_result(arguments: argparse.Namespace, value: object, show: Callable[[], None]) -> None:
    """Print the result of a command: the value as JSON if ``--json`` asks for that, or else what ``show`` prints."""
    if arguments.json:
        print_json(value)
    else:
        show()


def print_json(value: object, *, is_line: bool = False) -> None:
    """Print JSON to the standard output, for programs to read; as one line if ``is_line``. Dataclasses become
    objects."""
    try:
        text = orjson.dumps(value, option=0 if is_line else orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # the name of a file that is no UTF-8
        text = json.dumps(value, indent=None if is_line else 2, default=asdict)
    sys.stdout.write(text.translate(_JSON_CONTROLS) + "\n")


def fail(message: str) -> NoReturn:
    """Say what is wrong and end the command."""
    print(f"error: {visible(message)}", file=sys.stderr)
    raise SystemExit(1)


def number_within(kind: Callable[[str], float], least: float, most: float = sys.float_info.max) -> Callable[[str], Any]:
    """A type of arguments for argparse: a number of this kind within these bounds."""

    def read(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            bounds = f"{least} or more" if most == sys.float_info.max else f"between {least} and {most}"
            raise argparse.ArgumentTypeError(f"must be {bounds}")
        return value

    read.__name__ = kind.__name__
    return read


def write_file(path: Path, text: str) -> None:
    """Write a file that the user has named. Ends the command if that is not possible."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}")


@contextmanager
def plain_failures(*of_files: type[Exception]) -> Iterator[None]:
    """An error of these types, which the files of the user have caused, ends the command with its message."""
    try:
        yield
    except of_files as error:
        fail(str(error))
