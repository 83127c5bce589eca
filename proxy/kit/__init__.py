"""Tools that every other package uses: errors, the clock, tasks, bounded tables, digests, modes and reasons.

Here is how pages and pictures are filled in.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def templates_in(folder: Path) -> "Environment":
    """The templates in a folder of the package, as a Jinja environment. Every text that is filled in is escaped,
    wherever it comes from."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
