"""The head-up display of ``stratiform serve --hud``, and the reports that it draws."""

import io
import re
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from proxy.cli.costs import Hud, drawn

USED = {
    "prompt_tokens": 20_000, "completion_tokens": 400, "total_tokens": 20_400, "cache_read_tokens": 15_000,
    "cache_write_tokens": 3_000, "uncached_tokens": 2_000, "cache_hit_rate": 0.75, "cost_usd": 0.0123,
    "saved_usd": 0.04,
}  # fmt: skip


def tier(name: str, tokens: int, threshold: int, *contents: tuple[str, int, int]) -> dict[str, Any]:
    found = [{"type": kind, "tokens": size, "count": count} for kind, size, count in contents]
    cached = name != "active"
    return {
        "tier": name,
        "tokens": tokens,
        "threshold": threshold,
        "cached": cached,
        "breakpoint": False,
        "contents": found,
    }


def report(**more: object) -> dict[str, Any]:
    return {
        "model": "sonnet", "mode": "tier", "reason": "planned", "max_input_tokens": 200_000, "max_output_tokens": None,
        "request": USED | {"estimated": False},
        "session": USED | {"requests": 12, "empty_tiers": 9, "cache_read_tokens": 30_000, "cache_write_tokens": 10_000},
        "tiers": [
            tier("L0", 12_000, 12, ("system", 2_000, 1), ("files", 10_000, 3)),
            tier("active", 8_000, 0, ("history", 7_000, 9), ("prompt", 1_000, 1)),
        ],
        "empty_tiers": 3,
        **more,
    }  # fmt: skip


def test_the_diagram_shows_each_tier_and_what_was_used() -> None:
    text = drawn(report(), 120, has_colors=False)
    assert "stratiform sonnet · tier, planned" in text
    assert re.search(r"L0 \(12\+\) +█{14} +12,000 +\[cached\] +system 2,000, 3 files 10,000", text)
    assert re.search(r"active +█{10} +8,000 +9 messages 7,000, prompt 1,000", text)
    assert "request  20,000 of 200,000 in: read 15,000 (75%), written 3,000, uncached 2,000; 400 out; $0.0123" in text
    assert "session  12 requests, 20,000 in: read 30,000 (75%)" in text
    assert "cache ROI +200 %, empty tiers 3 (session 9)" in text


def test_what_is_not_known_is_not_shown() -> None:
    unwritten = USED | {"requests": 1, "empty_tiers": 0, "cache_write_tokens": 0}
    assert "ROI" not in drawn(report(session=unwritten), 120, has_colors=False)
    assert "session" not in drawn(report(session=None), 120, has_colors=False)
    assert "(estimated)" in drawn(report(request=USED | {"estimated": True}), 120, has_colors=False)
    assert "in: read" in drawn(report(tiers=[], max_input_tokens=None), 120, has_colors=False)


@given(st.text(max_size=100), st.sampled_from(["ascii", "latin-1", "cp437", "koi8-r", "utf-8"]))
def test_every_terminal_is_shown_what_it_has_characters_for(model: str, encoding: str) -> None:
    shown = drawn(report(model=model), 120, encoding, has_colors=False)
    assert shown.encode(encoding).decode(encoding) == shown
    assert re.search("L0.*[█?]{14} +12,000", shown)
    assert encoding != "utf-8" or {cell_len(line) for line in shown.splitlines()} == {120}


@given(st.text(max_size=300), st.integers(20, 120))
def test_no_name_breaks_the_frame_or_commands_the_terminal(model: str, width: int) -> None:
    lines = drawn(report(model=model), width, has_colors=False).splitlines()
    assert not any(char in "\x1b\x07\x9b" for line in lines for char in line)
    assert max(map(cell_len, lines)) <= width


class Held(io.StringIO):
    """A terminal whose output somebody holds."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        assert self.released.wait(30)
        return super().write(text)


def test_a_terminal_that_stands_still_holds_nobody_up() -> None:
    held, done = Held(), threading.Event()
    hud = Hud(held)

    def show() -> None:
        for _ in range(1_000):
            hud.show(report())
        done.set()

    threading.Thread(target=show, daemon=True).start()
    assert done.wait(60)
    held.released.set()
    for _ in range(200):
        if held.getvalue().count("stratiform") >= 2:
            break
        threading.Event().wait(0.05)
    assert 2 <= held.getvalue().count("sonnet") <= 60


def test_a_terminal_that_is_gone_ends_the_display_alone() -> None:
    gone = io.StringIO()
    gone.close()
    hud = Hud(gone)
    for _ in range(200):
        hud.show(report())
