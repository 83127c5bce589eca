"""Every page is used as a reader uses it: its blocks are run in order, in an empty folder with an empty home."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents import ROOT, Page, pages
from tests.page_scripts import is_started, run
from tests.services import free_port

FRONT = Page(Path("README.md"))
RUN = [page for page in pages() if any(map(is_started, page.blocks()))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=str)
def test_the_blocks_of_a_page_are_run(page: Page, tmp_path: Path) -> None:
    run(page, free_port(), tmp_path)


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    class Broken(Page):
        text = "```console\nstratiform check-config missing.yaml\necho behind it\n```\n"

    with pytest.raises(AssertionError, match="missing.yaml"):
        run(Broken(Path("broken.md")), free_port(), tmp_path)


@pytest.mark.slow
def test_a_stranger_sees_cache_hits_with_the_first_commands_of_the_front_page(tmp_path: Path) -> None:
    """A clone, and what README says next: no key, no network but for the packages, at most five commands."""
    make = shutil.which("make")
    assert make, "make is part of what the project needs"
    (block,) = [one for one in FRONT.blocks() if one.text.startswith("make demo")]
    command = block.text.splitlines()[0].partition("#")[0].split()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    ended = subprocess.run(command, cwd=tmp_path / "clone", capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert "prompt tokens were read from the cache" in ended.stdout
