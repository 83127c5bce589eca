"""Files with the contexts that requests bring."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import orjson

from proxy.cli.output import fail
from proxy.core.prompts.prompt import ROOTS, Json

GivenContext = Mapping[str, Mapping[str, Json]]
"""A context as a file gives it: for some roots an object."""


def add_contexts(parser: argparse.ArgumentParser, several: str) -> None:
    """Add the option that names files with contexts. ``several`` says what becomes of more than one."""
    parser.add_argument(
        "--context", type=Path, action="append", default=[], metavar="FILE",
        help=f"a JSON object with what a request brings, by root ({', '.join(ROOTS)}); may be repeated: {several}",
    )  # fmt: skip


def read_context(file: Path) -> GivenContext:
    """The context of a file. Ends the command where it is none."""
    try:
        content = orjson.loads(file.read_bytes())
    except OSError as error:
        fail(f"{file}: cannot be read: {error.strerror}")
    except orjson.JSONDecodeError as error:
        fail(f"{file}: is no JSON: {error}")
    if not isinstance(content, dict) or not all(isinstance(values, dict) for values in content.values()):
        fail(f"{file}: must be an object that has an object for each root")
    for root in content:
        if root not in ROOTS:
            fail(f"{file}: '{root}' is no root of the context; there are {', '.join(ROOTS)}")
    return content
