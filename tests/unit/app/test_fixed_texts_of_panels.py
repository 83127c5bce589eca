"""The words of live panels are those of the original, byte for byte, and a file of them that is wrong is named."""

from dataclasses import asdict
from pathlib import Path

import pytest

from proxy.app.fixed_texts import load_panel_texts
from proxy.prompting.files import SHIPPED

FILE = SHIPPED / "panels.md"


def test_each_text_is_that_of_the_original() -> None:
    assert asdict(load_panel_texts()) == {
        "header": "Beginning of dynamic panel display. All content displayed below may be considered up to date.",
        "timestamp": "Panel automatically generated at {iso_time}",
        "unknown_timestamp": "Panel automatically generated at unknown time",
        "footer": "End of dynamic panel displays...",
        "footer_ack": "Panel display complete. Proceeding with conversation.",
        "datetime": "Current datetime: {iso_time}",
        "repeat": "System instructions (repeated for emphasis):\n\n{system}",
        "repeat_ack": "Understood. I will follow these instructions.",
        "ok": "ok",
    }


def test_another_file_has_its_own_words_for_panels(tmp_path: Path) -> None:
    own = tmp_path / "own.md"
    own.write_text(FILE.read_text().replace("Panel display complete.", "Thus far.\n\nThe panels."))

    texts = load_panel_texts(own)

    assert texts.footer_ack == "Thus far.\n\nThe panels. Proceeding with conversation."
    assert texts.header == load_panel_texts().header


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("## footer\n", "## foot\n", "there is no text 'foot'"),
        ("## footer\n\nEnd of dynamic panel displays...\n", "", "holds no text 'footer'"),
        ("End of dynamic panel displays...", " ", "holds no text 'footer'"),
        ("## repeat_ack", "## repeat", "the text 'repeat' stands twice"),
        ("{system}", "", "the text 'repeat' must hold {system}"),
        ("generated at {iso_time}", "generated", "the text 'timestamp' must hold {iso_time}"),
        ("datetime: {iso_time}", "datetime", "the text 'datetime' must hold {iso_time}"),
    ],
)
def test_a_bad_text_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    own = tmp_path / "own.md"
    whole = FILE.read_text()
    assert old in whole
    own.write_text(whole.replace(old, new, 1))

    with pytest.raises(ValueError, match=r"own\.md") as raised:
        load_panel_texts(own)

    assert said in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    own = tmp_path / "own.md"
    if content is not None:
        own.write_bytes(content)

    with pytest.raises(ValueError, match=r"own\.md cannot be read"):
        load_panel_texts(own)
