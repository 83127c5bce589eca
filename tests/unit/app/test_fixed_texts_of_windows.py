"""The words around the parts of a request come from the files of ``prompts/``."""

from proxy.app.fixed_texts import load_window_texts
from proxy.core.window.shortening import PartName


def test_the_words_are_those_of_the_files_that_come_along() -> None:
    found = load_window_texts()
    assert found.above == {
        PartName.INSTRUCTION: "Instruction:",
        PartName.SELECTION: "Selected text:",
        PartName.PREFIX: "Text before:",
        PartName.SUFFIX: "Text after:",
        PartName.SUMMARY: "[History Summary]",
    }
    assert found.summary_ok == "Ok, I understand the context from the previous conversation."
