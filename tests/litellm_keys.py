"""Keys in the form in which LiteLLM stores them."""

import ast
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def litellms_hash(key: str) -> str:
    """The hash of a key by LiteLLM's own function."""
    return _hash_token()(key)


@cache
def _hash_token() -> Callable[[str], str]:
    """LiteLLM's function, which is read from its wheel. Importing its module would need all of LiteLLM's proxy."""
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "proxy" / "utils.py").read_text()
    found = [one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name == "hash_token"]
    names: dict[str, Any] = {"Final": Any}
    exec(compile(ast.Module(found, []), "hash_token", "exec"), names)
    function: Callable[[str], str] = names["hash_token"]
    return function


def key_row(key: str, **more: object) -> dict[str, object]:
    return {"token": litellms_hash(key), "key_name": f"sk-...{key[-4:]}", "models": [], "spend": 0.0, **more}
