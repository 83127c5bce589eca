"""The names of providers that the installed litellm knows, read from its files: importing it takes seconds.

They are the values of the enumeration ``LlmProviders`` and the keys of the providers that are described as data
(litellm/types/utils.py, litellm/llms/openai_like/providers.json).
"""

import importlib.util
import re
from pathlib import Path

import orjson

_NAMES = "types/utils.py"
_DATA = "llms/openai_like/providers.json"
_ENUMERATION = re.compile(r"^class LlmProviders\b.*?(?=^\S)", re.DOTALL | re.MULTILINE)
_VALUE = re.compile(r"^ +[A-Z0-9_]+ *= *[\"']([^\"']+)[\"']", re.MULTILINE)


def provider_names() -> frozenset[str]:
    """The names; none where they are not found in the form that they have today."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    folder = Path(spec.submodule_search_locations[0])
    try:
        found = _ENUMERATION.search((folder / _NAMES).read_text(encoding="utf-8"))
        described = orjson.loads((folder / _DATA).read_bytes())
    except (OSError, ValueError):
        return frozenset()
    names = _VALUE.findall(found[0]) if found is not None else []
    return frozenset({*names, *described}) if names and isinstance(described, dict) else frozenset()
