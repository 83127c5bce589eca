"""The words around the parts of a request come from the files of ``prompts/``, or from a folder of the same form."""

from pathlib import Path

import pytest

from proxy.app.window_texts import load_window_texts

NAMES = ("window/instruction", "window/selection", "window/prefix", "window/suffix")


def test_the_words_are_those_of_the_files_that_come_along() -> None:
    found = load_window_texts()
    assert (found.instruction, found.selection) == ("Instruction:", "Selected text:")
    assert (found.prefix, found.suffix) == ("Text before:", "Text after:")
    assert found.summary == "[History Summary]"
    assert found.summary_ok == "Ok, I understand the context from the previous conversation."


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "window").mkdir()
    for each in NAMES:
        if each != name:
            (tmp_path / f"{each}.md").write_text("---\nid: x\n---\nWords\n")
    with pytest.raises(ValueError, match=f"{name}.md cannot be read"):
        load_window_texts(tmp_path)
