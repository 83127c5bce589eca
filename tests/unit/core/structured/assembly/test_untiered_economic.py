"""The assembly of policy economic: the flat order with the map in chunks, and nothing in it is marked."""

import orjson

from proxy.app.fixed_texts import load_assembly_texts
from proxy.core.layout.tiers import Tier
from proxy.core.structured.assembly.untiered import front_of, in_tiers, untiered_assembly
from proxy.core.structured.blocks.blocks import Assembly
from proxy.core.structured.context import ContextFile, StructuredContext
from proxy.core.structured.messages import Conversation
from proxy.core.structured.panels.inlay import NO_INLAY
from proxy.core.structured.placement.placement import Placement, TierItems

TEXTS = load_assembly_texts()
SYSTEM, OLD, ANSWER, PROMPT = (
    orjson.dumps({"role": role, "content": content})
    for role, content in (("system", "rules"), ("user", "old"), ("assistant", "yes"), ("user", "new"))
)


def assembled(context: StructuredContext, *chunks: list[str]) -> Assembly:
    conversation = Conversation.of([SYSTEM, OLD, ANSWER, PROMPT])
    return untiered_assembly(front_of(context, conversation.system, TEXTS, chunks), conversation, NO_INLAY, ())


def texts(assembly: Assembly) -> list[str]:
    return [orjson.loads(message)["content"] for message in assembly.messages]


def test_the_map_stands_in_chunks_behind_the_system_text_and_its_legend() -> None:
    context = StructuredContext(symbols={"a.py": "a.py:", "b.py": "b.py:"}, legend="c class")
    found = texts(assembled(context, ["a.py"], ["b.py"]))

    assert found[0].startswith("rules\n\n# Repository Structure\n\n")
    assert found[0].endswith("c class")
    assert found[1:] == [
        "# Repository Structure (continued)\n\na.py:", "Ok.",
        "# Repository Structure (continued)\n\nb.py:", "Ok.",
        "old", "yes", "new",
    ]  # fmt: skip


def test_without_a_legend_the_first_chunk_explains_what_a_map_is() -> None:
    found = texts(assembled(StructuredContext(symbols={"a.py": "a.py:"}), ["a.py"]))

    assert found[0] == "rules"
    assert found[1].startswith("# Repository Structure\n\nBelow is a map")


def test_files_stand_behind_the_map_and_in_front_of_the_conversation() -> None:
    context = StructuredContext(files=(ContextFile("a.py", "x", "0" * 64, True),), symbols={"b.py": "b.py:"})
    found = texts(assembled(context, ["b.py"]))

    assert found[3] == "# Working Files\n\nHere are the files:\n\na.py\n```\nx\n```"
    assert found[5:] == ["old", "yes", "new"]


def test_a_message_is_shown_in_the_tier_of_its_least_stable_item() -> None:
    context = StructuredContext(symbols={"a.py": "a.py:", "b.py": "b.py:"})
    placement = Placement({Tier.L1: TierItems(symbols=("a.py",)), Tier.L3: TierItems(symbols=("b.py",))})
    both = in_tiers(assembled(context, ["a.py", "b.py"]), placement)
    apart = in_tiers(assembled(context, ["a.py"], ["b.py"]), placement)

    assert [block.tier for block in both.blocks if block.name == "symbols"] == [Tier.L3]
    assert [block.tier for block in apart.blocks if block.name == "symbols"] == [Tier.L1, Tier.L3]


def test_nothing_is_marked() -> None:
    context = StructuredContext(files=(ContextFile("a.py", "x" * 9_000, "0" * 64, True),))

    assert not any(block.marks for block in assembled(context).blocks)
