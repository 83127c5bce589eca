"""A selected file is shown by its text, every other one by its symbols, and none by both."""

from proxy.context import ContextFile, StructuredContext


def a_file(path: str, text: str | None = "x = 1\n", *, is_selected: bool = False) -> ContextFile:
    return ContextFile(path, text, "0" * 64, is_selected)


def test_a_selected_file_is_not_in_the_map_as_well() -> None:
    files = (a_file("a.py", is_selected=True), a_file("b.py"))
    context = StructuredContext(files=files, symbols={"a.py": "a.py:", "b.py": "b.py:", "c.py": "c.py:"})

    assert [file.path for file in context.selected()] == ["a.py"]
    assert context.mapped() == ["b.py", "c.py"]


def test_what_cannot_be_read_is_shown_by_neither_text_nor_symbols() -> None:
    context = StructuredContext(files=(a_file("a.bin", None, is_selected=True),), symbols={"a.bin": "", "b.py": ""})

    assert context.selected() == []
    assert context.mapped() == []
