"""Finds files of the installed litellm. They are read as data, because importing litellm takes seconds."""

from importlib.util import find_spec
from pathlib import Path


def litellm_file(name: str) -> Path | None:
    """A file of litellm's package; None if litellm or the file is missing."""
    spec = find_spec("litellm")
    found = [Path(folder, name) for folder in (spec.submodule_search_locations or () if spec is not None else ())]
    return next((path for path in found if path.is_file()), None)
