"""The words of compactions come from the files of ``prompts/``, or from a folder of the same form."""

from pathlib import Path

import pytest

from proxy.app.fixed_texts import load_compaction_texts

NAMES = ("compaction", "history_summary", "history_summary_ok")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.md").write_text(f"---\nid: {name}\n---\nMy {name}.\n")
    return tmp_path


def test_the_words_are_those_of_the_files_that_come_along() -> None:
    found = load_compaction_texts()
    assert found.prompt.startswith("You read the older part of a conversation")
    assert "{summary_tokens}" in found.prompt
    assert found.header == "[History Summary]"
    assert found.ok == "Ok, I understand the context from the previous conversation."


def test_another_folder_has_its_own_words_for_compactions(own: Path) -> None:
    found = load_compaction_texts(own)
    assert (found.prompt, found.header, found.ok) == tuple(f"My {name}." for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_missing_or_empty_is_named(own: Path, name: str) -> None:
    (own / f"{name}.md").write_text("---\nid: x\n---\n\n")
    with pytest.raises(ValueError, match=f"{name}.md holds no text"):
        load_compaction_texts(own)
    (own / f"{name}.md").unlink()
    with pytest.raises(ValueError, match=f"{name}.md cannot be read"):
        load_compaction_texts(own)
