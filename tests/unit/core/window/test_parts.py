"""Whether a request names parts."""

import pytest

from proxy.core.window.parts import VirtualFile, WindowParts


def test_a_profile_alone_names_no_part() -> None:
    assert not WindowParts("chat").has_any


@pytest.mark.parametrize("name", ["instruction", "selection", "prefix", "suffix", "summary"])
def test_an_empty_text_is_a_part(name: str) -> None:
    assert WindowParts(**{name: ""}).has_any


def test_a_virtual_file_is_a_part() -> None:
    assert WindowParts(virtual_files=(VirtualFile("tool.py", ""),)).has_any
