"""What a symbol index gives: a short block of symbols for each file, and which file refers to which.

A block lists the classes, functions, methods and constants of one file, without their bodies and without line numbers.
It depends on the file's own text and on the alias of its path, and on nothing else: an edit inside a function, another
selection, or a change of another file leaves its bytes as they are. References between files are therefore kept beside
the blocks and never inside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.core.structured.context import ContextFile


@dataclass(frozen=True, slots=True)
class SymbolMap:
    """The symbols of all files of one request.

    ``blocks`` has the text of each file that has symbols, by path, in the order of the files; a block does not end with
    a line break. ``legend`` explains the notation and lists the aliases of directories. ``references`` has, for each
    path, the other paths that it refers to; a path without references may be absent.
    """

    blocks: Mapping[str, str] = field(default_factory=dict)
    legend: str = ""
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)


class SymbolIndexer(Protocol):
    """Makes symbol maps. It is called in several threads at once, never on the event loop, and keeps what it has
    learnt of a text by the text's digest, within a bound of memory."""

    name: str
    priority: int

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """The symbols of these files. ``aliases`` are those of the session (see ``path_aliases.legend_for``). The
        digests of the files must be those of their texts: whoever calls has computed them. Raises nothing because of
        what the files contain."""
