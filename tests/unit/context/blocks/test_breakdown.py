"""The breakdown and the assembled request agree: the same items in the same tiers, and sums that are sums."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import FetchedPage, Review, StructuredContext
from proxy.context.blocks import Assembly, Circumstances, hit_rate
from proxy.context.placement import TierItems, TierPlacement
from proxy.planner.tiers import Change, Tier
from proxy.protocol.providers import Dialect
from proxy.protocol.request.tokens import IMAGE_TOKENS, TokenCounter
from proxy.protocol.response.usage import Usage
from tests.contexts import (
    a_file,
    breakdown,
    conversation_of,
    flat_assembly,
    items_of,
    placed,
    talk_of,
    text_in,
    tiered,
)
from tests.talk import assistant, calling, result, system, text_part, user

CHARS = TokenCounter(lambda text: len(text_in(orjson.loads(text)) if text.startswith('{"') else text))
"""Counts characters: what is added up here must be as long as what is sent."""


def shown(
    assembly: Assembly,
    about: Circumstances | None = None,
    counter: TokenCounter = CHARS,
    counts: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    return breakdown(assembly, counter, about or Circumstances(), counts)


def items_in(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(block["tier"], item["key"]) for block in found["blocks"] for c in block["contents"] for item in c["items"]]


CONTEXT = StructuredContext(
    files=(a_file("a.py"), a_file("b.py", "b = 2\n"), a_file("c.bin", None)),
    symbols={"s.py": "s:", "t.py": "t:"},
    legend="c=class",
    tree=("a.py", "b.py"),
    pages=(FetchedPage("u", "page", "t"),),
    review=Review(branch="main"),
)
PLACEMENT = placed(
    L0=TierItems(symbols=("s.py",), history=(0, 1)),
    L2=TierItems(files=("a.py",)),
    counts={"file:a.py": 7, "file:b.py": 2},
)


def test_each_tier_lists_its_contents_with_their_sizes() -> None:
    assembly = tiered(CONTEXT, talk_of(1), PLACEMENT)
    blocks = {block["tier"]: block for block in shown(assembly, counts=PLACEMENT.counts)["blocks"]}

    assert list(blocks) == ["L0", "L2", "L3", "active"]
    assert [(c["type"], c["count"]) for c in blocks["L0"]["contents"]] == [
        ("system", 1),
        ("legend", 1),
        ("symbols", 1),
        ("history", 2),
    ]
    assert {tier: (b["name"], b["cached"], b["breakpoint"], b["threshold"]) for tier, b in blocks.items()} == {
        "L0": ("L0", True, True, 12),
        "L2": ("L2", True, True, 6),
        "L3": ("L3", True, True, 3),
        "active": ("Active", False, False, 0),
    }
    assert [c["type"] for c in blocks["active"]["contents"]] == ["tree", "urls", "review", "files", "prompt"]


def test_every_item_has_its_key() -> None:
    images = replace(CONTEXT, images=("data:,x",))
    assembly = tiered(images, talk_of(2), PLACEMENT)

    assert items_in(shown(assembly)) == [
        *(("L0", key) for key in ("system:0", "legend", "symbol:s.py", "history:0", "history:1")),
        ("L2", "file:a.py"),
        ("L3", "symbol:t.py"),
        *(("active", key) for key in ("tree", "url:u", "review", "file:b.py", "history:2", "history:3")),
        *(("active", key) for key in ("prompt:0", "image:0")),
    ]


def test_a_tier_has_a_breakpoint_where_one_of_its_blocks_has() -> None:
    tree, urls, *_ = flat_assembly(CONTEXT, talk_of()).blocks[1:]
    found = shown(Assembly((replace(tree, tier=Tier.L1, marks=(0,)), replace(urls, tier=Tier.L1))))

    assert [block["breakpoint"] for block in found["blocks"]] == [True]


def test_items_say_how_far_they_are_on_their_way() -> None:
    assembly = tiered(CONTEXT, talk_of(1), PLACEMENT)
    found = shown(assembly, counts=PLACEMENT.counts)
    items = {item["key"]: item for block in found["blocks"] for c in block["contents"] for item in c["items"]}

    file_tokens = len("a.py\n```\nx = 1\n\n```")
    assert items["file:a.py"] == {
        "key": "file:a.py", "tokens": file_tokens, "n": 7, "next_tier": "L1", "next_threshold": 9, "progress": 7 / 9
    }  # fmt: skip
    assert (items["file:b.py"]["next_tier"], items["file:b.py"]["progress"]) == ("L3", 2 / 3)
    top = {"key": "symbol:s.py", "tokens": 2, "n": 0, "next_tier": None, "next_threshold": None, "progress": 1.0}
    assert items["symbol:s.py"] == top
    assert items["tree"].keys() == {"key", "tokens"}
    grown = {"file:b.py": 30}
    again = {i["key"]: i for b in shown(assembly, counts=grown)["blocks"] for c in b["contents"] for i in c["items"]}
    assert again["file:b.py"]["progress"] == 1.0


def test_what_moved_is_told_by_its_direction() -> None:
    changes = [
        Change("file:a", Tier.L1, Tier.L0, "promoted"),
        Change("file:b", Tier.ACTIVE, Tier.L3, "unchanged"),
        Change("file:c", Tier.L2, Tier.ACTIVE, "changed"),
        Change("file:d", Tier.L0, None, "removed"),
        Change("file:e", Tier.ACTIVE, None, "removed"),
    ]
    found = shown(tiered(CONTEXT, talk_of(), PLACEMENT), Circumstances(changes=changes))

    assert found["promotions"] == [["file:a", "L0"], ["file:b", "L3"]]
    assert found["demotions"] == [["file:c", "L2"], ["file:d", "L0"]]


def test_circumstances_are_told_as_they_are() -> None:
    about = Circumstances(
        model="m", max_input_tokens=10_000, max_output_tokens=500, empty_tiers_total=7,
        last=Usage(100, 5, read=25), total=Usage(1_000, 50, read=700, write_5m=200, write_1h=10),
    )  # fmt: skip
    found = shown(tiered(CONTEXT, talk_of(), PLACEMENT), about)

    assert (found["model"], found["max_input_tokens"], found["max_output_tokens"]) == ("m", 10_000, 500)
    assert found["remaining_tokens"] == 10_000 - found["used_tokens"]
    assert (found["empty_tiers"], found["empty_tiers_session_total"]) == (1, 7)
    assert found["cache_hit_rate"] == 0.25
    assert found["session_totals"] == {
        "prompt": 1_000, "completion": 50, "total": 1_050, "cache_hit": 700, "cache_write": 210
    }  # fmt: skip
    assert found["skipped"] == {"unreadable": 1}
    unknown = shown(flat_assembly(CONTEXT, talk_of()))
    assert (unknown["remaining_tokens"], unknown["max_input_tokens"]) == (None, None)
    assert set(unknown["session_totals"].values()) == {0}


@pytest.mark.parametrize(
    ("last", "total", "rate"),
    [(None, None, 0.0), (Usage(0, 0), Usage(10, 0, read=5), 0.5), (Usage(10, 0), Usage(10, 0, read=5), 0.0)],
)
def test_the_hit_rate_is_that_of_the_last_answer_or_else_of_the_session(
    last: Usage | None, total: Usage | None, rate: float
) -> None:
    assert hit_rate(last, total) == rate


def test_the_most_stable_tier_comes_first_wherever_its_blocks_are_sent() -> None:
    assembly = flat_assembly(CONTEXT, talk_of())
    tiers = (Tier.L2, Tier.ACTIVE, Tier.L0, Tier.L2, Tier.ACTIVE, Tier.ACTIVE)
    blocks = [replace(block, tier=tier) for block, tier in zip(assembly.blocks, tiers, strict=True)]
    found = shown(Assembly(tuple(blocks)))

    assert [(b["tier"], [c["type"] for c in b["contents"]]) for b in found["blocks"]] == [
        ("L0", ["urls"]),
        ("L2", ["system", "legend", "symbols", "review"]),
        ("active", ["tree", "files", "prompt"]),
    ]


def test_tokens_are_counted_once_for_each_text_and_images_as_images() -> None:
    counted: list[str] = []

    def encode(text: str) -> int:
        counted.append(text)
        return len(text)

    context = StructuredContext(files=(a_file("a"), a_file("b")), images=("data:," + "x" * 9_999, "http://x"))
    assembly = flat_assembly(context, talk_of(2))
    counter = TokenCounter(encode)
    first, second = shown(assembly, counter=counter), shown(assembly, counter=counter)

    assert first == second
    assert len(counted) == len(set(counted))
    assert first["breakdown"]["images"] == {"tokens": 2 * IMAGE_TOKENS, "count": 2}
    assert first["breakdown"]["history"]["count"] == 4
    assert first["breakdown"]["history"]["tokens"] == sum(len(turn.raw) for turn in talk_of(2).history)


def test_paths_that_are_no_unicode_can_be_written() -> None:
    context = StructuredContext(files=(a_file("\ud83d.py"),), symbols={"\udc00": "x"})
    found = shown(tiered(context, talk_of(), TierPlacement({})), Circumstances(model="\ud83d"))

    assert b"ud83d.py" in orjson.dumps(found)


PATHS = ("a.py", "b.py", "c.py", "d.py")
SOME = st.lists(st.sampled_from(PATHS), max_size=4).map(tuple)
PLACEMENTS = st.dictionaries(
    st.sampled_from(list(Tier)), st.builds(TierItems, SOME, SOME, st.lists(st.integers(0, 5), max_size=6).map(tuple))
).map(TierPlacement)
TEXT = st.text(alphabet="ab`\n\ud83d", max_size=12)
CONTEXTS = st.builds(
    lambda texts, symbols, legend, tree, pages, review: StructuredContext(
        tuple(a_file(path, text, is_selected=selected) for path, (text, selected) in texts.items()),
        symbols,
        legend,
        tree,
        pages,
        review,
    ),
    st.dictionaries(st.sampled_from(PATHS), st.tuples(st.none() | TEXT, st.booleans())),
    st.dictionaries(st.sampled_from(PATHS), TEXT),
    TEXT,
    st.none() | st.just(PATHS),
    st.lists(st.builds(FetchedPage, st.just("u"), TEXT, TEXT, TEXT), max_size=2).map(tuple),
    st.none()
    | st.builds(Review, TEXT, st.lists(TEXT, max_size=2).map(tuple), TEXT, TEXT, TEXT, st.just({"a.py": "-a"})),
)
TURNS = st.lists(
    st.sampled_from(
        [user("question"), user([text_part("listed")]), assistant("answer"), calling("1"), result("1", "result")]
    ),
    max_size=6,
)
SYSTEMS = st.sampled_from([(), (system("s"),), (system(""),), (system([text_part("s")]),), (system("s"), system(None))])


@given(CONTEXTS, SYSTEMS, TURNS, PLACEMENTS, st.sampled_from(list(Dialect)), st.booleans())
def test_breakdown_and_request_agree(
    context: StructuredContext,
    head: tuple[dict[str, object], ...],
    turns: list[dict[str, object]],
    placement: TierPlacement,
    dialect: Dialect,
    is_flat: bool,
) -> None:
    conversation = conversation_of(*head, *turns, user("now?"))
    tiers = tiered(context, conversation, placement, dialect)
    assembly = flat_assembly(context, conversation) if is_flat else tiers
    found = shown(assembly)

    # The same items in the same tiers and in the same order.
    assert items_in(found) == [(tier.label, ascii_of(item.key)) for tier, item in items_of(assembly)]
    # As many characters as are sent, in each tier and in all.
    assert found["total_tokens"] == sum(len(text) for text in whole_texts(assembly.messages))
    for block in found["blocks"]:
        messages = [m for b in assembly.blocks if b.tier.label == block["tier"] for m in b.messages]
        assert block["tokens"] == sum(len(text) for text in whole_texts(messages))
        assert block["tokens"] == sum(content["tokens"] for content in block["contents"])
    assert found["cached_tokens"] == sum(b["tokens"] for b in found["blocks"] if b["cached"])
    assert found["total_tokens"] == sum(kind["tokens"] for kind in found["breakdown"].values())
    assert len(items_in(found)) == sum(kind["count"] for kind in found["breakdown"].values())
    # The texts that are sent are those of the items.
    left = Counter("".join(whole_texts(assembly.messages)))
    for _, item in items_of(assembly):
        assert item.raw or any(item.text in text for text in whole_texts(assembly.messages))
        left.subtract(item.text)
    assert min(left.values(), default=0) >= 0


def whole_texts(messages: Any) -> list[str]:
    """Also of texts that are no Unicode."""
    return [text_in(json.loads(raw)) for raw in messages]


def ascii_of(key: str) -> str:
    return key.encode("utf-8", "backslashreplace").decode()
