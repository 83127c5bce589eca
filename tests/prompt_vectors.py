"""The notation of the vectors in tests/golden/prompts: each paragraph is one rule, with named lines below it."""

import re
from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parent / "golden/prompts"
_ORIGIN = re.compile(r"(document|code|both|ours): .")


@dataclass(frozen=True, slots=True)
class Vector:
    """A rule, and its lines: a name and the text behind it."""

    says: str
    lines: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """The texts of all lines with this name."""
        return [text for each, text in self.lines if each == name]

    def one(self, name: str, default: str = "") -> str:
        """The text of the line with this name, which occurs at most once."""
        found = self.all(name) or [default]
        assert len(found) == 1, f"{self.says}: {name}"
        return found[0]


def read_vectors(name: str, lines: str) -> list[Vector]:
    """The vectors of a file, each of which says where its rule comes from and has only these lines."""
    paragraphs = (VECTORS / name).read_text().strip().split("\n\n")
    vectors = [_vector(paragraph) for paragraph in paragraphs if not paragraph.startswith("#")]
    known = {*lines.split(), "instead"}
    for vector in vectors:
        assert _ORIGIN.match(vector.says), vector.says
        assert {each for each, _ in vector.lines} <= known, vector.says
    assert len({vector.says for vector in vectors}) == len(vectors)
    return vectors


def _vector(paragraph: str) -> Vector:
    says, *lines = paragraph.splitlines()
    parts = (line.partition(" ") for line in lines)
    return Vector(says, tuple((name, rest.strip()) for name, _, rest in parts))
