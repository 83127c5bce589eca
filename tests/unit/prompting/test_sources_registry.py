"""The registry while files change: what is in force, what is told, and when."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.core.prompts.prompt import ROOTS, Prompt
from proxy.prompting.files import FileState, PromptFileError
from proxy.prompting.sources import Known, Registry, Sources, States
from proxy.tasks import Tasks, cancel, spawn
from proxy.telemetry.metrics import Metrics
from tests.fake_time import FakeTime

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
