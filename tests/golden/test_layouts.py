"""Golden layouts: each scenario's requests are planned one after another and described as text."""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from proxy.lab.replay.explain import first_words
from proxy.planner.candidates import PlanAnalysis
from proxy.planner.layout import Layout
from proxy.planner.plan import InFlight, Plan
from proxy.protocol.caches import Bill, Life
from proxy.protocol.providers import Family
from proxy.protocol.recognition import TAG_CLOSE, TAG_OPEN, PieceKind
from proxy.protocol.request.element import Element, ElementKind
from tests.examples import for_every
from tests.fidelity.checker import check
from tests.golden.scenario import parse_scenario
from tests.talk import MARK_KEYS, Body, Talk, sent

FOLDER = Path(__file__).parent
RULE = "----------"
TIERS = ("L0", "L1", "L2", "L3")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.layouttest")), ids=lambda path: path.stem)
def test_layout(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    scenario, _, expected = text.partition(f"{RULE}\n")
    got = "\n".join(described(scenario))
    if request.config.getoption("--update-golden"):
        path.write_text(f"{scenario}{RULE}\n{got}")
        return
    diff = difflib.unified_diff(expected.splitlines(), got.splitlines(), "expected", "planned", lineterm="", n=4)
    assert got == expected, "\n".join([path.name, *diff])


@for_every(sorted(FOLDER.glob("*.layouttest")))
def test_expected_layouts_are_faithful(path: Path) -> None:
    """What is expected here is never what the rules forbid, and the rates add up to the whole prompt."""
    text = path.read_text().partition(RULE)[0]
    scenario = parse_scenario(text)
    terms = {"mode": scenario.mode.name.lower(), "profile": scenario.profile.name}
    seen: list[object] = []
    for plan in plans(text):
        original = json.loads(plan.original)
        tools = original.get("tools")
        assert check(original, sent(plan), **terms, tools_seen_reordered=any(each != tools for each in seen)) == []
        seen.append(tools)
        assert plan.in_flight is not None
        if plan.predicted is not None:
            assert plan.predicted.total == laid_out(plan.in_flight)[0].total


def described(scenario: str) -> Iterator[str]:
    """Lines, the last of them empty."""
    titles = [each.title.removeprefix("request") for each in parse_scenario(scenario).requests]
    for number, (title, plan) in enumerate(zip(titles, plans(scenario), strict=True), 1):
        yield f"request {number}{title}: {plan.reason}{'' if plan.rewritten else ', sent as it came'}"
        if plan.in_flight is not None:
            yield from rows(plan.in_flight)
        yield f"  bill  {bill(plan.predicted)}; the client's own: {bill(plan.own)}"
        yield f"  wire  {wire(sent(plan))}"
        yield ""


def plans(text: str) -> Iterator[Plan]:
    """A plan each, described before the next request is planned."""
    scenario = parse_scenario(text)
    talk = Talk(profile=scenario.profile, mode=scenario.mode, policy=scenario.policy)
    for each in scenario.requests:
        yield talk.send(each.body, after_s=each.after_s)


def laid_out(in_flight: InFlight) -> tuple[Layout, Mapping[int, Life]]:
    """What is sent: the layout that was chosen, or the client's own."""
    analysis = in_flight.analysis
    if not in_flight.sends_own:
        return analysis.choice.layout, analysis.choice.marks
    natural = Layout(analysis.choice.layout.seed, analysis.elements.natural)
    return natural, natural.own_marks() if analysis.profile.family is Family.MARKER else {}


def rows(in_flight: InFlight) -> Iterator[str]:
    """A line an element, in sending order."""
    layout, marks = laid_out(in_flight)
    ends = sorted(marks)
    for index, element in enumerate(layout.elements):
        start, last = layout.starts[index], layout.last_position(index)
        inside = [position for position in ends if start <= position <= last]
        tiers = (f"{marks[p]} ends {TIERS[ends.index(p)]}" for p in inside)
        tokens = sum(part.tokens for part in element.parts)
        role = element.role or "tools"
        name = named(in_flight.analysis, element)
        yield f"  {role:9} {element.kind:9} {name:44} {tokens:5}  {', '.join(tiers)}".rstrip()


def named(analysis: PlanAnalysis, element: Element) -> str:
    """The keys of what moves, the beginning of what does not."""
    match element.kind:
        case ElementKind.TOOLS:
            return f"{len(element.parts)} definitions"
        case ElementKind.WHOLE:
            group = next(g for g in analysis.recognised.groups if g.message == element.message)
            return ", ".join(dict.fromkeys(item.key for item in group.items))
        case ElementKind.MESSAGE:
            return first_words(analysis.recognised.messages[element.message])
        case _ if element.item is not None:
            key = element.item.key
            return key.rpartition(":")[0] if element.item.kind is PieceKind.DOCUMENT else key
        case _:
            return " ".join(element.lead.removeprefix(TAG_OPEN).removesuffix(TAG_CLOSE).split())[:40]


def bill(one: Bill | None) -> str:
    """Tokens by rate."""
    if one is None:
        return "unknown"
    long = f" ({one.write_1h} for 1h)" if one.write_1h else ""
    return f"read {one.read}, write {one.write}{long}, plain {one.plain}"


def wire(body: Body) -> str:
    """Roles as they are sent, a star for each marker, read from the JSON and not from the plan."""
    tools = ["tools" + "*" * sum(map(stars, body["tools"]))] if "tools" in body else []
    return " ".join([*tools, *(message["role"] + "*" * stars(message) for message in body["messages"])])


def stars(holder: object) -> int:
    """Markers anywhere inside."""
    if isinstance(holder, list):
        return sum(map(stars, holder))
    if not isinstance(holder, dict):
        return 0
    return sum(1 if key in MARK_KEYS else stars(each) for key, each in holder.items())
