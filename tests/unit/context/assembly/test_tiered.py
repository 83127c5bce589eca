"""The tiered assembly: nothing is lost or shown twice, markers stand at the ends of tiers, and never more than four."""

import json
from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation, FetchedPage, Review, StructuredContext
from proxy.context.blocks import Assembly, Circumstances, ItemKind
from proxy.context.placement import TierItems, TierPlacement
from proxy.planner.tiers import Tier
from proxy.protocol.providers import Dialect
from proxy.protocol.request.tokens import TokenCounter
from tests.contexts import (
    TEXTS,
    a_file,
    breakdown,
    conversation_of,
    flat_assembly,
    items_of,
    placed,
    sent,
    talk_of,
    text_in,
    texts_in,
    tiered,
)
from tests.growth import assert_linear
from tests.talk import MARK, assistant, calling, result, system, text_part, user

CACHED = (Tier.L0, Tier.L1, Tier.L2, Tier.L3)


def marked_in(assembly: Assembly) -> list[int]:
    """The messages that carry a marker, read from the JSON."""
    return [i for i, raw in enumerate(assembly.messages) if b'"cache_control"' in raw or b"cache_breakpoint" in raw]


def every_tier(history: bool = False) -> tuple[StructuredContext, TierPlacement]:
    """A file in each tier; with ``history`` an exchange as well."""
    tiers = {
        tier.name: TierItems(files=(f"{tier.name}.py",), history=(2 * tier, 2 * tier + 1) if history else ())
        for tier in CACHED
    }
    return StructuredContext(files=tuple(a_file(f"{tier.name}.py") for tier in CACHED)), placed(**tiers)


@pytest.mark.parametrize(("slots", "tiers"), [(4, (0, 1, 3, 5)), (2, (3, 5)), (1, (5,)), (0, ()), (-1, ())])
def test_where_slots_are_few_the_most_stable_tiers_go_without(slots: int, tiers: tuple[int, ...]) -> None:
    context, placement = every_tier()
    assert marked_in(tiered(context, talk_of(), placement, slots=slots)) == list(tiers)


def test_without_markers_the_texts_are_the_same() -> None:
    context, placement = every_tier(history=True)
    with_marks = tiered(context, talk_of(4), placement)
    without = tiered(context, talk_of(4), placement, Dialect.NONE)

    assert marked_in(without) == []
    assert texts_in(without) == texts_in(with_marks)
    assert [type(message["content"]) for message in sent(without)] == [str] * len(without.messages)


def test_the_breakpoints_of_openai_are_written_on_parts() -> None:
    context, placement = every_tier()
    found = tiered(context, talk_of(), placement, Dialect.BREAKPOINT)

    assert sent(found)[1]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert b"cache_control" not in found.body()


def test_a_tier_of_tool_calls_ends_at_a_marker_on_the_result() -> None:
    turns = (user("q"), calling("1", "2"), result("1", "r"), result("2", "r"), assistant("done"), user("now?"))
    found = tiered(StructuredContext(), conversation_of(*turns), placed(L1=TierItems(history=(0, 1, 2, 3, 4))))

    assert sent(found)[3] == {**result("2", "r"), **MARK}
    assert marked_in(found) == [3]


def test_where_no_message_of_a_tier_may_carry_a_marker_it_stands_in_front_of_the_tier() -> None:
    turns = (system("s"), user("q"), assistant("a"), assistant("b"), system("later"), user("now?"))
    placement = placed(unmarked=(Tier.L0,), L0=TierItems(history=(0,)), L1=TierItems(history=(1, 2, 3)))
    found = tiered(StructuredContext(), conversation_of(*turns), placement)

    assert marked_in(found) == [1]
    both = TierPlacement(placement.tiers)
    assert marked_in(tiered(StructuredContext(), conversation_of(*turns), both)) == [1]


def test_the_clients_own_markers_are_taken_out() -> None:
    mine = [text_part("q", cache_control={"type": "ephemeral", "ttl": "1h"})]
    turns = (system([text_part("s", **MARK), text_part("t", **MARK)]), user(mine), assistant("a"), user(mine))
    placement = placed(unmarked=(Tier.L1,), L1=TierItems(history=(0, 1)))
    found = tiered(StructuredContext(), conversation_of(*turns), placement)

    assert sent(found) == [
        system([text_part("s"), text_part("t", **MARK)]),
        user([text_part("q")]),
        assistant("a"),
        user([text_part("q")]),
    ]


def test_symbols_that_have_just_changed_stand_in_front_of_the_active_part() -> None:
    context = StructuredContext(symbols={"a": "a:", "b": "b:"}, tree=("a", "b"))
    found = tiered(context, talk_of(), placed(ACTIVE=TierItems(symbols=("b",))))

    assert [(block.tier, block.name) for block in found.blocks[1:3]] == [(Tier.L3, "L3"), (Tier.ACTIVE, "symbols")]
    assert texts_in(found)[1] == TEXTS.repository_map_continued + "a:"
    assert texts_in(found)[3] == TEXTS.repository_map_continued + "b:"


def test_texts_that_are_no_unicode_are_sent_as_escapes() -> None:
    context = StructuredContext(
        files=(a_file("a", "\ud83d"), a_file("b", "\udc00")), symbols={"c": "\ud800"}, legend="\udfff", tree=("\ud900",)
    )
    found = tiered(context, talk_of(), placed(L1=TierItems(files=("a",))))

    shown = "".join(text_in(json.loads(raw)) for raw in found.messages)
    assert all(shown.count(half) == 1 for half in ("\ud83d", "\udc00", "\ud800", "\udfff", "\ud900"))


def test_work_grows_with_the_context_and_not_faster() -> None:
    def context(count: int) -> tuple[str, ...]:
        return tuple(f"src/m{n}.py" for n in range(count))

    def work(paths: tuple[str, ...]) -> None:
        files = tuple(a_file(f"f{path}") for path in paths[:500])
        given_context = StructuredContext(files=files, symbols=dict.fromkeys(paths, "f(a, b)\n" * 5), tree=paths)
        items = TierItems(symbols=paths, files=tuple(file.path for file in files), history=tuple(range(len(paths))))
        turns = [raw for _ in range(len(paths) // 2) for raw in (b'{"role":"user","content":"q"}', b'{"role":"tool"}')]
        conversation = Conversation.of([*turns, b'{"role":"user","content":"now?"}'])
        tiered(given_context, conversation, placed(L3=items)).body()

    assert_linear(work, context, 1_000)


PATHS = ("a.py", "b.py", "c.py", "d.py")
SOME = st.lists(st.sampled_from(PATHS), max_size=4).map(tuple)
PLACEMENTS = st.builds(
    TierPlacement,
    st.dictionaries(
        st.sampled_from(list(Tier)),
        st.builds(TierItems, SOME, SOME, st.lists(st.integers(0, 6), max_size=7).map(tuple)),
    ),
    st.frozensets(st.sampled_from(CACHED)),
)
TURNS = st.lists(
    st.sampled_from(
        [
            user("question"),
            user([text_part("part one"), text_part("part two", **MARK)]),
            assistant("answer"),
            calling("1"),
            result("1", "result"),
            result("1", [text_part("listed result", **MARK)]),
            system("notice", **MARK),
            user(""),
        ]
    ),
    max_size=7,
)
DIALECTS = st.sampled_from(list(Dialect))


@st.composite
def contexts(draw: st.DrawFn) -> StructuredContext:
    """Every text in it is found once in the request at most, for it names its place."""
    files = tuple(
        a_file(
            path,
            draw(st.sampled_from([None, f"<text of {path}>", f"<text of {path}>\n````"])),
            is_selected=draw(st.booleans()),
        )
        for path in draw(st.permutations(PATHS))
    )
    symbols = {path: draw(st.sampled_from(["", f"<symbols of {path}>"])) for path in draw(st.permutations(PATHS))}
    pages = (FetchedPage("u", "<page>", "t"),) if draw(st.booleans()) else ()
    review = Review(log="<log>", reverse_diffs={"a.py": "<diff of a.py>"}) if draw(st.booleans()) else None
    tree = PATHS if draw(st.booleans()) else None
    return StructuredContext(files, symbols, draw(st.sampled_from(["", "<legend>"])), tree, pages, review)


def shown(assembly: Assembly) -> Counter[str]:
    """How often each text of the context is shown."""
    whole = "".join(texts_in(assembly))
    names = [f"<{what} of {path}>" for what in ("text", "symbols", "diff") for path in PATHS]
    return Counter({name: n for name in (*names, "<legend>", "<page>", "<log>") if (n := whole.count(name))})


@given(contexts(), TURNS, PLACEMENTS, DIALECTS, st.integers(0, 4))
def test_whatever_is_placed_each_content_is_in_one_place_and_markers_are_few(
    context: StructuredContext, turns: list[dict[str, object]], placement: TierPlacement, dialect: Dialect, slots: int
) -> None:
    conversation = conversation_of(system("Be kind."), *turns, user("now?"))
    found = tiered(context, conversation, placement, dialect, slots=slots)

    expected = {f"<text of {file.path}>" for file in context.selected()}
    expected |= {f"<symbols of {path}>" for path in context.mapped()}
    assert {name for name in shown(found) if not name.startswith(("<diff", "<l", "<p"))} == expected
    assert set(shown(found).values()) <= {1}
    assert shown(found) == shown(flat_assembly(context, conversation))
    assert [len(block.marks) for block in found.blocks] == [len(marked_in(Assembly((one,)))) for one in found.blocks]
    assert len(marked_in(found)) <= slots
    assert found.body().count(b'"cache_control":') + found.body().count(b'"prompt_cache_breakpoint":') == len(
        marked_in(found)
    )


@given(contexts(), TURNS, PLACEMENTS)
def test_the_clients_turns_keep_their_order_and_their_content(
    context: StructuredContext, turns: list[dict[str, object]], placement: TierPlacement
) -> None:
    conversation = conversation_of(system("Be kind."), *turns, user("now?"))
    found = tiered(context, conversation, placement)

    items = [item for _, item in items_of(found) if item.kind in (ItemKind.SYSTEM, ItemKind.HISTORY, ItemKind.PROMPT)]
    assert [bare(orjson.loads(item.raw)) for item in items] == [
        bare(turn) for turn in [system("Be kind."), *turns, user("now?")]
    ]
    tiers = [tier for tier, item in items_of(found) if item.kind is ItemKind.HISTORY]
    assert tiers == sorted(tiers)
    assert sent(found)[-1] == user("now?")


def bare(message: dict[str, object]) -> object:
    """A message without markers, each text as a list of parts."""
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    own = [{k: v for k, v in part.items() if k not in MARK} for part in parts] if isinstance(parts, list) else parts
    return {**{k: v for k, v in message.items() if k not in MARK}, "content": own}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=3)
    | st.sampled_from(["user", "tool", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "cache_control", "tool_calls", "id"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool", 7]), "content": JSON})


@given(
    st.lists(MESSAGE | JSON, max_size=5),
    st.lists(st.binary(max_size=20), max_size=2),
    PLACEMENTS,
    DIALECTS,
    st.booleans(),
)
def test_no_message_makes_it_fail(
    messages: list[object], bytes_too: list[bytes], placement: TierPlacement, dialect: Dialect, has_images: bool
) -> None:
    """Whatever cannot be read stays as it came, and carries no marker."""
    raws = [*bytes_too, *(orjson.dumps(message) for message in messages)]
    conversation = Conversation.of(raws)
    context = StructuredContext(files=(a_file("a.py"),), legend="c", images=("data:,x",) if has_images else ())
    found = tiered(context, conversation, placement, dialect)

    came_with_the_word = sum(b'"cache_control"' in raw for raw in raws)
    assert sum(len(block.marks) for block in found.blocks) <= 4
    assert len(marked_in(found)) <= 4 + came_with_the_word
    turns = [item for _, item in items_of(found) if item.kind in (ItemKind.SYSTEM, ItemKind.HISTORY, ItemKind.PROMPT)]
    assert len(turns) == len(raws)
    unread = [raw for raw in raws if raw and not raw.startswith(b"{")]
    assert [item.raw for item in turns if item.raw and not item.raw.startswith(b"{")] == unread
    breakdown(found, TokenCounter(), Circumstances(), placement.counts)


def test_symbols_and_files_of_one_message_are_sections_of_one_block() -> None:
    """Also where the acknowledgement is left out, because nothing follows."""
    context = StructuredContext(files=(a_file("a.py"),), symbols={"s": "s:"})
    placement = placed(L1=TierItems(symbols=("s",), files=("a.py",)))

    for conversation, ok in ((talk_of(), "Ok."), (Conversation(), "")):
        found = tiered(context, conversation, placement)
        (block,) = (block for block in found.blocks if block.tier is Tier.L1)
        assert [(one.kind, one.ok, len(one.items)) for one in block.sections] == [
            (ItemKind.SYMBOLS, "", 1),
            (ItemKind.FILES, ok, 1),
        ]
        assert "".join(one.text for one in block.sections) == text_in(orjson.loads(block.messages[0]))
        assert len(block.messages) == (2 if ok else 1)
        assert block.marks == (0,)
