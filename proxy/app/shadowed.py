"""Notices folders of the operator that hide our own packages.

``stratiform`` itself does not look for modules in the working folder. ``python -m``, ``PYTHONPATH`` and LiteLLM, which
looks for callbacks beside its configuration, do. So folders of the operator that have the name of one of our packages
are reported or refused here, and never imported silently.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import proxy
from proxy.app.settings import ConfigError

_HOME = Path(proxy.__file__).resolve().parents[1]
_PACKAGES = ("proxy", "plugins")


def refuse_shadowed() -> None:
    """Make sure that Python imports our own plugins. Raises ConfigError if it finds something else of that name
    first."""
    spec = find_spec("plugins")
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin or "nothing"]
    if not places or Path(places[0]).resolve() != _HOME / "plugins":
        found = places[0] if places else "nothing"
        raise ConfigError(
            [f"plugins: Python finds {found}, and not the package in {_HOME}: rename it, or see to PYTHONPATH"]
        )


def shadowing(folder: Path) -> Iterator[str]:
    """A warning for each package or module in ``folder``, the configuration's folder, that could be taken for one of
    ours."""
    for name in _PACKAGES:
        for path in (folder / name, folder / f"{name}.py"):
            if (path.is_file() or any(path.glob("*.py"))) and path.resolve() != _HOME / name:
                yield (
                    f"{path}: has the name of a package of Stratiform's: `python -m`, PYTHONPATH and LiteLLM's "
                    "`callbacks` would take it instead; rename it"
                )
