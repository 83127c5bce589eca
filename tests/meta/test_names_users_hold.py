"""What users have written down somewhere else keeps its name: configurations, dashboards, scripts, plugins.

``names_users_hold.txt`` lists the names, one a line, each with its kind in front. A name that is replaced stays in the
list and goes on working, with a warning; a new name is added to the list.
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from pydantic import BaseModel

from proxy.app.admin.reports import GROUPS
from proxy.app.settings.schema import ConfigFile
from proxy.cli import COMMANDS, command_of
from proxy.engine.telemetry.metrics import Metrics
from proxy.hookspecs import DEFAULT_PLUGINS, PROJECT, Hooks
from proxy.kit.modes import Mode, Reason
from proxy.protocol.providers import PROFILES
from proxy.storage import LedgerEntry
from proxy.teams import validation
from tests.examples import for_every

PROXY = Path(__file__).resolve().parents[2] / "proxy"
HELD = tuple(Path(__file__).with_name("names_users_hold.txt").read_text("utf-8").splitlines())
# Where the keys of JSON that is printed or answered are written.
JSON_FOLDERS = ("app/admin", "cli", "lab")


def settings(annotation: Any, path: str = "") -> Iterator[str]:
    """Every key of the configuration file, with its path, and the words that it accepts."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            inner = f"{path}.{name}".removeprefix(".")
            yield f"setting {inner}"
            yield from settings(field.annotation, inner)
    elif isinstance(annotation, str):
        yield f"setting {path}: {annotation}"
    for argument in get_args(annotation):
        yield from settings(argument, path)


def metrics() -> Iterator[str]:
    for collector in Metrics().registry._collector_to_names:
        for family in collector.collect():
            if family.name.startswith("stratiform_"):
                yield f"metric {family.name}"
                yield from (f"metric {family.name} by {label}" for label in collector._labelnames)


def options(parser: argparse.ArgumentParser, command: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield f"command {command} {name}"
                yield from options(inner, f"{command} {name}")
        else:
            yield from (f"option {command} {name}" for name in action.option_strings)
            name = action.option_strings[0] if action.option_strings else action.dest
            yield from (f"option {command} {name}: {word}" for word in action.choices or ())


def commands() -> Iterator[str]:
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        command_of(name).configure(parser)
        yield f"command {name}"
        yield from options(parser, name)


def admin_fields() -> Iterator[str]:
    for name, form in vars(validation).items():
        if isinstance(form, type) and issubclass(form, msgspec.Struct) and not name.startswith("_"):
            yield from (f"admin field {name.removesuffix('Form').lower()} {field}" for field in form.__struct_fields__)
    yield from (f"admin ledger {field.name}" for field in dataclasses.fields(LedgerEntry))
    yield from (f"admin spend by {name}" for name in GROUPS)


def texts(folder: Path) -> set[str]:
    """Every string that the code holds, and every name of a field: what a JSON key or a header is made from."""
    return {text for path in folder.rglob("*.py") for text in texts_of(path)}


@cache
def texts_of(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
    return frozenset(found)


def hooks() -> Iterator[str]:
    for name, hook in inspect.getmembers(Hooks, inspect.isfunction):
        yield f"hook {PROJECT} {name}"
        yield from (f"hook {PROJECT} {name} {argument}" for argument in inspect.signature(hook).parameters)


def names() -> Iterator[str]:
    yield from settings(ConfigFile)
    yield from metrics()
    yield from commands()
    yield from admin_fields()
    yield from hooks()
    yield from (f"reason {reason}" for reason in Reason)
    yield from (f"mode {mode.name.lower()}" for mode in Mode)
    yield from (f"cache profile {name}" for name in PROFILES)
    yield from (f"plugin {name}" for name in DEFAULT_PLUGINS)
    yield from (f"json {text}" for folder in JSON_FOLDERS for text in texts(PROXY / folder))
    yield from (f"text {text}" for text in texts(PROXY))


def importable(name: str) -> bool:
    """Whether a plugin can still write ``from MODULE import NAME``."""
    module, _, attribute = name.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return hasattr(importlib.import_module(module), attribute)


@cache
def _names() -> frozenset[str]:
    return frozenset(names())


def test_no_name_that_users_hold_is_lost() -> None:
    today = _names()
    assert [name for name in HELD if not name.startswith("import ") and name not in today] == []


@for_every([line.removeprefix("import ") for line in HELD if line.startswith("import ")])
def test_what_plugins_import_is_where_it_was(name: str) -> None:
    assert importable(name)


def test_a_lost_name_is_noticed() -> None:
    assert "setting stratiform.no_such_key" not in _names()
    assert not importable("proxy.protocol.recognition.NoSuchName")


@pytest.mark.parametrize(
    ("place", "name", "new"),
    [
        ("proxy.core.recognition", "Form", "proxy.protocol.recognition.MessageKind"),
        ("proxy.core.recognition", "Claim", "proxy.protocol.recognition.FileClaim"),
        ("proxy.core.words", "Claim", "proxy.protocol.recognition.FileClaim"),
    ],
)
def test_an_old_name_of_a_plugin_warns_with_the_new_one(place: str, name: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{place}.{name} is now {new}"):
        assert getattr(importlib.import_module(place), name)
