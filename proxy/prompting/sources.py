"""Where the prompts of a registry come from: the folder that comes along, the operator's folders, plugins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pluggy

from proxy.core.prompts.prompt import Prompt
from proxy.prompting.files import SHIPPED, FileState, PromptFileError, checked_prompt, markdown_files, read_file
from proxy.prompting.fragments import Fragment, registered_fragments, texts_of
from proxy.prompting.snapshot import Snapshot

States = tuple[FileState, ...]
"""The files of all folders, in the order in which they are registered."""
Known = Mapping[FileState, Prompt | None]
"""What files held when they were read."""


@dataclass(frozen=True, slots=True)
class Sources:
    """``folders`` stand in the order of registration; prompts of plugins come behind them. Everything here reads files
    and calls the code of plugins, so it belongs beside the event loop."""

    folders: tuple[Path, ...]
    prompts: tuple[Prompt, ...] = ()
    fragments: Mapping[str, Fragment] | None = None

    @classmethod
    def of(cls, folders: Sequence[Path], *, manager: pluggy.PluginManager, is_shipped: bool = True) -> "Sources":
        """The sources of a configuration. ``is_shipped``: with the prompts that come along, in front of the others.
        Raises PromptFileError where a plugin registers what is no prompt or no fragment."""
        places = (SHIPPED, *folders) if is_shipped else tuple(folders)
        return cls(places, tuple(_registered(manager)), registered_fragments(manager))

    def states(self) -> States:
        """The files as they are now, each once. Raises PromptFileError where a folder cannot be read."""
        return tuple(dict.fromkeys(state for folder in self.folders for state in markdown_files(folder)))

    def read(self, states: States, known: Known) -> dict[FileState, Prompt | None]:
        """What the files hold; those that are known are not read again. Raises PromptFileError."""
        return {state: known[state] if state in known else read_file(state.path) for state in states}

    def composed(self, held: Known, earlier: Snapshot | None = None) -> Snapshot:
        """The snapshot of what the files hold and the plugins add. Raises PromptFileError."""
        prompts = [prompt for prompt in held.values() if prompt is not None]
        return Snapshot.of([*prompts, *self.prompts], texts_of(self.fragments or {}), earlier)

    def snapshot(self) -> Snapshot:
        """The whole set as it is now. Raises PromptFileError."""
        return self.composed(self.read(self.states(), {}))


def _registered(manager: pluggy.PluginManager) -> list[Prompt]:
    found: list[Prompt] = []
    for some in manager.hook.register_prompts():
        for prompt in some:
            if not isinstance(prompt, Prompt):
                raise PromptFileError("a plugin registers something that is no prompt")
            found.append(checked_prompt(replace(prompt, origin=prompt.origin or "a plugin")))
    return found
