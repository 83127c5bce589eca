"""The text that explains symbol blocks, and behind it the aliases of directories."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def _notation() -> str:
    """The text of ``prompts/symbol_legend.md`` without its front matter."""
    return files("prompts").joinpath("symbol_legend.md").read_text("utf-8").split("---\n", 2)[2].strip()


def legend(aliases: Mapping[str, str]) -> str:
    """The notation, and one line for each alias in the order in which they were given: a new alias is appended."""
    if not aliases:
        return _notation()
    lines = [f"{alias}={directory}" for directory, alias in aliases.items()]
    return "\n".join([_notation(), "", "Directories (write paths in full when you name files):", *lines])
