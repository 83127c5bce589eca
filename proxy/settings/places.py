"""Finds the lines of a configuration at which messages point."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.settings.mistakes import path_of


@dataclass(frozen=True, slots=True)
class Places:
    """The file and the line of each value of a configuration, by the value's path. ``root`` is the file that was
    given; others are included by it."""

    root: Path
    _places: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def merge(self, path: Path, lines: Mapping[str, int], moved: Mapping[str, int]) -> None:
        """Add a file's lines. ``moved``: the items of that section's list are joined to so many earlier ones; all other
        values replace earlier ones."""
        for section in {_section(place) for place in lines} - moved.keys():
            for place in [place for place in self._places if _section(place) == section]:
                del self._places[place]
        for place, line in lines.items():
            self._places[_moved(place, moved.get(_section(place), 0))] = (path, line)

    def located(self, message: str) -> str:
        """The message with the line of its path; as it is where there is none."""
        path = path_of(message)
        while path and path not in self._places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        if not path:
            return message
        file, line = self._places[path]
        return f"{message} (line {line})" if file == self.root else f"{message} (line {line} of {file})"


def _section(place: str) -> str:
    return place.partition(".")[0].partition("[")[0]


def _moved(place: str, by: int) -> str:
    """The path in a list that another file's items stand in front of."""
    section, bracket, rest = place.partition("[")
    index, _, end = rest.partition("]")
    return f"{section}[{int(index) + by}]{end}" if by and bracket else place
