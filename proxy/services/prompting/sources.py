"""Prompts from Markdown files with front matter, and the registry of prompts.

A file is read whole or refused whole, with the file's path and the field in the message. The front matter is read in
the same way as a configuration: a few lines cannot stand for millions of values.

Then come the fragments of plugins, the templates, which are compiled once for each text and rendered within bounds, a
snapshot of prompts with their templates, the sources from which it is made (the shipped folder, the operator's folders,
plugins), and the snapshot in force. Files are looked at and read beside the event loop. A request holds the snapshot
that it began with. A file that cannot be read changes nothing: the last good snapshot stays in force, and the log and a
metric say so.
"""

import asyncio
import logging
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from traceback import walk_tb
from types import MappingProxyType, TracebackType
from typing import Annotated, NoReturn

import orjson
import pluggy
from jinja2 import Template, TemplateError, UndefinedError
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert

import proxy
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.messages import ConfigError, value_of
from proxy.kit.tasks import suppress_and_log
from proxy.kit.value import dataclass, digest, replace
from proxy.prompts import (
    ID_PATTERN,
    ID_RULE,
    MOST_PRIORITY,
    ROOTS,
    Condition,
    ConditionError,
    Json,
    Position,
    Prompt,
    PromptContext,
    RenderError,
    Variable,
    is_json,
)
from proxy.prompts.assembler import checked
from proxy.protocol.wire import refused
from proxy.services.prompting.language import WORK, RenderingWork, Uses, bounded, compiled

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
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({"position": tuple(Position)})


class PromptFileError(ConfigError):
    """A prompt cannot be read. The message names the file and the field."""

    def __init__(self, problem: str) -> None:
        super().__init__([problem])


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file, by which a change is noticed: when it was modified, its size, and its inode."""

    path: Path
    stamp: tuple[int, int, int]


class _Front(Struct, forbid_unknown_fields=True):
    position: Position
    id: str | UnsetType = UNSET
    version: Annotated[int, Meta(ge=0, le=MOST_PRIORITY)] = 1
    description: str = ""
    priority: Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = 0
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=_MOST_ITEMS)] = ()
    variables: Annotated[tuple[Variable, ...], Meta(max_length=_MOST_ITEMS)] = ()
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
        raise PromptFileError(f"{folder}: the folder cannot be read ({error.strerror})") from error
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
        raise PromptFileError(f"{path}: the file cannot be read ({error.strerror})") from error
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
            conditions=fields.conditions,
            variables=fields.variables,
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


GROUP = "stratiform.fragments"
"""The group of entry points."""
Fragment = Callable[[], str]


def registered_fragments(manager: pluggy.PluginManager) -> Mapping[str, Fragment]:
    """The fragments of plugins and of entry points, by name. Raises PromptFileError if a name occurs twice or is not
    valid, or if its fragment cannot be loaded or called."""
    found: dict[str, Fragment] = {}
    for name, fragment in _named(manager):
        if not isinstance(name, str) or ID_PATTERN.fullmatch(name) is None:
            raise PromptFileError(f"fragments: a name must be {ID_RULE}")
        if name in found:
            raise PromptFileError(f"fragments: '{name}' is registered twice")
        if not callable(fragment):
            raise PromptFileError(f"fragments: '{name}' is nothing that can be called")
        found[name] = fragment
    return found


def _named(manager: pluggy.PluginManager) -> Iterator[tuple[str, Fragment]]:
    for some in manager.hook.register_fragments():
        yield from some.items()
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            fragment = entry.load()
        except Exception as error:
            raise PromptFileError(f"fragments: '{entry.name}' cannot be loaded ({type(error).__name__})") from error
        yield entry.name, fragment


def texts_of(fragments: Mapping[str, Fragment]) -> dict[str, str]:
    """The present texts of the fragments. Raises PromptFileError if one fails, or gives no text or one that is too
    long."""
    return {name: _text(name, fragment) for name, fragment in fragments.items()}


def _text(name: str, fragment: Fragment) -> str:
    try:
        text = fragment()
    except Exception as error:
        # Only the type is shown, because a message could quote a text.
        raise PromptFileError(f"fragments: '{name}' fails ({type(error).__name__})") from error
    if not isinstance(text, str):
        raise PromptFileError(f"fragments: '{name}' gives no text")
    if len(text) > MOST_BYTES:
        raise PromptFileError(f"fragments: '{name}' gives more than {MOST_BYTES} characters")
    return text


_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_FILE = "<template>"
_LINE = re.compile(r"\Aline \d+")


class CompiledTemplates:
    """The compiled templates of a set of prompts, by their texts. So a changed text is never confused with the earlier
    text of the same id. Nothing here changes, so that any thread may render."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        fragments: Mapping[str, str] | None = None,
        earlier: "CompiledTemplates | None" = None,
    ) -> None:
        """``fragments`` are the texts that templates may include, by name. Templates that ``earlier`` has compiled are
        not compiled again. Raises RenderError, which begins with the prompt's origin or its id."""
        self.fragments: Mapping[str, str] = dict(fragments or {})
        known = earlier._compiled if earlier is not None else {}
        self._compiled: dict[str, tuple[Template, Uses]] = {}
        for prompt in prompts:
            if prompt.is_literal:
                continue
            try:
                found = known.get(prompt.text) or compiled(prompt.text)
                for _, why in unknown_names(prompt, found[1], self.fragments):
                    raise RenderError(why)
                self._compiled[prompt.text] = found
            except RenderError as error:
                raise RenderError(f"{prompt.origin or prompt.id}: {in_file(error, prompt)}") from error

    def render(self, prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
        """The text of a prompt that is not literal. The values of the context and of the prompt's own variables are
        texts and never templates. Raises RenderError."""
        template, _ = self._compiled.get(prompt.text) or compiled(prompt.text)
        try:
            rendering = template.new_context({**variables, **context, WORK: RenderingWork(self.fragments)})
            text = "".join(template.root_render_func(rendering))
            bounded(len(text))
        except (RenderError, *_FAILURES) as error:
            # A message of Python's own, or of the sandbox, may quote a value.
            why = str(error) if isinstance(error, RenderError | UndefinedError) else type(error).__name__
            raise RenderError(in_file(f"{_line(template, error.__traceback__)}{why}", prompt)) from error
        return text


def in_file(error: object, prompt: Prompt) -> str:
    """The error of a template, with the line in the prompt's file instead of the line in the text."""
    return _LINE.sub(lambda found: f"line {int(found[0][5:]) + prompt.first_line - 1}", str(error), 1)


def unknown_names(prompt: Prompt, uses: Uses, fragments: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The references of a template that are not defined anywhere, sorted: the kind of mistake, and a message."""
    known = {*ROOTS, *(variable.name for variable in prompt.variables)}
    for name in sorted(uses.names - known):
        yield (
            "undefined-variable",
            f"{_where(name, prompt)}'{name}' is neither a root of the context nor a variable of the prompt",
        )
    for name in sorted(uses.fragments - fragments.keys()):
        yield "unknown-fragment", f"{_where(name, prompt)}there is no fragment '{name}'"


def _where(name: str, prompt: Prompt) -> str:
    """The first line in which a tag has the name, as the beginning of a message."""
    found = re.search(rf"\{{[{{%][^{{}}]*?\b{re.escape(name)}\b", prompt.text)
    return f"line {prompt.text.count(chr(10), 0, found.end()) + 1}: " if found is not None else ""


def _line(template: Template, trace: TracebackType | None) -> str:
    """The line of the template in which an error was raised, as the beginning of a message."""
    lines = [number for frame, number in walk_tb(trace) if frame.f_code.co_filename == _FILE]
    return f"line {template.get_corresponding_lineno(lines[-1])}: " if lines else ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``prompts`` are in the order of their registration. ``version`` identifies their content: equal prompts and
    fragments have the same version, wherever they come from."""

    prompts: tuple[Prompt, ...]
    templates: CompiledTemplates
    version: str

    @classmethod
    def of(
        cls,
        prompts: Iterable[Prompt] = (),
        fragments: Mapping[str, str] | None = None,
        earlier: "Snapshot | None" = None,
    ) -> "Snapshot":
        """A snapshot of these prompts. Templates that ``earlier`` has compiled are not compiled again. Raises
        PromptFileError if an id occurs twice or a template cannot be read."""
        registered = tuple(prompts)
        first: dict[str, Prompt] = {}
        for prompt in registered:
            other = first.setdefault(prompt.id, prompt)
            if other is not prompt:
                raise PromptFileError(
                    f"{prompt.origin}: id: '{prompt.id}' is already the id of {other.origin}; rename one of them, or "
                    "switch the prompts that come along off with 'shipped: false'"
                )
        try:
            templates = CompiledTemplates(registered, fragments, earlier.templates if earlier is not None else None)
        except RenderError as error:
            raise PromptFileError(str(error)) from error
        return cls(registered, templates, _version(registered, templates.fragments))


def _version(prompts: tuple[Prompt, ...], fragments: Mapping[str, str]) -> str:
    parts = [_bytes(_said(prompt), prompt.origin or prompt.id) for prompt in prompts]
    parts.append(_bytes(sorted(fragments.items()), "fragments"))
    return digest(*parts)[:6].hex()


def _bytes(value: object, place: str) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise PromptFileError(f"{place}: something is no text, or no value that JSON has") from error


def _said(prompt: Prompt) -> list[object]:
    """The parts of a prompt on which a composition depends."""
    return [
        prompt.id,
        prompt.position,
        prompt.text,
        prompt.priority,
        [[condition.field, condition.operator, condition.value] for condition in prompt.conditions],
        [[each.name, each.source, each.required, each.default] for each in prompt.variables],
        prompt.profile,
        prompt.is_literal,
    ]


States = tuple[FileState, ...]
"""The files of all folders, in the order in which they are registered."""
Known = Mapping[FileState, Prompt | None]
"""The content of files when they were read."""


@dataclass(frozen=True, slots=True)
class Sources:
    """``folders`` are in the order of registration, and prompts of plugins come after them. Everything here reads files
    and calls the code of plugins, so it must run beside the event loop."""

    folders: tuple[Path, ...]
    prompts: tuple[Prompt, ...] = ()
    fragments: Mapping[str, Fragment] | None = None

    @classmethod
    def of(cls, folders: Sequence[Path], *, manager: pluggy.PluginManager, is_shipped: bool = True) -> "Sources":
        """The sources of a configuration. ``is_shipped``: with the shipped prompts, in front of the others. Raises
        PromptFileError if a plugin registers something that is no prompt or no fragment."""
        places = (SHIPPED, *folders) if is_shipped else tuple(folders)
        return cls(places, tuple(_registered(manager)), registered_fragments(manager))

    def states(self) -> States:
        """The files as they are now, each once. Raises PromptFileError if a folder cannot be read."""
        return tuple(dict.fromkeys(state for folder in self.folders for state in markdown_files(folder)))

    def read(self, states: States, known: Known) -> dict[FileState, Prompt | None]:
        """The content of the files. Known files are not read again. Raises PromptFileError."""
        return {state: known[state] if state in known else read_file(state.path) for state in states}

    def composed(self, held: Known, earlier: Snapshot | None = None) -> Snapshot:
        """The snapshot of the prompts of the files and of the plugins. Raises PromptFileError."""
        return Snapshot.of([*filter(None, held.values()), *self.prompts], texts_of(self.fragments or {}), earlier)

    def snapshot(self) -> Snapshot:
        return self.composed(self.read(self.states(), {}))


def _registered(manager: pluggy.PluginManager) -> list[Prompt]:
    found = list(chain.from_iterable(manager.hook.register_prompts()))
    if not all(isinstance(prompt, Prompt) for prompt in found):
        raise PromptFileError("a plugin registers something that is no prompt")
    return [checked_prompt(replace(prompt, origin=prompt.origin or "a plugin")) for prompt in found]


_MOST_NAMED = 10

_log = logging.getLogger("stratiform")


class Registry:
    """The prompts in force, which are its ``snapshot``."""

    def __init__(self, sources: Sources, metrics: Metrics) -> None:
        self._sources = sources
        self._held = sources.read(sources.states(), {})
        self._mistake = ""
        self._metrics = metrics
        self.snapshot = sources.composed(self._held)
        metrics.prompt_set(self.snapshot.version)

    async def watch(self, look_s: float, wait: Callable[[float], Awaitable[None]]) -> None:
        """Look at the files again and again, with a pause of ``look_s`` seconds before each time, until its task
        ends."""
        while True:
            await wait(look_s)
            with suppress_and_log("prompts.watch"):
                await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Look at the files once, and take over what has changed. It reads files, so it belongs beside the event
        loop; only one thread may look at a time."""
        try:
            states = self._sources.states()
            if states == tuple(self._held):
                self._mistake = ""
                return
            held = self._sources.read(states, self._held)
            if self._sources.states() != states:
                return  # A file is being written. The next look reads it.
            snapshot = self._sources.composed(held, self.snapshot)
        except PromptFileError as error:
            # The same mistake is reported only once, however often the files are looked at.
            if str(error) != self._mistake:
                self._mistake = str(error)
                _log.error("the prompts are not reloaded, version %s stays in force: %s", self.snapshot.version, error)
                self._metrics.prompts_reloaded("broken")
            return
        self._held, self._mistake = held, ""
        before, self.snapshot = self.snapshot, snapshot
        if before.version == snapshot.version:
            _log.info("the prompts were read again, and say what they said (version %s)", snapshot.version)
            self._metrics.prompts_reloaded("unchanged")
            return
        _log.warning(
            "the prompts have changed from version %s to %s (%s): each session that uses one of them misses its cache "
            "once, from the changed text on",
            before.version,
            snapshot.version,
            _changed(before, snapshot),
        )
        self._metrics.prompt_set(snapshot.version)
        self._metrics.prompts_reloaded("changed")


def _changed(before: Snapshot, after: Snapshot) -> str:
    """The ids of the prompts that were added, removed or changed, in words."""
    old, new = ({prompt.id: prompt for prompt in snapshot.prompts} for snapshot in (before, after))
    ids = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(ids[:_MOST_NAMED]) + more if ids else "fragments or the order"
