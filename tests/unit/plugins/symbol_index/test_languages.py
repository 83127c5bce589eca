"""Each language's sample has the block and the imports that its golden file says."""

from pathlib import Path

import pytest

from tests.symbols import symbols

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.golden"))
LINE = "----------\n"


def parts(sample: Path) -> tuple[str, str, str]:
    """The path, the text and the block of a sample."""
    head, text, block = sample.read_text("utf-8").split(LINE)
    return head.removeprefix("path ").strip(), text, block.removesuffix("\n")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_has_the_block_that_its_file_says(sample: Path, request: pytest.FixtureRequest) -> None:
    path, text, block = parts(sample)
    found = symbols({path: text}).blocks[path]
    if request.config.getoption("--update-golden"):
        sample.write_text(f"path {path}\n{LINE}{text}{LINE}{found}\n", "utf-8")
    else:
        assert found == block
