"""Files of vectors: each paragraph is one rule, which its first line says, with named lines below it. Lines that begin
with ``#`` are for readers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Vector:
    """A rule, and its lines: a name and the text behind it."""

    says: str
    lines: Sequence[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        """The texts of all lines with this name."""
        return [text for each, text in self.lines if each == name]

    def one(self, name: str, default: str = "") -> str:
        """The text of the line with this name, which occurs at most once."""
        found = self.all(name) or [default]
        assert len(found) == 1, f"{self.says}: {name}"
        return found[0]


def read_vectors(path: Path, names: str, origins: str = "") -> list[Vector]:
    """The vectors of a file, whose lines have these names. Each stands once, and its rule begins with one of the
    ``origins``, if there are any."""
    found = []
    for paragraph in path.read_text("utf-8").split("\n\n"):
        lines = [line for line in paragraph.splitlines() if line and not line.startswith("#")]
        if lines:
            parts = (line.partition(" ") for line in lines[1:])
            found.append(Vector(lines[0], [(name, rest.strip()) for name, _, rest in parts]))
    for vector in found:
        assert not origins or vector.says.partition(": ")[0] in origins.split(), vector.says
        assert {name for name, _ in vector.lines} <= {*names.split(), "instead"}, vector.says
    assert len({vector.says for vector in found}) == len(found)
    return found
