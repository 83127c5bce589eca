"""Reads prompts from Markdown files with front matter.

A file is read whole or refused whole, with the file's path and the field in the message. The front matter is read in
the same way as a configuration: a few lines cannot stand for millions of values.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import astuple

import proxy
from proxy.core.prompts.conditions import checked
from proxy.core.prompts.prompt import (
    ID_PATTERN,
    ID_RULE,
    MOST_PRIORITY,
    ROOTS,
    Condition,
    ConditionError,
    Position,
    Prompt,
    Variable,
    is_json,
)
from proxy.core.value import dataclass
from proxy.core.wire.refusals import refused
from proxy.settings.messages import ConfigError
from proxy.settings.yaml_file import value_of

SHIPPED = Path(proxy.__file__).parent.parent / "prompts"
"""The folder of the shipped prompts, beside the package."""
MOST_BYTES = 256 << 10
"""The largest file that is read."""
MOST_FRONT_CHARS = 32 << 10
"""The longest front matter that is read."""
MOST_FILES = 2_000
"""The most files of one folder."""
FIXED_POSITIONS = frozenset({"header", "acknowledgement", "legend", "own_call", "panels"})
"""Files in these positions hold fixed texts, which other parts of the proxy read. They are no prompts."""

_MOST_DEPTH = 8
_MOST_ITEMS = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NO_JSON = "must be a value that JSON has (quote dates and times)"
_Needed = Annotated[str, Meta(min_length=1)]
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({"position": tuple(Position)})


class PromptFileError(ValueError):
    """A prompt cannot be read. The message names the file and the field."""


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file, by which a change is noticed: when it was modified, its size, and its inode."""

    path: Path
    stamp: tuple[int, int, int]


class _ConditionFields(Struct, forbid_unknown_fields=True):
    field: _Needed
    operator: _Needed
    value: Any = None


class _VariableFields(Struct, forbid_unknown_fields=True):
    name: _Needed
    source: str = ""
    required: bool = False
    default: Any = None
    description: str = ""


class _Front(Struct, forbid_unknown_fields=True):
    position: Position
    id: str | UnsetType = UNSET
    version: Annotated[int, Meta(ge=0, le=MOST_PRIORITY)] = 1
    description: str = ""
    priority: Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = 0
    conditions: Annotated[list[_ConditionFields], Meta(max_length=_MOST_ITEMS)] = []
    variables: Annotated[list[_VariableFields], Meta(max_length=_MOST_ITEMS)] = []
    profile: str = ""


def markdown_files(folder: Path) -> list[FileState]:
    """The Markdown files of a folder and of the folders in it, by path. README files and names that begin with a dot
    are skipped, and links to folders are not followed. Raises PromptFileError if the folder cannot be read, or holds
    too many files."""
    found: list[FileState] = []
    try:
        for place, folders, names in os.walk(folder, onerror=_unreadable):
            links = [name for name in folders if Path(place, name).is_symlink()]
            folders[:] = [name for name in folders if name[0] != "." and name not in links]
            if folders and len(Path(place).relative_to(folder).parts) >= _MOST_DEPTH:
                raise PromptFileError(f"{place}: folders are nested deeper than {_MOST_DEPTH} levels")
            named = (name for name in (*names, *links) if name.endswith(".md") and not name.startswith("."))
            for path in (Path(place, name) for name in named):
                if path.stem.lower() != "readme" and (path.is_file() or path.is_symlink()):
                    state = path.stat()
                    found.append(FileState(path, (state.st_mtime_ns, state.st_size, state.st_ino)))
                if len(found) > MOST_FILES:
                    raise PromptFileError(f"{folder}: the folder holds more than {MOST_FILES} prompts")
    except OSError as error:
        raise PromptFileError(f"{folder}: the folder cannot be read ({type(error).__name__})") from error
    return sorted(found, key=lambda state: state.path.relative_to(folder).as_posix())


def _unreadable(error: OSError) -> NoReturn:
    raise error


def read_file(path: Path) -> Prompt | None:
    """The prompt of a file. None if the file holds a fixed text. Reading never waits for a link to a pipe, into which
    nobody may ever write. Raises PromptFileError."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PromptFileError(f"{path}: this is no regular file")
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise PromptFileError(f"{path}: the file cannot be read ({type(error).__name__})") from error
    except UnicodeDecodeError as error:
        raise PromptFileError(f"{path}: the file is not UTF-8") from error
    if len(raw) > MOST_BYTES:
        raise PromptFileError(f"{path}: the file is larger than {MOST_BYTES} bytes")
    return read_prompt(path, text, is_shipped=SHIPPED in path.parents)


def read_prompt(path: Path, text: str, *, is_shipped: bool = False) -> Prompt | None:
    """The prompt in a file's text. None if it is a fixed text: one with a position of ``FIXED_POSITIONS`` or, in the
    shipped folder, any other position that no prompt has. Raises PromptFileError."""
    front, body = _parted(path, text)
    position = front.get("position") if isinstance(front, dict) else None
    is_other = isinstance(position, str) and position != "" and position not in set(Position)
    if is_other and (is_shipped or position in FIXED_POSITIONS):
        return None
    try:
        fields = convert(front, _Front)
    except ValidationError as error:
        raise PromptFileError(f"{path}: {refused(error, 'front matter', _CHOICES)}") from error
    template = body.replace("\r\n", "\n").strip("\n")
    if not template.strip():
        raise PromptFileError(f"{path}: there is no text behind the front matter")
    whole = text.replace("\r\n", "\n").rstrip("\n")
    return checked_prompt(
        Prompt(
            id=path.stem if fields.id is UNSET else fields.id,
            first_line=whole.count("\n") - template.count("\n") + 1,
            position=fields.position,
            text=template,
            priority=fields.priority,
            conditions=tuple(Condition(*astuple(each)) for each in fields.conditions),
            variables=tuple(Variable(*astuple(each)) for each in fields.variables),
            profile=fields.profile,
            description=fields.description,
            origin=str(path),
        )
    )


def checked_prompt(prompt: Prompt) -> Prompt:
    """The prompt, after a check of its id, its variables and its conditions for mistakes that do not depend on the
    context. Raises PromptFileError."""
    if ID_PATTERN.fullmatch(prompt.id) is None:
        raise PromptFileError(f"{prompt.origin}: id: must be {ID_RULE}")
    seen: set[str] = set()
    for index, variable in enumerate(prompt.variables):
        where = f"{prompt.origin}: variables[{index}]"
        name, source = variable.name, variable.source
        mistakes = {
            "name: must be a name of letters, digits and _ that a template can use": _NAME.fullmatch(name) is None,
            f"name: '{name}' is a root of the context": name in ROOTS,
            f"name: '{name}' stands twice": name in seen,
            f"default: {_NO_JSON}": not is_json(variable.default),
            f"source: must begin with one of {', '.join(ROOTS)}": source and source.partition(".")[0] not in ROOTS,
        }
        for what, is_made in mistakes.items():
            if is_made:
                raise PromptFileError(f"{where}: {what}")
        seen.add(variable.name)
    for index, condition in enumerate(prompt.conditions):
        if not is_json(condition.value):
            raise PromptFileError(f"{prompt.origin}: conditions[{index}]: value: {_NO_JSON}")
        try:
            checked(condition)
        except ConditionError as error:
            raise PromptFileError(f"{prompt.origin}: conditions[{index}]: {error}") from error
    return prompt


def _parted(path: Path, text: str) -> tuple[object, str]:
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        raise PromptFileError(f"{path}: there is no front matter: the first line must be ---")
    end = next((index for index, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    if end is None:
        raise PromptFileError(f"{path}: the front matter has no end: a line --- is missing")
    front = "".join(lines[1:end])
    if len(front) > MOST_FRONT_CHARS:
        raise PromptFileError(f"{path}: the front matter is longer than {MOST_FRONT_CHARS} characters")
    try:
        # The empty line replaces the first line of the file.
        return value_of("\n" + front, path), "".join(lines[end + 1 :])
    except ConfigError as error:
        raise PromptFileError("; ".join(error.problems)) from error
