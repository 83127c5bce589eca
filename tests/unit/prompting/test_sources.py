"""Where prompts come from, and in which order they are registered."""

from pathlib import Path
from typing import Any

import pluggy
import pytest

from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Condition, Prompt, Variable
from proxy.hookspecs import PROJECT, Hooks, hookimpl
from proxy.prompting.files import PromptFileError
from proxy.prompting.sources import Sources
from tests.examples import for_every


class Plugin:
    """A plugin with prompts."""

    def __init__(self, *prompts: Any) -> None:
        self.prompts = prompts

    @hookimpl
    def register_prompts(self) -> list[Prompt]:
        return list(self.prompts)


def manager_of(*prompts: Any) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(Plugin(*prompts))
    return manager


def folder_of(place: Path, **texts: str) -> Path:
    place.mkdir()
    for name, text in texts.items():
        (place / f"{name}.md").write_text(f"---\nposition: system\n---\n{text}\n")
    return place


def test_prompts_are_registered_by_folder_by_path_and_then_by_plugin(tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "z", d="1", c="2"), folder_of(tmp_path / "a", b="3")
    sources = Sources.of([first, second], is_shipped=False, manager=manager_of(Prompt("a", Position.USER, "4")))
    snapshot = sources.snapshot()
    assert [prompt.id for prompt in snapshot.prompts] == ["c", "d", "b", "a"]
    assert snapshot.prompts[-1].origin == "a plugin"


def test_the_prompts_that_come_along_are_registered_first_or_not_at_all(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", mine="1")
    ids = [prompt.id for prompt in Sources.of([folder], manager=manager_of()).snapshot().prompts]
    assert "system_reminder" in ids
    assert ids[-1] == "mine"
    assert [prompt.id for prompt in Sources((folder,)).snapshot().prompts] == ["mine"]


def test_an_id_of_a_prompt_that_comes_along_is_refused_with_both_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", system_reminder="1")
    with pytest.raises(PromptFileError, match=r"mine/system_reminder\.md: .*prompts/system_reminder\.md; .*shipped"):
        Sources.of([folder], manager=manager_of()).snapshot()


def test_a_file_of_the_operators_may_not_stand_in_an_unknown_position(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine")
    (folder / "a.md").write_text("---\nposition: sytem\n---\ntext\n")
    with pytest.raises(PromptFileError, match=r"a\.md: 'front matter.position' must be one of"):
        Sources.of([folder], manager=manager_of()).snapshot()


@for_every(
    [
        ("text", "a plugin registers something that is no prompt"),
        (Prompt("a b", Position.USER, "text"), "a plugin: id: must be"),
        (Prompt("a", Position.USER, "text", origin="my_plugin", variables=(Variable("range x"),)), "my_plugin: variab"),
        (Prompt("a", Position.USER, "text", variables=(Variable("custom"),)), "'custom' is a root"),
        (Prompt("a", Position.USER, "text", variables=(Variable("a"), Variable("a"))), "'a' stands twice"),
        (Prompt("a", Position.USER, "text", conditions=(Condition("time.now", "exists"),)), r"conditions\[0\]: the fi"),
        (Prompt("a", Position.USER, "{% include 'b' %}"), "a plugin: line 1: 'include' is not available"),
        (Prompt("a", Position.USER, "\ud800"), "a plugin: something is no text"),
    ]
)
def test_a_plugins_prompt_is_held_to_the_rules_of_files(prompt: object, why: str) -> None:
    with pytest.raises(PromptFileError, match=why):
        Sources.of([], is_shipped=False, manager=manager_of(prompt)).snapshot()


def test_files_that_are_known_are_not_read_again(tmp_path: Path) -> None:
    sources = Sources((folder_of(tmp_path / "mine", a="1", b="2"),))
    states = sources.states()
    known = sources.read(states, {})
    for state in states:
        state.path.unlink()
    assert sources.read(states, known) == known
    with pytest.raises(PromptFileError, match=r"a\.md: the file cannot be read"):
        sources.read(states, {})


def test_a_folder_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", a="1")
    sources = Sources((folder, folder))
    assert len(sources.states()) == 1
    assert [prompt.id for prompt in sources.snapshot().prompts] == ["a"]
