"""Reads the environment (nothing else does), and replaces references to it in a configuration.

A reference has LiteLLM's form: ``os.environ/NAME``. It may be a whole string or a part of one
(``Bearer os.environ/TOKEN``).
"""

import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

_WHOLE = re.compile(r"os\.environ/([A-Za-z0-9_.-]+)")
_API_KEY = "sk-"
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
        if isinstance(value, str):
            return self._expand_text(value, path, problems)
        if isinstance(value, Mapping):
            return {key: self.expand(item, join(path, key), problems) for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, join(path, index), problems) for index, item in enumerate(value)]
        return value

    def _expand_text(self, text: str, path: str, problems: list[str]) -> str | None:
        if "os.environ/" not in text:
            return text
        whole = _WHOLE.fullmatch(text)
        missing = [one for one in ([whole[1]] if whole else _INSIDE.findall(text)) if one not in self._variables]
        problems += [f"{path}: the environment variable {name} is not set" for name in missing]
        if missing:
            return None
        return self._variables[whole[1]] if whole else _INSIDE.sub(lambda match: self._variables[match[1]], text)


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
    return f"{_API_KEY}..." if text.startswith(_API_KEY) else text
