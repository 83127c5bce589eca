"""Reads a YAML file in bounded time and memory, even if an attacker wrote it.

A few lines of YAML can represent more values than fit into memory. An alias repeats the value that an anchor names, and
that value may hold further aliases (https://en.wikipedia.org/wiki/Billion_laughs_attack), or itself. So the tree of
nodes is checked before any value is built from it. The check counts the values of the expanded tree, with every alias
and every merge key (``<<``). Ordinary anchors, aliases and merge keys work as YAML defines them.

A key that occurs twice in a mapping is refused, too. YAML forbids it, but PyYAML takes the last one without an error: a
second ``stratiform`` section would undo the first one, with its teams and their keys, and leave the proxy open to
everybody.
"""

from pathlib import Path

import yaml

from proxy.kit.messages import ConfigError, join

MOST_BYTES = 1 << 20
MOST_NODES = 100_000
_MOST_DEPTH = 40
_MOST_KEYS = 2_000
_MOST_KEY_CHARS = 256
_MOST_NUMBER_CHARS = 100
_TEXT = "tag:yaml.org,2002:str"


def read_yaml(path: Path, lines: dict[str, int] | None = None) -> object:
    """The value that a file holds; None for an empty file. ``lines`` gets the line of each value by its path. Raises
    ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    if len(data) > MOST_BYTES:
        raise ConfigError([f"{path}: is larger than {MOST_BYTES} bytes; divide it with `include`"])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from error
    return value_of(text, path, lines)


def value_of(text: str, path: Path, lines: dict[str, int] | None = None) -> object:
    """The value that the text of a file holds; None for an empty text. Raises ConfigError."""
    try:
        # PyYAML's safe loader builds plain values only.
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            [f"{path}:{line}: holds a character that YAML does not have (U+{error.character:04X})"]
        ) from None
    try:
        if (root := loader.get_single_node()) is None:
            return None
        check = _Check(path, {} if lines is None else lines)
        check.size(root)
        if check.twice:
            raise ConfigError(check.twice)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        # str(error) is not used: it quotes the line, which may hold a key.
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
        raise ConfigError([f"{place}: is not valid YAML" + (f": {problem}" if problem else "")]) from None
    except RecursionError:
        raise ConfigError([f"{path}:{loader.line + 1}: is nested too deeply"]) from None
    except (ValueError, OverflowError, LookupError, AttributeError):
        # PyYAML raises these for the thirteenth month of a date, or for `!!bool x`. It does not give the place.
        raise ConfigError([f"{path}: holds a date or a number that there is not; write it in quotes"]) from None
    finally:
        loader.dispose()


class _Check:
    """Refuses a tree that contains itself, is too deep, or expands to too many values. Each node is checked once, at
    the first place where it is used. ``lines`` gets the line of each value by its path. ``twice`` gets a message for
    each key that occurs twice in its mapping."""

    def __init__(self, path: Path, lines: dict[str, int]) -> None:
        self._path = path
        self._lines = lines
        self._sizes: dict[int, int] = {}
        self.twice: list[str] = []

    def size(self, node: yaml.Node, place: str = "", above: tuple[yaml.Node, ...] = ()) -> int:
        """The number of values that a node expands to, with its aliases resolved. Raises ConfigError."""
        if node in above:
            raise self._refused(node, "contains itself: an alias stands inside of what its anchor names")
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if len(above) >= _MOST_DEPTH:
            raise self._refused(node, f"is nested more than {_MOST_DEPTH} levels deep")
        size, within = 1, (*above, node)
        if isinstance(node, yaml.ScalarNode):
            if node.tag != _TEXT and len(node.value) > _MOST_NUMBER_CHARS:
                # Python reads a number of many digits in quadratic time.
                raise self._refused(node, f"is a number or a date of more than {_MOST_NUMBER_CHARS} characters")
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._lines.setdefault(join(place, index), item.start_mark.line + 1)
                size += self.size(item, join(place, index), within)
        else:
            self._check_keys(node, place)
            for key, value in node.value:
                inner = join(place, key.value) if isinstance(key, yaml.ScalarNode) else place
                size += self.size(key, place, within) + self.size(value, inner, within)
        if size > MOST_NODES:
            raise self._refused(node, f"stands for more than {MOST_NODES} values, its aliases resolved")
        self._sizes[id(node)] = size
        return size

    def _check_keys(self, node: yaml.Node, place: str) -> None:
        """Note the lines of the keys. A mapping or a list as a key is refused when the values are built."""
        if len(node.value) > _MOST_KEYS:
            raise self._refused(node, f"has more than {_MOST_KEYS} keys")
        found: dict[tuple[str, str], list[int]] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if len(key.value) > _MOST_KEY_CHARS:
                raise self._refused(key, f"is a key of more than {_MOST_KEY_CHARS} characters")
            found.setdefault((key.tag, key.value), []).append(key.start_mark.line + 1)
        for (_, name), lines in found.items():
            self._lines[join(place, name)] = lines[-1]
            if len(lines) > 1:
                times = f"{len(lines)} times (lines {' and '.join(map(str, lines))} of {self._path})"
                self.twice.append(f"{join(place, name)}: stands {times}; keep one")

    def _refused(self, node: yaml.Node, complaint: str) -> ConfigError:
        mark = node.start_mark
        return ConfigError([f"{self._path}:{mark.line + 1}:{mark.column + 1}: {complaint}"])
