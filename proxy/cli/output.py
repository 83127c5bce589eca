"""Prints for commands. It ends failed commands with one line and a status, never with a traceback."""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import orjson
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proxy.kit.messages import visible
from proxy.kit.value import dataclass
from proxy.lab.replay import TraceError

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
    """The standard output; a closed pipe is an error for the command to handle. Strings are shown as ``visible`` makes
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
    text = orjson.dumps(value, option=0 if is_line else orjson.OPT_INDENT_2).decode()
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
def plain_failures() -> Iterator[None]:
    """An error in the files of the user ends the command with a message. A reader that closes the pipe
    ends it quietly."""
    try:
        yield
        sys.stdout.flush()
    except TraceError as error:
        fail(str(error))
    except BrokenPipeError:
        # Python flushes the standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
