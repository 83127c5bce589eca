"""What the commands that read recorded sessions share: their options, their errors, and where they print."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import orjson
from rich.console import Console

from proxy.core.modes import Mode
from proxy.core.profiles import PROFILES
from proxy.encodings import local_encode
from proxy.plugins import build_plugin_manager, recognisers
from proxy.replay.runner import Setting, with_minimum
from proxy.replay.trace import TraceError

POLICIES = ("economic", "classic")
# Wide enough that no table is cut where the output is no terminal.
_FILE_COLUMNS = 200


def add_options(parser: argparse.ArgumentParser) -> None:
    """How to replay."""
    parser.add_argument("--profile", choices=PROFILES, default="anthropic", help="whose cache rules hold (anthropic)")
    parser.add_argument("--mode", choices=[mode.name.lower() for mode in Mode], default="tier", help="(tier)")
    parser.add_argument("--policy", choices=POLICIES, default="economic", help="how pieces are ordered (economic)")
    parser.add_argument("--min-tokens", type=_count, metavar="N", help="the shortest prefix that the provider caches")
    parser.add_argument("--json", action="store_true", help="print JSON")


def setting(arguments: argparse.Namespace) -> Setting:
    """The setting that the options ask for."""
    return Setting(
        profile=with_minimum(PROFILES[arguments.profile], arguments.min_tokens),
        encode=local_encode(),
        recognisers=recognisers(build_plugin_manager()),
        mode=Mode.parse(arguments.mode),
        policy=arguments.policy,
        is_strict=False,
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


@contextmanager
def plain_failures() -> Iterator[None]:
    """Errors of the user's files as one line and status 1; a reader that has seen enough ends the command in peace."""
    try:
        yield
        sys.stdout.flush()
    except TraceError as error:
        fail(str(error))
    except BrokenPipeError:
        # Python flushes the standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def fail(message: str) -> NoReturn:
    """Say what is wrong and end the command."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)


class Output(Console):
    """The standard output; a closed pipe is an error for the command to handle."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _FILE_COLUMNS
        super().__init__(highlight=False, markup=False, width=width)

    def on_broken_pipe(self) -> None:
        """Rich would end the process with an error."""
        raise BrokenPipeError


def print_json(value: object) -> None:
    """To the standard output, for programs to read."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n")
