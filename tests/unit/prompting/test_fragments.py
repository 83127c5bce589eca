"""Fragments: texts that code owns, by plugins and by entry points."""

from collections.abc import Callable
from pathlib import Path

import pluggy
import pytest

from proxy.hookspecs import PROJECT, Hooks, hookimpl
from proxy.prompting.files import MOST_BYTES, PromptFileError
from proxy.prompting.fragments import Fragment, registered_fragments, texts_of


class Plugin:
    """A plugin with fragments."""

    def __init__(self, **fragments: Fragment) -> None:
        self.fragments = fragments

    @hookimpl
    def register_fragments(self) -> dict[str, Callable[[], str]]:
        return self.fragments


def manager_of(*plugins: Plugin) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for plugin in plugins:
        manager.register(plugin)
    return manager


def install(folder: Path, module: str, code: str, entry_points: str) -> None:
    """A package as pip leaves it in a folder."""
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[stratiform.fragments]\n{entry_points}\n")


def test_fragments_of_plugins_and_of_entry_points_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "codes_of_errors", "def text():\n    return 'E1, E2'\n", "error-codes = codes_of_errors:text")
    monkeypatch.syspath_prepend(tmp_path)
    found = registered_fragments(manager_of(Plugin(rules=lambda: "Be kind."), Plugin(tools=lambda: "")))
    assert texts_of(found) == {"rules": "Be kind.", "tools": "", "error-codes": "E1, E2"}


@pytest.mark.parametrize("target", ["codes_of_none:text", "codes_of_none", "codes_that_break:text"])
def test_an_entry_point_that_cannot_be_loaded_is_told_by_its_name(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "codes_that_break", "raise RuntimeError('secret')\n", f"error-codes = {target}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PromptFileError, match=r"'error-codes' cannot be loaded \(\w+\)$"):
        registered_fragments(manager_of())


def test_a_module_is_no_fragment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "codes_alone", "", "error-codes = codes_alone")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PromptFileError, match="'error-codes' is nothing that can be called"):
        registered_fragments(manager_of())


def test_a_fragment_that_stands_twice_is_refused() -> None:
    with pytest.raises(PromptFileError, match="'rules' is registered twice"):
        registered_fragments(manager_of(Plugin(rules=str), Plugin(rules=str)))


@pytest.mark.parametrize("name", ["", "a b", "{{ x }}", "a" * 129])
def test_a_fragment_without_a_name_that_templates_can_write_is_refused(name: str) -> None:
    with pytest.raises(PromptFileError, match="a name must be"):
        registered_fragments(manager_of(Plugin(**{name: str})))


def fails() -> str:
    raise ValueError("the secret text")


@pytest.mark.parametrize(
    ("fragment", "why"),
    [
        (fails, r"'rules' fails \(ValueError\)"),
        (lambda: None, "'rules' gives no text"),
        (lambda: b"text", "'rules' gives no text"),
        (lambda needed: needed, r"'rules' fails \(TypeError\)"),
        (lambda: "x" * (MOST_BYTES + 1), "'rules' gives more than"),
    ],
)
def test_a_fragment_that_gives_no_text_is_told_by_its_name(fragment: Fragment, why: str) -> None:
    with pytest.raises(PromptFileError, match=why) as raised:
        texts_of({"rules": fragment})
    assert "secret" not in str(raised.value)
