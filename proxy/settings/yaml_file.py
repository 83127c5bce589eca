"""Reads a YAML file in bounded time and memory, whoever wrote it.

A few lines of YAML can stand for more values than there is memory: an alias repeats what an anchor names, and that may
hold further aliases (https://en.wikipedia.org/wiki/Billion_laughs_attack), or itself. So the tree of nodes is checked
before any value is built from it. The check counts the values that it would expand to, with every alias and every merge
key (``<<``). Ordinary anchors, aliases and merge keys work as YAML defines them.

A key that stands twice in a mapping is refused, too. YAML forbids it, but PyYAML takes the last one without an error:
a second ``stratiform`` section would undo the first one, with its teams and their keys, and leave the proxy open to
everybody.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml

from proxy.settings.environment import join
from proxy.settings.messages import ConfigError

MOST_BYTES = 1 << 20
MOST_NODES = 100_000
_MOST_DEPTH = 40
_MOST_KEYS = 2_000
_MOST_KEY_CHARS = 256
_MOST_NUMBER_CHARS = 100
_TEXT = "tag:yaml.org,2002:str"


def read_yaml(path: Path, lines: dict[str, int] | None = None) -> object:
    """The value that a file holds; None for an empty one. ``lines`` gets the line of each value by its path. Raises
    ConfigError."""
    return value_of(_text(path), path, lines)


def value_of(text: str, path: Path, lines: dict[str, int] | None = None) -> object:
    """The value that the text of a file holds; None for an empty one. Raises ConfigError."""
    # PyYAML's safe loader builds plain values only.
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        twice = _check(root, path, {} if lines is None else lines)
        if twice:
            raise ConfigError(twice)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}{_place(error)}: is not valid YAML{_complaint(error)}"]) from None
    except RecursionError:
        raise ConfigError([f"{path}:{loader.line + 1}: is nested too deeply"]) from None
    except (ValueError, OverflowError, LookupError, AttributeError):
        # PyYAML raises these for the thirteenth month of a date, or for `!!bool x`. It does not say where that is.
        raise ConfigError([f"{path}: holds a date or a number that there is not; write it in quotes"]) from None
    finally:
        loader.dispose()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    if len(data) > MOST_BYTES:
        raise ConfigError([f"{path}: is larger than {MOST_BYTES} bytes; divide it with `include`"])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from error


def _check(root: yaml.Node, path: Path, lines: dict[str, int]) -> list[str]:
    """Refuse what contains itself, is too deep, or expands to too much; returns a message for each repeated key, and
    notes the lines. Raises ConfigError. Each node is checked once, at the first place where it is used."""
    sizes: dict[int, int] = {}
    above: set[int] = set()
    waiting: list[tuple[yaml.Node, Iterator[tuple[yaml.Node, str]]]] = []
    twice: list[str] = []

    def enter(node: yaml.Node, place: str) -> None:
        _check_node(node, path)
        twice.extend(_repeated_in(node, place, path))
        if len(waiting) >= _MOST_DEPTH:
            raise _refused(node, path, f"is nested more than {_MOST_DEPTH} levels deep")
        lines.update((inside, one.start_mark.line + 1) for one, inside in _named(node, place))
        above.add(id(node))
        waiting.append((node, _inside(node, place)))

    enter(root, "")
    while waiting:
        node, rest = waiting[-1]
        following = next(rest, None)
        if following is not None:
            inner, place = following
            if id(inner) in above:
                raise _refused(inner, path, "contains itself: an alias stands inside of what its anchor names")
            if id(inner) not in sizes:
                enter(inner, place)
            continue
        waiting.pop()
        above.remove(id(node))
        sizes[id(node)] = 1 + sum(sizes[id(inner)] for inner, _ in _inside(node, ""))
        if sizes[id(node)] > MOST_NODES:
            raise _refused(node, path, f"stands for more than {MOST_NODES} values, its aliases resolved")
    return twice


def _inside(node: yaml.Node, place: str) -> Iterator[tuple[yaml.Node, str]]:
    """The nodes in a node, each with its place. A mapping or a list as a key is refused when the values are built."""
    if isinstance(node, yaml.SequenceNode):
        yield from ((item, join(place, index)) for index, item in enumerate(node.value))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key, place
            yield value, join(place, key.value) if isinstance(key, yaml.ScalarNode) else place


def _named(node: yaml.Node, place: str) -> Iterator[tuple[yaml.Node, str]]:
    """What has a path within a node: the keys of a mapping, and the items of a list."""
    if isinstance(node, yaml.MappingNode):
        yield from ((key, join(place, key.value)) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    elif isinstance(node, yaml.SequenceNode):
        yield from ((item, join(place, index)) for index, item in enumerate(node.value))


def _repeated_in(node: yaml.Node, place: str, path: Path) -> Iterator[str]:
    """A message for each key that stands twice in a mapping."""
    lines: dict[tuple[str, str], list[int]] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            lines.setdefault((key.tag, key.value), []).append(key.start_mark.line + 1)
    for (_, name), found in lines.items():
        if len(found) > 1:
            where = " and ".join(map(str, found))
            yield f"{join(place, name)}: stands {len(found)} times (lines {where} of {path}); keep one"


def _check_node(node: yaml.Node, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        if len(node.value) > _MOST_KEYS:
            raise _refused(node, path, f"has more than {_MOST_KEYS} keys")
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and len(key.value) > _MOST_KEY_CHARS:
                raise _refused(key, path, f"is a key of more than {_MOST_KEY_CHARS} characters")
    elif isinstance(node, yaml.ScalarNode) and node.tag != _TEXT and len(node.value) > _MOST_NUMBER_CHARS:
        # Python reads a number of many digits in quadratic time.
        raise _refused(node, path, f"is a number or a date of more than {_MOST_NUMBER_CHARS} characters")


def _refused(node: yaml.Node, path: Path, complaint: str) -> ConfigError:
    mark = node.start_mark
    return ConfigError([f"{path}:{mark.line + 1}:{mark.column + 1}: {complaint}"])


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _complaint(error: yaml.YAMLError) -> str:
    # Not str(error): it quotes the line, which may hold a key.
    complaint = getattr(error, "problem", None)
    return f": {complaint}" if complaint else ""
