"""The registry of prompts: the fragments of plugins, a snapshot of prompts with their templates, the sources from which
it is made (the shipped folder, the operator's folders, plugins), and the snapshot in force.

Files are looked at and read beside the event loop. A request holds the snapshot that it began with. A file that cannot
be read changes nothing: the last good snapshot stays in force, and the log and a metric say so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

import orjson
import pluggy

from proxy.core.digest import digest
from proxy.core.prompts.prompt import ID_PATTERN, ID_RULE, Prompt, RenderError
from proxy.core.value import dataclass, replace
from proxy.prompting.files import (
    MOST_BYTES,
    SHIPPED,
    FileState,
    PromptFileError,
    checked_prompt,
    markdown_files,
    read_file,
)
from proxy.prompting.templates import Templates
from proxy.telemetry.metrics import Metrics

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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``prompts`` are in the order of their registration. ``version`` identifies their content: equal prompts and
    fragments have the same version, wherever they come from."""

    prompts: tuple[Prompt, ...]
    templates: Templates
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
            templates = Templates(registered, fragments, earlier.templates if earlier is not None else None)
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
