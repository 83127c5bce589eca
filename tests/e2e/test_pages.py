"""Every page is used as a reader uses it: its blocks are run in order, in an empty folder with an empty home."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.documents import ROOT, Page, pages
from tests.page_scripts import run
from tests.services import free_port

FRONT = Page(Path("README.md"))
_WAITED_S = 600
# A page is only parsed when its test runs: the whole of them takes as long as hundreds of tests.
RUN = [page for page in pages() if re.search(r"^ *```(console|python)$", page.text, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=str)
def test_the_blocks_of_a_page_are_run(page: Page, tmp_path: Path) -> None:
    said = run(page, free_port(), tmp_path)
    if page == FRONT:
        counts = [(int(prompt), int(read)) for prompt, read in re.findall(r"(\d+) tokens, (\d+) read", said)]
        assert [read > 0.9 * prompt for prompt, read in counts] == [False, True, True]


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    class Broken(Page):
        text = "```console\nstratiform check-config missing.yaml\necho behind it\n```\n"

    with pytest.raises(AssertionError, match="missing.yaml"):
        run(Broken(Path("broken.md")), free_port(), tmp_path)


@pytest.mark.slow
def test_a_stranger_sees_a_cache_hit_after_a_clone_and_the_first_two_commands_of_the_front_page(tmp_path: Path) -> None:
    (block,) = [one for one in FRONT.blocks() if one.text.startswith("make setup")]
    commands = [line.partition("#")[0].strip() for line in block.text.splitlines()[:2]]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    said = ""
    for command in commands:
        ended = subprocess.run(["bash", "-c", command], cwd=clone, capture_output=True, text=True, timeout=_WAITED_S)
        assert ended.returncode == 0, ended.stderr
        said = ended.stdout
    assert int(re.findall(r"Read from the cache: ([\d,]+) of", said)[0].replace(",", "")) > 10_000
