"""The fixed words are those of the shipped files, byte for byte."""

from dataclasses import asdict, fields

from plugins.tiered import TieredRecogniser
from proxy.app.factories import load_assembly_texts, load_compaction_texts, load_panel_texts, load_window_texts
from proxy.context.assembly import AssemblyTexts
from proxy.planner.tiers import Tier
from proxy.prompts.window import PartName
from proxy.protocol.recognition import REFERENCE_HEADERS, WORKING_HEADER, FileClaim
from proxy.services.prompting.sources import SHIPPED
from tests import assemblies
from tests.contexts import fenced

FOLDER = SHIPPED / "tiered_assembly"
OK = "Ok, I understand the context from the previous conversation."


def headers_of(texts: AssemblyTexts) -> dict[Tier, str]:
    """The headers of files, by tier."""
    named = {tier: getattr(texts, f"reference_{tier.name.lower()}") for tier in (Tier.L0, Tier.L1, Tier.L2, Tier.L3)}
    return {**named, Tier.ACTIVE: texts.working_files}


def test_the_constants_are_those_of_tiered_assemblies() -> None:
    texts = load_assembly_texts()

    assert {tier.name: header for tier, header in headers_of(texts).items()} == {
        **REFERENCE_HEADERS,
        "ACTIVE": WORKING_HEADER,
    }
    assert {tier: headers_of(texts)[Tier[tier]] for tier in assemblies.TIERS} == assemblies.REFERENCE
    assert texts.working_files == assemblies.WORKING
    assert (texts.repository_map, texts.repository_map_continued) == (assemblies.MAP, assemblies.MORE_MAP)
    assert (texts.file_tree, texts.urls, texts.review) == (assemblies.TREE, assemblies.URLS, assemblies.REVIEW)
    assert texts.file_count.replace("{count}", "236") == "# File Tree (236 files)\n\n"
    assert (texts.ok, texts.urls_ok, texts.review_ok) == (assemblies.OK, assemblies.OK_URLS, assemblies.OK_REVIEW)


def test_what_is_assembled_is_recognised() -> None:
    texts = load_assembly_texts()
    answers = {
        texts.repository_map + "a": ("tiered:map", texts.ok),
        texts.repository_map_continued + "a": ("tiered:map", texts.ok),
        texts.file_tree + texts.file_count + "a": ("tiered:tree", texts.ok),
        texts.urls + "a": ("tiered:urls", texts.urls_ok),
        texts.review + "a": ("tiered:review", texts.review_ok),
        **{header + fenced("a.py"): (f"tiered:{tier.name}", texts.ok) for tier, header in headers_of(texts).items()},
        texts.working_files + fenced("a.py"): ("tiered:working", texts.ok),
    }
    for text, (name, ok) in answers.items():
        found = TieredRecogniser().recognise("user", text)
        assert found is not None
        assert (found.name, found.acknowledgements) == (name, (ok,))
        assert (found.claim is FileClaim.WORKING) == (name == "tiered:working")


def test_the_other_words_are_those_of_the_files_that_come_along() -> None:
    compaction, window = load_compaction_texts(), load_window_texts()
    assert compaction.prompt.startswith("You read the older part of a conversation")
    assert "{summary_tokens}" in compaction.prompt
    assert (compaction.header, compaction.ok, window.summary_ok) == ("[History Summary]", OK, OK)
    assert window.above == {
        PartName.INSTRUCTION: "Instruction:",
        PartName.SELECTION: "Selected text:",
        PartName.PREFIX: "Text before:",
        PartName.SUFFIX: "Text after:",
        PartName.SUMMARY: "[History Summary]",
    }
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


def test_there_is_a_file_for_each_text_and_no_other() -> None:
    texts = (path for path in FOLDER.iterdir() if path.name != "README.md")
    assert {path.stem for path in texts} == {field.name for field in fields(AssemblyTexts)}
