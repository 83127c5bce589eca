"""Reads the environment (nothing else does) and YAML files, and describes what is wrong with a configuration.

References to the environment are replaced by their values. They have LiteLLM's form: ``os.environ/NAME``. A reference
may be a whole string or a part of one (``Bearer os.environ/TOKEN``).

Each message about a configuration begins with the path of the key. Messages never repeat a value, because any value may
be a secret in the wrong place. ``Places`` finds the line of a path.

A YAML file is read in bounded time and memory, even if an attacker wrote it.
A few lines of YAML can represent more values than fit into memory. An alias repeats the value that an anchor names, and
that value may hold further aliases (https://en.wikipedia.org/wiki/Billion_laughs_attack), or itself. So the tree of
nodes is checked before any value is built from it. The check counts the values of the expanded tree, with every alias
and every merge key (``<<``). Ordinary anchors, aliases and merge keys work as YAML defines them.

A key that occurs twice in a mapping is refused, too. YAML forbids it, but PyYAML takes the last one without an error: a
second ``stratiform`` section would undo the first one, with its teams and their keys, and leave the proxy open to
everybody.
"""

import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from proxy.kit.value import dataclass, field

_WHOLE = re.compile(r"os\.environ/([A-Za-z0-9_.-]+)")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")
_NAME_CHARS = 60
_INSIDE = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")


class Environment:
    """Variables by name. Their values are secrets: no message and no repr shows them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    @classmethod
    def of_process(cls) -> "Environment":
        return cls(os.environ)

    def __repr__(self) -> str:
        return f"Environment({len(self._variables)} variables)"

    def get(self, name: str) -> str | None:
        return self._variables.get(name)

    def names(self, prefix: str) -> frozenset[str]:
        return frozenset(name for name in self._variables if name.startswith(prefix))

    def with_section(self, section: object) -> "Environment":
        """The environment with a configuration's ``environment_variables``, which win, as in LiteLLM.

        A value may itself be a reference. A variable that is not set is left out, and reported where it is used.
        """
        added = {}
        for name, value in section.items() if isinstance(section, dict) else ():
            missing: list[str] = []
            expanded = self.expand(value, name, missing)
            if not missing and expanded is not None:
                added[name] = str(expanded)
        return Environment({**self._variables, **added})

    def expand(self, value: object, path: str, problems: list[str]) -> object:
        """The value with every reference in its strings replaced. Variables that are not set are added to ``problems``,
        and None replaces the string."""
        if isinstance(value, str) and "os.environ/" in value:
            whole = _WHOLE.fullmatch(value)
            names = [whole[1]] if whole else _INSIDE.findall(value)
            if missing := [name for name in names if name not in self._variables]:
                problems += [f"{path}: the environment variable {name} is not set" for name in missing]
                return None
            return self._variables[names[0]] if whole else _INSIDE.sub(lambda match: self._variables[match[1]], value)
        if isinstance(value, Mapping):
            return {key: self.expand(item, join(path, key), problems) for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, join(path, index), problems) for index, item in enumerate(value)]
        return value


def export(variables: Mapping[str, str]) -> None:
    """Set variables in this process, for libraries that read them on their own (litellm)."""
    os.environ.update(variables)


def state_folder(environment: Environment) -> Path:
    """The folder for the state of a user's programs: ``$XDG_STATE_HOME`` or ``~/.local/state``, and our folder in it.

    https://specifications.freedesktop.org/basedir-spec/latest/ (a relative path there is to be ignored)
    """
    base = Path(environment.get("XDG_STATE_HOME") or "")
    if not base.is_absolute():
        base = Path(environment.get("HOME") or Path.home()) / ".local" / "state"
    return base / "stratiform"


def own_folder(base: Path, config: Path) -> Path:
    """The folder within ``base`` for the state of one configuration. It is named after the configuration's path, so
    that no two configurations share a folder.

    The file itself may be a link: Kubernetes lets ``config.yaml`` point to another file after each change.
    """
    place = config.parent.resolve() / config.name
    digest = blake2b(os.fsencode(place), digest_size=6).hexdigest()
    words = _NOT_IN_NAMES.sub("-", f"{place.parent.name}-{place.stem}").strip("-")
    return base / f"{words[-_NAME_CHARS:]}-{digest}"


def join(path: str, key: object) -> str:
    """The path of an item: ``teams[0]``, ``budget.usd``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{shown(key)}" if path else shown(key)


def shown(name: object) -> str:
    """A name as messages show it. If an API key is in the place of a name, its content is left out."""
    text = str(name)
    return "sk-..." if text.startswith("sk-") else text


# Characters that a terminal or a browser would obey instead of showing them; some of these turn text around.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def visible(text: str) -> str:
    """A text from outside, with its control characters as escapes, so that no terminal takes them for commands."""
    return text.translate(_CONTROLS)


_MOST_EXPLAINED = 100


class ConfigError(Exception):
    """The configuration cannot be used. ``problems`` are lines, each beginning with the path of a key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def explain(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """A line for every problem that pydantic found in a ``model``. No line quotes a value."""
    problems = error.errors(include_url=False, include_context=True)
    for problem in problems[:_MOST_EXPLAINED]:
        path, owner = _walk(problem["loc"], model, is_unknown_key=problem["type"] == "extra_forbidden")
        yield f"{path}: {_reason(problem, owner)}"
    if len(problems) > _MOST_EXPLAINED:
        yield f"and {len(problems) - _MOST_EXPLAINED} more problems of this kind"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant by this name; None if no known name is close."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.75)), None)


def _reason(problem: Any, owner: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            known = next((list(part.model_fields) for part in _parts(owner) if _is_model(part)), [])
            close = nearest(str(problem["loc"][-1]), known)
            return f"unknown key; did you mean `{close}`?" if close else f"unknown key; known are {', '.join(known)}"
        case "missing":
            close = nearest(str(problem["loc"][-1]), map(str, problem["input"]))
            return f"is required; did you write `{close}` for it?" if close else "is required"
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            message = str(problem["msg"])
            return message[:1].lower() + message[1:]


def _walk(location: tuple[int | str, ...], model: type[BaseModel], *, is_unknown_key: bool) -> tuple[str, Any]:
    """The path of a location, and the annotation of the object that holds its last key.

    Pydantic adds the names of a union's members to a location (``alias.x.str``). They are not keys of the schema, and
    are left out of the path. An unknown key at the end is not a key of the schema either, but it stays in the path.
    """
    path, here, owner = "", model, model
    for index, key in enumerate(location):
        if (step := _step(here, key)) is None and not (is_unknown_key and index == len(location) - 1):
            continue
        path, owner, here = join(path, key), here, step
    return path, owner


def _step(annotation: Any, key: int | str) -> Any:
    """The annotation of the item under a key; None if there is no such key."""
    for part in _parts(annotation):
        if _is_model(part) and key in part.model_fields:
            return part.model_fields[key].annotation
        if get_origin(part) in (list, dict):
            return get_args(part)[-1]
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    match get_origin(annotation):
        case typing.Union | types.UnionType:
            for member in get_args(annotation):
                yield from _parts(member)
        case typing.Annotated:
            yield from _parts(get_args(annotation)[0])
        case _:
            yield annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


Location = tuple[int | str, ...]


class Mistakes:
    """The mistakes of a configuration: lines, each of which begins with the path of a key."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # The lists from which a value was taken out: places in them are not those of the file any more.
        self.unsure: set[str] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Add the lines of one check, except those that follow from lines of earlier checks."""
        self.lines += [line for line in dict.fromkeys(lines) if not self.cover(line)]

    def cover(self, line: str) -> bool:
        """Whether a line says nothing new: its path, or a path above or below it, was reported already."""
        path, known = path_of(line), [*map(path_of, self.lines), *self.unsure]
        return any(_holds(path, other) or _holds(other, path) for other in known)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self.add(error.problems)


def path_of(line: str) -> str:
    """The path with which a line begins."""
    return line.partition(": ")[0]


def _holds(outer: str, inner: str) -> bool:
    """Whether the outer path is the path of a value that holds the inner one, or the same path."""
    return inner.startswith(outer) and inner[len(outer) :][:1] in ("", ".", "[")


def without(raw: Mapping[str, Any], locations: Iterable[Location], mistakes: Mistakes) -> dict[str, Any]:
    """The values without those at the locations, as pydantic names them. A value that lacks something is removed as a
    whole. From an entry of the model list, the name stays, because others may refer to it."""
    rest: dict[str, Any] = _unshared(raw)
    # Values are removed from the end, so that the places of the others in a list do not change.
    for steps in sorted(
        {tuple(_steps(raw, location)) for location in locations},
        key=lambda steps: [(step, "") if isinstance(step, int) else (-1, step) for step in steps],
        reverse=True,
    ):
        holder: Any = rest
        for step in steps[:-1]:
            holder = holder[step]
        path = reduce(join, steps[:-1], "")
        if not steps:
            rest.clear()
        elif path == "model_list":
            name = holder[steps[-1]].get("model_name") if isinstance(holder[steps[-1]], dict) else None
            named = name if isinstance(name, str) and name else "-"
            holder[steps[-1]] = {"model_name": named, "litellm_params": {"model": "embedded/unread"}}
        else:
            del holder[steps[-1]]
            if isinstance(holder, list):
                mistakes.unsure.add(path)
    return rest


def _unshared(value: Any) -> Any:
    """A copy in which no object occurs twice. The value that a YAML alias repeats is one object at several places."""
    if isinstance(value, Mapping):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _steps(raw: Any, location: Location) -> Iterator[int | str]:
    """The steps of a location that lead to a value. Other steps name a union's members, or missing values."""
    for step in location:
        is_there = isinstance(step, int) and isinstance(raw, list) and step < len(raw)
        if is_there or (isinstance(raw, dict) and step in raw):
            yield step
            raw = raw[step]


@dataclass(frozen=True, slots=True)
class Places:
    """The file and the line of each value of a configuration, by the value's path. ``root`` is the given file; the
    other files are included by it."""

    root: Path
    _places: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def merge(self, path: Path, lines: Mapping[str, int], moved: Mapping[str, int]) -> None:
        """Add a file's lines. ``moved`` says, for each section that is a list, how many earlier items the file's items
        are joined to. All other values replace earlier ones."""
        for section in {_section(place) for place in lines} - moved.keys():
            for place in [place for place in self._places if _section(place) == section]:
                del self._places[place]
        for place, line in lines.items():
            section, bracket, rest = place.partition("[")
            if by := moved.get(_section(place), 0) if bracket else 0:
                index, _, end = rest.partition("]")
                place = f"{section}[{int(index) + by}]{end}"
            self._places[place] = (path, line)

    def located(self, message: str) -> str:
        """The message with the line of its path; unchanged if the path has no line."""
        path = path_of(message)
        while path and path not in self._places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        if not path:
            return message
        file, line = self._places[path]
        return f"{message} (line {line})" if file == self.root else f"{message} (line {line} of {file})"


def _section(place: str) -> str:
    return place.partition(".")[0].partition("[")[0]


MOST_BYTES = 1 << 20
MOST_NODES = 100_000
_MOST_DEPTH = 40
_MOST_KEYS = 2_000
_MOST_KEY_CHARS = 256
_MOST_NUMBER_CHARS = 100
_TEXT = "tag:yaml.org,2002:str"
_HALF = re.compile("[\ud800-\udfff]")


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
            if not node.value.isascii() and _HALF.search(node.value):
                raise self._refused(node, "holds an escape for half of a character: write the character itself")
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
