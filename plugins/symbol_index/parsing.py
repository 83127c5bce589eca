"""Parses one text within a bound of work. The work is counted and never timed, so that a text always gets the same
answer.

After each hundred steps the parser calls a function that counts these steps and says whether it goes on. Other threads
of the process can run during this call: without it the parser would hold the interpreter until it is done.
"""

import threading
from dataclasses import dataclass

from tree_sitter import Parser, Point, Tree

from plugins.symbol_index.grammars import language

MOST_BYTES = 512 << 10
"""Larger files get no symbols: they are generated or data."""
_ROUNDS = 60
_BYTES_A_ROUND = 40
"""A round is a hundred steps. Hand-written sources take a round for each 60 to 250 bytes, minified ones for 48."""
_CHUNK_BYTES = 64 << 10


@dataclass(slots=True)
class _Rounds:
    """Counts the rounds of one parse."""

    left: int

    def has_enough(self, _position: int, _has_error: bool) -> bool:
        """Whether the parser shall give up."""
        self.left -= 1
        return self.left < 0


class Parsers(threading.local):
    """One parser of each grammar for each thread."""

    def __init__(self) -> None:
        self._by_grammar: dict[str, Parser] = {}

    def parse(self, grammar: str, source: bytes) -> Tree | None:
        """The tree of a text; None where it took too much work."""
        parser = self._by_grammar.get(grammar)
        if parser is None:
            parser = self._by_grammar[grammar] = Parser(language(grammar))
        rounds = _Rounds(_ROUNDS + len(source) // _BYTES_A_ROUND)

        def read(position: int, _point: Point) -> bytes:
            return source[position : position + _CHUNK_BYTES]

        try:
            return parser.parse(read, progress_callback=rounds.has_enough)
        except ValueError:
            parser.reset()
            return None
