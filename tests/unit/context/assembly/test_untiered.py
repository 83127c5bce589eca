"""The assembly of policy economic: the flat order with the map in chunks, and nothing in it is marked."""

import json
from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import ContextFile, Conversation, FetchedPage, Review, StructuredContext
from proxy.context.assembly import front_of, in_tiers, untiered_assembly
from proxy.context.blocks import Assembly, ItemKind, Skip
from proxy.context.panels.board import NO_INLAY
from proxy.context.placement import TierItems, TierPlacement
from proxy.planner.tiers import Tier
from tests.contexts import TEXTS, a_file, conversation_of, flat_assembly, items_of, sent, talk_of, texts_in
from tests.talk import MARK, system, text_part, user

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
    placement = TierPlacement({Tier.L1: TierItems(symbols=("a.py",)), Tier.L3: TierItems(symbols=("b.py",))})
    both = in_tiers(assembled(context, ["a.py", "b.py"]), placement)
    apart = in_tiers(assembled(context, ["a.py"], ["b.py"]), placement)

    assert [block.tier for block in both.blocks if block.name == "symbols"] == [Tier.L3]
    assert [block.tier for block in apart.blocks if block.name == "symbols"] == [Tier.L1, Tier.L3]


# The flat assembly shows everything once, without markers, whatever the request is like.


FULL = StructuredContext(
    files=(a_file("a.py"), a_file("b.py", is_selected=False), a_file("c.bin", None)),
    symbols={"a.py": "a:", "b.py": "b:", "d.py": ""},
    legend="c=class",
    tree=("b.py", "a.py"),
    pages=(FetchedPage("http://x", "page", "T"),),
    review=Review(branch="main"),
    images=("data:,x",),
)


def test_the_order_is_system_tree_pages_review_files_history_prompt() -> None:
    found = flat_assembly(FULL, talk_of(1))

    assert [block.name for block in found.blocks] == ["system", "tree", "urls", "review", "files", "history", "prompt"]
    assert {block.tier for block in found.blocks} == {Tier.ACTIVE}
    assert texts_in(found)[0] == f"Be kind.\n\n{TEXTS.repository_map}c=class\n\nb:"
    assert not any(block.marks for block in found.blocks)
    assert b"cache_control" not in found.body()


def test_what_is_skipped_is_counted() -> None:
    found = flat_assembly(FULL, talk_of())

    assert found.skipped == {Skip.UNREADABLE: 1, Skip.NO_SYMBOLS: 1}
    assert found.empty_tiers == 0


def test_the_clients_own_markers_stay_where_they_are() -> None:
    message = user([text_part("q", **MARK)])

    assert sent(flat_assembly(StructuredContext(), conversation_of(message))) == [message]


def test_without_context_the_messages_are_the_clients_own() -> None:
    conversation = talk_of(2)

    assert flat_assembly(StructuredContext(), conversation).messages == tuple(t.raw for t in conversation)


def test_without_any_turn_the_last_message_is_the_context_and_not_its_acknowledgement() -> None:
    found = flat_assembly(FULL, conversation_of(system("s")))

    assert [message["role"] for message in sent(found)][-2:] == ["assistant", "user"]
    assert found.skipped[Skip.NO_PROMPT] == 1


@given(
    st.lists(st.binary(max_size=12) | st.sampled_from([b'{"role":"user","content":"q"}', b'{"role":"system"}'])),
    st.text(max_size=8),
    st.booleans(),
)
def test_no_list_of_messages_makes_it_fail(raws: list[bytes], text: str, is_selected: bool) -> None:
    """Also with texts that are no Unicode."""
    context = replace(FULL, files=(a_file("a", text + "\ud83d", is_selected=is_selected),), legend="\udc00")
    found = flat_assembly(context, Conversation.of(raws))

    own = [item.raw for _, item in items_of(found) if item.raw]
    assert sorted(own) == sorted(raw for raw in raws if raw)
    kinds = {item.kind for _, item in items_of(found)}
    assert (ItemKind.FILES in kinds) is is_selected
    assert all(isinstance(json.loads(raw), dict) for raw in found.messages if raw not in raws)
