"""The words of structured context are those of tiered assemblies, byte for byte, and recognisers know them."""

import shutil
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from plugins.tiered import TieredRecogniser
from proxy.app.fixed_texts import load_assembly_texts
from proxy.core.layout.tiers import Tier
from proxy.core.recognition import FileClaim
from proxy.core.recognition.tiered_files import REFERENCE_HEADERS, WORKING_HEADER
from proxy.core.structured.assembly.sections import AssemblyTexts
from proxy.prompting.files import SHIPPED
from tests import assemblies
from tests.contexts import fenced

FOLDER = SHIPPED / "tiered_assembly"


def test_the_constants_are_those_of_tiered_assemblies() -> None:
    texts = load_assembly_texts()

    assert {tier.name: header for tier, header in texts.files.items()} == {
        **REFERENCE_HEADERS,
        "ACTIVE": WORKING_HEADER,
    }
    assert {tier: texts.files[Tier[tier]] for tier in assemblies.TIERS} == assemblies.REFERENCE
    assert texts.working_files == assemblies.WORKING
    assert (texts.repository_map, texts.repository_map_continued) == (assemblies.MAP, assemblies.MORE_MAP)
    assert (texts.file_tree, texts.urls, texts.review) == (assemblies.TREE, assemblies.URLS, assemblies.REVIEW)
    assert texts.file_count.replace("{count}", "236") == "# File Tree (236 files)\n\n"
    assert (texts.ok, texts.urls_ok, texts.review_ok) == (assemblies.OK, assemblies.OK_URLS, assemblies.OK_REVIEW)


def test_what_is_assembled_is_recognised() -> None:
    texts = load_assembly_texts()
    known = TieredRecogniser()
    answers = {
        texts.repository_map + "a": ("tiered:map", texts.ok),
        texts.repository_map_continued + "a": ("tiered:map", texts.ok),
        texts.file_tree + texts.file_count + "a": ("tiered:tree", texts.ok),
        texts.urls + "a": ("tiered:urls", texts.urls_ok),
        texts.review + "a": ("tiered:review", texts.review_ok),
        **{header + fenced("a.py"): (f"tiered:{tier.name}", texts.ok) for tier, header in texts.files.items()},
    }
    answers[texts.working_files + fenced("a.py")] = ("tiered:working", texts.ok)
    for text, (name, ok) in answers.items():
        found = known.recognise("user", text)
        assert found is not None
        assert (found.name, found.acknowledgements) == (name, (ok,))
    working = known.recognise("user", texts.working_files + fenced("a.py"))
    assert working is not None
    assert working.claim is FileClaim.WORKING


def test_there_is_a_file_for_each_text_and_no_other() -> None:
    texts = (path for path in FOLDER.iterdir() if path.name != "README.md")
    assert {path.stem for path in texts} == {field.name for field in fields(AssemblyTexts)}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "own"))


def test_another_folder_has_its_own_words_for_assemblies(own: Path) -> None:
    (own / "ok.md").write_text("Understood.\n")
    (own / "urls.md").write_text("---\nid: urls\n---\n\nPages:\n\n")

    texts = load_assembly_texts(own)

    before = asdict(load_assembly_texts())
    assert (texts.ok, texts.urls) == ("Understood.", "Pages:\n\n")
    assert {name for name, text in asdict(texts).items() if text != before[name]} == {"ok", "urls"}


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), (b"\xff", "cannot be read"), (b"---\nid: ok\n---\n \n", "holds no text")],
)
def test_a_bad_file_is_named(own: Path, content: bytes | None, said: str) -> None:
    (own / "ok.md").unlink() if content is None else (own / "ok.md").write_bytes(content)

    with pytest.raises(ValueError, match=rf"ok\.md {said}"):
        load_assembly_texts(own)
