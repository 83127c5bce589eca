"""Where prompts come from, in which order they are registered, and what is in force while files change."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pluggy
import pytest

from proxy.engine.telemetry.metrics import Metrics
from proxy.hookspecs import PROJECT, Hooks, hookimpl
from proxy.kit.tasks import Tasks, cancel, spawn
from proxy.prompts import ROOTS, Condition, Position, Prompt, RenderError, Variable
from proxy.services.prompting.sources import (
    MOST_BYTES,
    FileState,
    Fragment,
    Known,
    PromptFileError,
    Registry,
    Snapshot,
    Sources,
    States,
    registered_fragments,
    texts_of,
)
from tests.examples import for_every
from tests.fake_time import FakeTime


class Plugin:
    """A plugin with prompts."""

    def __init__(self, *prompts: Any) -> None:
        self.prompts = prompts

    @hookimpl
    def register_prompts(self) -> list[Prompt]:
        return list(self.prompts)


def manager_of(*prompts: Any, plugins: Iterable[object] = ()) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for plugin in (Plugin(*prompts), *plugins):
        manager.register(plugin)
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


class FragmentPlugin:
    """A plugin with fragments."""

    def __init__(self, **fragments: Fragment) -> None:
        self.fragments = fragments

    @hookimpl
    def register_fragments(self) -> dict[str, Callable[[], str]]:
        return self.fragments


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
    found = registered_fragments(
        manager_of(plugins=[FragmentPlugin(rules=lambda: "Be kind."), FragmentPlugin(tools=lambda: "")])
    )
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
        registered_fragments(manager_of(plugins=[FragmentPlugin(rules=str), FragmentPlugin(rules=str)]))


@pytest.mark.parametrize("name", ["", "a b", "{{ x }}", "a" * 129])
def test_a_fragment_without_a_name_that_templates_can_write_is_refused(name: str) -> None:
    with pytest.raises(PromptFileError, match="a name must be"):
        registered_fragments(manager_of(plugins=[FragmentPlugin(**{name: str})]))


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


GREETING = Prompt("greeting", Position.SYSTEM, "Hello {{ who }}", variables=(Variable("who"),), origin="a.md")
CHANGES = {
    "id": "welcome",
    "position": Position.USER,
    "text": "Hi {{ who }}",
    "priority": 1,
    "conditions": (Condition("mission.a", "exists"),),
    "variables": (Variable("who", default="you"),),
    "profile": "chat",
    "is_literal": True,
}


def test_a_snapshot_renders_its_prompts() -> None:
    context = {root: {} for root in ROOTS}
    assert Snapshot.of([GREETING]).templates.render(GREETING, context, {"who": "Ada"}) == "Hello Ada"


@for_every(CHANGES)
def test_the_version_changes_with_everything_that_may_change_what_is_composed(field: str) -> None:
    changed = replace(GREETING, **{field: CHANGES[field]})
    assert Snapshot.of([changed]).version != Snapshot.of([GREETING]).version


def test_the_version_changes_with_the_order_and_with_a_fragment() -> None:
    other = replace(GREETING, id="other")
    versions = {
        Snapshot.of(prompts, fragments).version
        for prompts in ([GREETING, other], [other, GREETING])
        for fragments in ({}, {"rules": "a"}, {"rules": "b"})
    }
    assert len(versions) == 6


def test_equal_prompts_have_an_equal_version_wherever_they_come_from() -> None:
    moved = replace(GREETING, origin="b.md", description="Says hello")
    assert Snapshot.of([moved], {"a": "1", "b": "2"}).version == Snapshot.of([GREETING], {"b": "2", "a": "1"}).version


def test_an_id_that_stands_twice_is_refused_with_both_files() -> None:
    with pytest.raises(PromptFileError, match=r"b\.md: id: 'greeting' is already the id of a\.md; .*'shipped: false'"):
        Snapshot.of([GREETING, replace(GREETING, origin="b.md")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ who", "line 1: "),
        ("\n{% include 'x' %}", "line 2: 'include' is not available"),
        ("{{ whom }}", "line 1: 'whom' is neither a root of the context nor a variable of the prompt"),
        ("\n{{ fragment('rules') }}", "line 2: there is no fragment 'rules'"),
    ],
)
def test_a_template_that_can_never_be_rendered_is_refused_with_its_file(text: str, why: str) -> None:
    with pytest.raises(PromptFileError, match=f"^a.md: {why}"):
        Snapshot.of([replace(GREETING, text=text)], {"others": ""})


def test_a_changed_text_under_the_same_id_is_rendered_as_it_is_now() -> None:
    context = {root: {} for root in ROOTS}
    before = Snapshot.of([GREETING])
    changed = replace(GREETING, text="Bye {{ who }}")
    after = Snapshot.of([changed], earlier=before)
    assert after.templates.render(changed, context, {"who": "Ada"}) == "Bye Ada"
    assert before.templates.render(GREETING, context, {"who": "Ada"}) == "Hello Ada"


def test_a_literal_text_is_never_a_template() -> None:
    literal = replace(GREETING, text="{{ nobody }} {% broken", is_literal=True)
    assert Snapshot.of([literal]).prompts == (literal,)


def test_a_text_that_no_template_of_the_snapshot_has_is_rendered_within_the_same_language() -> None:
    foreign = replace(GREETING, text="{{ who }}{{ ''.__class__ }}")
    with pytest.raises(RenderError, match="'__class__' is asked of something that is no object"):
        Snapshot.of().templates.render(foreign, {}, {"who": "Ada"})


FRONT = "---\nposition: system\n---\n"


class Desk:
    """A folder of prompts, the registry over it, and what it has told."""

    def __init__(self, folder: Path, **texts: str) -> None:
        self.folder = folder
        for name, text in texts.items():
            self.write(name, text)
        self.told: list[str] = []
        self.versions: list[str] = []
        self.threads: set[int] = set()
        self.registry = Registry(Sources((folder,)), self)

    def prompts_reloaded(self, outcome: str) -> None:
        self.told.append(outcome)
        self.threads.add(threading.get_ident())

    def prompt_set(self, version: str) -> None:
        self.versions.append(version)

    def write(self, name: str, text: str, front: str = FRONT) -> None:
        """Put a file in the place of another one, as deployments do: its inode is another one, too."""
        new = self.folder / f".{name}.new"
        new.write_text(f"{front}{text}\n")
        os.replace(new, self.folder / f"{name}.md")

    def texts(self) -> dict[str, str]:
        snapshot = self.registry.snapshot
        return {
            prompt.id: snapshot.templates.render(prompt, dict.fromkeys(ROOTS, {}), {}) for prompt in snapshot.prompts
        }


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, a="one", b="two")


def test_a_registry_opens_with_what_its_folders_hold(desk: Desk) -> None:
    assert desk.texts() == {"a": "one", "b": "two"}
    assert desk.told == []


def test_a_registry_does_not_open_where_a_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    with pytest.raises(PromptFileError, match=r"a\.md: there is no front matter"):
        Registry(Sources((tmp_path,)), Metrics())


def test_a_changed_file_is_in_force_after_the_next_look(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    before = desk.registry.snapshot
    desk.write("a", "three")
    assert desk.registry.snapshot is before
    desk.registry.look()
    after = desk.registry.snapshot
    assert desk.texts() == {"a": "three", "b": "two"}
    assert desk.told == ["changed"]
    assert desk.versions == [before.version, after.version]
    assert f"from version {before.version} to {after.version} (a)" in caplog.text
    assert "misses its cache once" in caplog.text
    assert "three" not in caplog.text


def test_files_that_come_and_go_are_followed(desk: Desk) -> None:
    desk.write("c", "three")
    (desk.folder / "a.md").unlink()
    desk.registry.look()
    assert desk.texts() == {"b": "two", "c": "three"}


def test_a_look_at_files_that_have_not_changed_changes_and_tells_nothing(desk: Desk) -> None:
    before = desk.registry.snapshot
    for _ in range(3):
        desk.registry.look()
    assert desk.registry.snapshot is before
    assert desk.told == []


def test_a_request_keeps_the_snapshot_that_it_began_with(desk: Desk) -> None:
    held = desk.registry.snapshot
    desk.write("a", "three")
    desk.registry.look()
    assert held.templates.render(held.prompts[0], dict.fromkeys(ROOTS, {}), {}) == "one"


def write_bytes(file: Path) -> None:
    file.write_bytes(b"---\nposition: user\n---\n\xff")


def rename(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


BREAKS: dict[str, Callable[[Desk], None]] = {
    "no front matter": lambda desk: desk.write("a", "text", front=""),
    "a wrong field": lambda desk: desk.write("a", "text", front="---\nposition: nowhere\n---\n"),
    "a template that cannot be read": lambda desk: desk.write("a", "{{ text"),
    "an unknown name": lambda desk: desk.write("a", "{{ text }}"),
    "an unknown fragment": lambda desk: desk.write("a", "{{ fragment('x') }}"),
    "an id that stands twice": lambda desk: desk.write("a", "text", front="---\nposition: system\nid: b\n---\n"),
    "no UTF-8": lambda desk: write_bytes(desk.folder / "a.md"),
    "a link to nothing": lambda desk: (desk.folder / "x.md").symlink_to("nothing.md"),
    "no folder": lambda desk: rename(desk.folder),
}


@pytest.mark.parametrize("mistake", BREAKS)
def test_what_is_broken_leaves_the_last_good_prompts_in_force_and_is_told_once(
    desk: Desk, mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = desk.registry.snapshot
    BREAKS[mistake](desk)
    for _ in range(3):
        desk.registry.look()
    assert desk.registry.snapshot is before
    assert desk.texts() == {"a": "one", "b": "two"}
    assert desk.told == ["broken"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"version {before.version} stays in force" in caplog.text
    assert str(desk.folder) in caplog.text


def test_another_mistake_is_told_again_and_a_mended_file_is_taken_over(desk: Desk) -> None:
    for text in ("{{ text", "{{ text", "{{ text }}", "{{ text", "mended"):
        desk.write("a", text)
        desk.registry.look()
    assert desk.told == ["broken", "broken", "broken", "changed"]
    assert desk.texts()["a"] == "mended"


def test_a_file_that_says_again_what_it_said_breaks_no_cache(desk: Desk) -> None:
    before = desk.registry.snapshot
    desk.write("a", "{{ text")
    desk.registry.look()
    desk.write("a", "one")
    desk.registry.look()
    assert desk.told == ["broken", "unchanged"]
    assert desk.registry.snapshot.version == before.version


class BusyFolder(Sources):
    """A folder in which a file is written while it is read, so many times."""

    writes: list[str] = []

    def read(self, states: States, known: Known) -> dict[FileState, Prompt | None]:
        held = super().read(states, known)
        if self.writes:
            (self.folders[0] / "a.md").write_text(f"{FRONT}{self.writes.pop()}\n")
        return held


def test_a_file_that_is_being_written_is_taken_over_when_it_stands_still(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(f"{FRONT}one\n")
    registry = Registry(BusyFolder((tmp_path,)), Metrics())
    BusyFolder.writes[:] = ["one, two, three and four", "one, two"]
    file.write_text(f"{FRONT}one, \n")
    seen = []
    for _ in range(4):
        registry.look()
        seen.append(registry.snapshot.prompts[0].text)
    assert seen == ["one", "one", "one, two, three and four", "one, two, three and four"]


def test_many_changes_are_named_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path)
    for number in range(12):
        desk.write(f"p{number:02}", "text")
    desk.registry.look()
    assert "(p00, p01, p02, p03, p04, p05, p06, p07, p08, p09 and 2 more)" in caplog.text


def test_files_are_looked_at_once_a_second_beside_the_event_loop(desk: Desk) -> None:
    async def main() -> None:
        time, tasks = FakeTime(0.0), Tasks()
        spawn(desk.registry.watch(1.0, time.wait), tasks)
        desk.write("a", "three")
        await time.advance(0.9)
        assert desk.texts()["a"] == "one"
        await time.advance(0.2)
        assert desk.texts()["a"] == "three"
        desk.write("a", "{{ broken")
        await time.advance(3.0)
        assert desk.texts()["a"] == "three"
        desk.write("a", "four")
        await time.advance(1.0)
        assert desk.texts()["a"] == "four"
        await cancel(tasks)

    asyncio.run(main())
    assert desk.told == ["changed", "broken", "changed"]
    assert threading.get_ident() not in desk.threads


def test_an_unexpected_failure_does_not_end_the_watch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        time, tasks = FakeTime(0.0), Tasks()
        spawn(desk.registry.watch(1.0, time.wait), tasks)
        with monkeypatch.context() as patched:
            patched.setattr(desk.registry, "look", lambda: 1 // 0)
            await time.advance(1.1)
        desk.write("a", "three")
        await time.advance(1.0)
        assert desk.texts()["a"] == "three"
        await cancel(tasks)

    asyncio.run(main())


def test_a_fragment_is_asked_once_for_each_snapshot(tmp_path: Path) -> None:
    asked: list[int] = []

    def count() -> str:
        asked.append(1)
        return f"{len(asked)}"

    (tmp_path / "a.md").write_text(f"{FRONT}{{{{ fragment('count') }}}}{{{{ fragment('count') }}}}\n")
    registry = Registry(Sources((tmp_path,), fragments={"count": count}), Metrics())
    prompt = registry.snapshot.prompts[0]
    for _ in range(3):
        registry.look()
        assert registry.snapshot.templates.render(prompt, dict.fromkeys(ROOTS, {}), {}) == "11"
    (tmp_path / "b.md").write_text(f"{FRONT}text\n")
    registry.look()
    assert registry.snapshot.templates.render(prompt, dict.fromkeys(ROOTS, {}), {}) == "22"
