"""Attacks on the files of the operator's prompts: what cannot be read changes nothing, and holds up nobody."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.security.world import CONFIG, World, chat, world_of
from tests.waiting import until

CHAT = "/v1/chat/completions"
RULE = "Rule: name no prices."
PROMPTS = """
  prompts:
    folders: ["{folder}"]
    shipped: false
    look_s: 0.1
    models:
      cheap: {use: [rules]}
"""


def prompts_in(folder: Path) -> str:
    """A configuration with one prompt in that folder."""
    folder.mkdir()
    (folder / "rules.md").write_text(f"---\nid: rules\nposition: system\n---\n{RULE}")
    return CONFIG + PROMPTS.replace("{folder}", str(folder))


def reloads(world: World, outcome: str) -> float:
    line = f'stratiform_prompt_reloads_total{{outcome="{outcome}"}} '
    return next((float(one[len(line) :]) for one in world.metrics().splitlines() if one.startswith(line)), 0.0)


def _pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def _vast(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.symlink_to(".")


def _tagged(path: Path) -> None:
    path.write_text('---\nid: !!map [a]\nposition: !!int ""\n---\nx')


def _closed(path: Path) -> None:
    path.write_text("---\nid: other\nposition: nowhere\n---\nx")


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [_pipe, _vast, _endless, _loop, _folder, _tagged, _closed])
def test_a_file_that_cannot_be_read_changes_nothing_and_is_forgotten_when_it_goes(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    folder = tmp_path / "texts"
    with world_of(prompts_in(folder)) as world:
        version = world.call("POST", CHAT, chat("cheap")).header("x-stratiform-prompts")
        spoil(folder / "other.md")
        until(lambda: reloads(world, "broken") >= 1)
        assert world.call("POST", CHAT, chat("cheap")).header("x-stratiform-prompts") == version
        (folder / "other.md").unlink()
        (folder / "rules.md").write_text("---\nid: rules\nposition: system\n---\nRule: none.")
        until(lambda: reloads(world, "changed") >= 1)
        world.forget()
        world.call("POST", CHAT, chat("cheap"))
        assert "Rule: none." in world.sent()[0].body.decode()


@pytest.mark.slow
def test_a_folder_that_disappears_leaves_the_prompts_in_force(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    with world_of(prompts_in(folder)) as world:
        folder.rename(tmp_path / "elsewhere")
        until(lambda: reloads(world, "broken") >= 1)
        world.call("POST", CHAT, chat("cheap"))
        assert [RULE in seen.body.decode() for seen in world.sent()] == [True]
