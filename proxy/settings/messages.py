"""Describes what is wrong with a configuration. Each message begins with the path of the key.

Messages never repeat a value, because any value may be a secret in the wrong place.
"""

import types
import typing
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from proxy.settings.environment import join

_MOST_EXPLAINED = 100


class ConfigError(Exception):
    """The configuration cannot be used. ``problems`` are lines, each beginning with the path of a key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def explain(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """A line for every problem that pydantic found in a ``model``."""
    problems = error.errors(include_url=False, include_input=False, include_context=True)
    for problem in problems[:_MOST_EXPLAINED]:
        path, owner = _walk(problem["loc"], model, is_unknown_key=problem["type"] == "extra_forbidden")
        yield f"{path}: {_reason(problem, owner)}"
    if len(problems) > _MOST_EXPLAINED:
        yield f"and {len(problems) - _MOST_EXPLAINED} more problems of this kind"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that this name is probably a misspelling of; None where none is close."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.75)), None)


def _reason(problem: Any, owner: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            known = next((list(part.model_fields) for part in _parts(owner) if _is_model(part)), [])
            close = nearest(str(problem["loc"][-1]), known)
            return f"unknown key; did you mean `{close}`?" if close else f"unknown key; known are {', '.join(known)}"
        case "missing":
            return "is required"
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            message = str(problem["msg"])
            return message[:1].lower() + message[1:]


def _walk(location: tuple[int | str, ...], model: type[BaseModel], *, is_unknown_key: bool) -> tuple[str, Any]:
    """The path of a location, and the annotation of what holds its last key.

    Pydantic adds the names of a union's members to a location (``alias.x.str``). They are not keys of the schema, and
    are left out of the path. An unknown key at the end is no key of the schema either, but stays.
    """
    path, here, owner = "", model, model
    for index, key in enumerate(location):
        step = _step(here, key)
        if step is None and not (is_unknown_key and index == len(location) - 1):
            continue
        path, owner, here = join(path, key), here, step
    return path, owner


def _step(annotation: Any, key: int | str) -> Any:
    """The annotation of the item under a key; None where there is no such key."""
    for part in _parts(annotation):
        if _is_model(part) and key in part.model_fields:
            return part.model_fields[key].annotation
        if get_origin(part) in (list, dict):
            return get_args(part)[-1]
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the annotation itself."""
    match get_origin(annotation):
        case typing.Union | types.UnionType:
            for member in get_args(annotation):
                yield from _parts(member)
        case typing.Annotated:
            yield from _parts(get_args(annotation)[0])
        case _:
            yield annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
