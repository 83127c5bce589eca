"""Fragments: texts that code owns and that templates include by name, such as a list of commands, so that prompts and
code agree.

A fragment is a callable without arguments that returns a text. It is called once for each snapshot.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points

import pluggy

from proxy.core.prompts.prompt import ID_PATTERN, ID_RULE
from proxy.prompting.files import MOST_BYTES, PromptFileError

GROUP = "stratiform.fragments"
"""The group of entry points."""
Fragment = Callable[[], str]


def registered_fragments(manager: pluggy.PluginManager) -> Mapping[str, Fragment]:
    """The fragments of plugins and of entry points, by name. Raises PromptFileError where a name stands twice, is none,
    or names something that cannot be loaded or called."""
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
    """What the fragments say now. Raises PromptFileError where one fails, or gives no text or too long a one."""
    return {name: _text(name, fragment) for name, fragment in fragments.items()}


def _text(name: str, fragment: Fragment) -> str:
    try:
        text = fragment()
    except Exception as error:
        # The type only: a message could quote a text.
        raise PromptFileError(f"fragments: '{name}' fails ({type(error).__name__})") from error
    if not isinstance(text, str):
        raise PromptFileError(f"fragments: '{name}' gives no text")
    if len(text) > MOST_BYTES:
        raise PromptFileError(f"fragments: '{name}' gives more than {MOST_BYTES} characters")
    return text
