"""What the panels of a workspace show, and what changes them."""

from collections.abc import Callable
from random import Random

import pytest

from proxy.context.panels import HAZARDS
from proxy.lab.demo.panels import Workspace


def shown(workspace: Workspace) -> dict[str, str]:
    return {panel.id: panel.content for panel in workspace.panels()}


@pytest.mark.parametrize(
    ("step", "changes"),
    [
        (Workspace.work, {"git", "console"}),
        (Workspace.tick, {"todo"}),
        (Workspace.remember, {"memory"}),
        (Workspace.create, {"tree"}),
    ],
)
def test_each_step_of_the_work_changes_the_panels_that_show_it(
    step: Callable[[Workspace], None], changes: set[str]
) -> None:
    workspace = Workspace(Random(1))
    for _ in range(5):
        before = shown(workspace)
        step(workspace)
        assert {name for name, content in shown(workspace).items() if content != before[name]} == changes


def test_an_edit_changes_the_file_that_it_names_and_no_other() -> None:
    workspace = Workspace(Random(1))
    for _ in range(20):
        before = shown(workspace)
        path = workspace.edit()
        changed = [panel for panel in workspace.panels() if panel.content != before[panel.id]]
        assert [panel.header for panel in changed] == [path]


def test_the_panels_have_ids_of_their_own_and_known_kinds_and_stay_in_their_size() -> None:
    workspace = Workspace(Random(1))
    for _ in range(60):
        workspace.work()
        workspace.tick()
    panels = workspace.panels()
    assert len({panel.id for panel in panels}) == len(panels) == 8
    assert {panel.kind for panel in panels} <= HAZARDS.keys()
    assert all(800 < len(panel.content) < 20_000 for panel in panels)


def test_the_same_chance_gives_the_same_workspace() -> None:
    assert Workspace(Random(2)).panels() == Workspace(Random(2)).panels() != Workspace(Random(3)).panels()
