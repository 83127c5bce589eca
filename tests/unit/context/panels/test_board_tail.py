"""Which panels stand last in each request: a matter of sizes, rates of change and prices."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.panels import CacheTerms, Panel, PanelMemory, Progress
from proxy.context.panels.board import in_tail

MARKED, STORED = CacheTerms(read=0.1, write=1.25), CacheTerms(read=0.1, write=1.0, ends_at_answers=True)
ANSWERS_MARKED = replace(MARKED, ends_at_answers=True)
SMALL, LARGE = Panel("small", "todo", "", "x" * 900), Panel("large", "file", "", "x" * 40_000)
CHAT = Progress((b"",) * 21, (4_000,) * 21, 20, range(22), 20, prompt_size=4_000.0)


def memory(panel: Panel, changes: int, seen: int = 100, in_loops: int = 0) -> PanelMemory:
    return PanelMemory(panel.id, panel.digest, 1.0, seen=seen, changes=changes, in_loops=in_loops)


def tail(progress: Progress, terms: CacheTerms | None, changes: int, in_loops: int = 0) -> frozenset[str]:
    """The tail where the small panel has changed so often in a hundred requests, and the large one once."""
    memories = {SMALL.id: memory(SMALL, changes, in_loops=in_loops), LARGE.id: memory(LARGE, 1)}
    return in_tail((SMALL, LARGE), memories, progress, terms)


@pytest.mark.parametrize("terms", [MARKED, STORED])
def test_a_small_panel_that_changes_often_stands_last_and_a_large_one_keeps_its_place(terms: CacheTerms) -> None:
    assert tail(CHAT, terms, 60) == {"small"}


def test_a_panel_that_hardly_ever_changes_keeps_its_place() -> None:
    assert tail(CHAT, MARKED, 0) == frozenset()


def test_all_panels_keep_their_places_where_prices_are_unknown_or_reads_are_as_dear_as_writes() -> None:
    assert tail(CHAT, None, 60) == tail(CHAT, CacheTerms(1.0, 1.0), 60) == frozenset()


def test_a_panel_keeps_its_place_beside_short_turns() -> None:
    short = Progress(CHAT.digests, (40,) * 21, 20, range(22), 20)
    assert tail(short, MARKED, 60) == frozenset()


def test_beside_a_short_prompt_the_tail_costs_little_where_an_entry_may_end_with_the_answer() -> None:
    """The answer in front of the tail is then read again, and the prompt behind it is sent anew alone."""
    short = replace(CHAT, prompt_size=100.0)
    assert tail(short, MARKED, 10) == frozenset()
    assert tail(short, ANSWERS_MARKED, 10) == {"small"}
    assert tail(replace(CHAT, prompt_size=7_900.0), ANSWERS_MARKED, 10) == frozenset()


def test_in_loops_of_calls_only_what_changes_between_calls_stands_last() -> None:
    loop = Progress(CHAT.digests, CHAT.sizes, 0, range(22), 21, prompt_share=0.2)
    assert tail(loop, MARKED, 60, in_loops=50) == {"small"}
    assert tail(loop, MARKED, 20) == frozenset()
    held = Progress(CHAT.digests, CHAT.sizes, 0, range(22), 20, has_tail=False)
    assert tail(held, MARKED, 60, in_loops=50) == frozenset()


@given(st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 50)), max_size=80))
def test_frozen_parts_keep_their_places_whatever_the_others_do(sizes: list[tuple[int, int]]) -> None:
    panels = [Panel(f"p{number}", "own", "", "x" * size) for number, (size, _) in enumerate(sizes)]
    frozen = Panel("history_1", "conversation_history", "", "x" * 100)
    memories = {panel.id: memory(panel, changes) for panel, (_, changes) in zip(panels, sizes, strict=True)}
    found = in_tail([*panels, frozen], {**memories, frozen.id: memory(frozen, 0)}, CHAT, MARKED)
    assert found <= memories.keys()
