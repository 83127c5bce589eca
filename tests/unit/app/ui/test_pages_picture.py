"""The picture of a session: its areas are the reported tokens, and no name breaks out of it."""

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from proxy.app.ui.pages import PARTS, PLOT, Scale, document, halves, legend

SVG = "{http://www.w3.org/2000/svg}"
TOKENS = st.integers(0, 300_000)


@st.composite
def layouts(draw: st.DrawFn, prompt: int) -> dict[str, Any]:
    read = draw(st.integers(0, prompt))
    written = draw(st.integers(0, prompt - read))
    return {
        "read_tokens": read, "write_tokens": written, "uncached_tokens": prompt - read - written,
        "cost_usd": draw(st.floats(-10, 1e6)), "by": draw(st.sampled_from(["provider", "shadow"])),
    }  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    prompt = draw(TOKENS)
    broke = st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["changed", "expired"]), "culprit": st.text(max_size=300), "before_tokens": TOKENS,
            "lost_tokens": TOKENS, "usd": st.floats(0, 1e4), "line": st.none(), "is_waste": st.booleans(),
        }
    )  # fmt: skip
    return {
        "at": 0.0, "keep_alive": False, "prompt_tokens": prompt, "client_layout": draw(layouts(prompt)),
        "planned_layout": draw(layouts(prompt)), "break": draw(st.none() | broke),
    }  # fmt: skip


def areas(drawn: str, part: str, scale: Scale) -> float:
    """Tokens that the areas of a part stand for."""
    root = ElementTree.fromstring(drawn)
    (path,) = [one for one in root.iter(f"{SVG}path") if one.get("class") == f"k {part}"]
    widths = re.findall(r"M[\d.]+ [\d.]+h([\d.]+)v", path.get("d") or "")
    return sum(map(float, widths)) / PLOT * scale.most


@given(st.lists(requests(), max_size=12))
def test_the_areas_are_the_reported_tokens_at_one_scale(rows: Sequence[dict[str, Any]]) -> None:
    scale = Scale.of(rows)
    for drawn, layout in zip(halves(rows), ("client_layout", "planned_layout"), strict=True):
        for part in PARTS:
            told = sum(row[layout][f"{part}_tokens"] for row in rows)
            # A hundredth of a pixel for each row.
            assert abs(areas(drawn, part, scale) - told) <= 0.011 / PLOT * scale.most * len(rows)


@given(st.lists(requests(), max_size=12), st.text(max_size=50))
def test_a_file_is_one_well_formed_document_that_needs_nothing_else(
    rows: Sequence[dict[str, Any]], sentence: str
) -> None:
    drawn = document(rows, sentence, ".k { stroke: none }")
    ElementTree.fromstring(drawn)
    assert not re.search(r"<(?:script|image|foreignObject|use)\b", drawn)


@given(st.lists(requests(), min_size=1, max_size=12))
def test_every_break_of_what_was_sent_has_a_notch(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["planned_layout"]["by"], row["client_layout"]["by"] = "provider", "shadow"
    client, planned = halves(rows)
    assert planned.count('class="notch"') == sum(row["break"] is not None for row in rows)
    assert 'class="notch"' not in client


def test_in_observe_the_notches_stand_where_the_clients_own_layout_was_sent() -> None:
    row = {
        "prompt_tokens": 10,
        "client_layout": {
            "read_tokens": 0, "write_tokens": 0, "uncached_tokens": 10, "cost_usd": 1.0, "by": "provider",
        },
        "planned_layout": {"read_tokens": 9, "write_tokens": 1, "uncached_tokens": 0, "cost_usd": 0.1, "by": "shadow"},
        "break": {"kind": "changed", "culprit": "f", "before_tokens": 5, "lost_tokens": 5, "usd": 0.5},
    }  # fmt: skip
    client, planned = halves([row])
    assert ('class="notch"' in client, 'class="notch"' in planned) == (True, False)
    assert "$1.00<" in client
    assert "$0.10 (estimated)" in planned


def test_five_hundred_requests_are_a_small_picture() -> None:
    one = {"read_tokens": 90_000, "write_tokens": 900, "uncached_tokens": 100, "cost_usd": 0.01, "by": "provider"}
    broke = {"kind": "changed", "culprit": "src/app.py", "before_tokens": 50_000, "lost_tokens": 1, "usd": 0.01}
    rows = [
        {
            "prompt_tokens": 91_000,
            "client_layout": one,
            "planned_layout": one,
            "break": broke if number % 7 == 0 else None,
        }
        for number in range(500)
    ]
    assert sum(map(len, halves(rows))) < 160_000
    assert "pattern" in legend()
