"""The benchmark: every policy in its place between the bounds, and the sums that are shown."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from proxy.lab import Step, Trace, read_trace
from proxy.lab.demo.chats import samples
from proxy.lab.replay import (
    AS_SENT,
    CLIENT,
    OURS,
    SYSTEM_LAST,
    TOOLS_SYSTEM_LAST_TWO,
    replay,
    tools_system_and_last_two,
)
from proxy.lab.replay.comparison import (
    BEST,
    CLASSIC,
    COLUMNS,
    ECONOMIC,
    FIXED,
    FREE,
    SessionKind,
    TraceComparison,
    by_kind,
    compare,
    gains,
    means,
    plot,
    shares,
)
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, OPENAI, PROFILES, CacheProfile, Dialect
from proxy.protocol.request.tokens import Encode
from proxy.services import local_encode
from proxy.upstream.embedded.provider import PromptReader
from tests.examples import in_turn, sampled
from tests.fidelity.recorded import trace_files
from tests.unit.lab.replay.sessions import MARK, body, growing, say, setting, text

SAMPLES = [sample.trace() for sample in samples()]
MARKERS = (AS_SENT, CLIENT, SYSTEM_LAST, TOOLS_SYSTEM_LAST_TWO)


def check_order(one: TraceComparison, profile: CacheProfile) -> None:
    """free <= fixed <= marker policies, free <= best <= every policy."""
    slack = 1e-9 * one.plain
    best = one.scores[BEST].cost
    assert one.free <= one.fixed + slack
    assert one.free <= best + slack
    assert all(score.cost >= best - slack for score in one.scores.values() if not score.refused)
    if not profile.implicit_marks:
        assert all(one.scores[name].cost >= one.fixed - slack for name in MARKERS)
    assert one.violations == []


@pytest.mark.slow
@pytest.mark.parametrize(("trace", "profile"), in_turn(SAMPLES, [ANTHROPIC, OPENAI, DEEPSEEK]), ids=lambda v: v.name)
def test_every_policy_lies_above_its_bounds(trace: Trace, profile: CacheProfile) -> None:
    check_order(compare(trace, setting(profile=profile)), profile)


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("profile", sampled(PROFILES.values(), 4), ids=lambda p: p.name)
def test_every_profile_can_be_compared(profile: CacheProfile, *, is_long: bool) -> None:
    check_order(compare(samples()[2].trace() if is_long else clocked(4), setting(profile=profile)), profile)


def test_the_costs_are_those_of_the_plain_replay() -> None:
    trace = clocked(8)
    one = compare(trace, setting())
    for policy in (ECONOMIC, CLASSIC):
        plain = replay(trace, setting(policy=policy))
        assert one.plain == plain.plain
        assert one.scores[policy].cost == pytest.approx(plain.ours.cost(ANTHROPIC))
        assert one.scores[policy].hit_rate == plain.ours.hit_rate
        assert shares(one)[SYSTEM_LAST] == pytest.approx(plain.share(SYSTEM_LAST))
    assert set(plain.totals) == {AS_SENT, CLIENT, SYSTEM_LAST, OURS}


def test_a_growing_conversation_is_append_only_and_a_clock_makes_it_mutable() -> None:
    assert compare(growing(5), setting()).kind is SessionKind.APPEND_ONLY
    assert compare(clocked(5), setting()).kind is SessionKind.MUTABLE


def clocked(turns: int) -> Trace:
    steps = []
    for number, step in enumerate(growing(turns).steps):
        preamble = b'"content":"Current time: 2026-11-22 10:00:%02d.\\n\\ninstructions' % (number * 7)
        steps.append(Step(step.at, step.session, step.body.replace(b'"content":"instructions', preamble, 1)))
    return Trace("clocked", steps)


def test_the_longer_life_is_among_the_choices_where_someone_buys_it() -> None:
    long = {**MARK, "ttl": "1h"}
    bodies = [body(say("system", text("a", 3000), cache_control=mark), say("user", "x")) for mark in (long, MARK)]
    times = (0.0, 1000.0, 2000.0, 3000.0)
    bought, short = (
        compare(Trace("t", [Step(at, "s", one) for at in times]), setting(policy="economic")) for one in bodies
    )
    assert bought.scores[CLIENT].cost < short.scores[CLIENT].cost
    assert bought.fixed < short.fixed
    check_order(bought, ANTHROPIC)


def test_tools_system_and_the_last_two_messages_are_marked() -> None:
    tools = [{"type": "function", "function": {"name": n, "parameters": {}}} for n in "fg"]
    talk = [say("system", "a"), say("developer", "b"), say("user", "c"), say("assistant", "d"), say("user", "e")]
    marked = tools_system_and_last_two(body(*talk, tools=tools), Dialect.CACHE_CONTROL)
    assert sorted(PromptReader(ANTHROPIC, len).prompt(marked).marks) == [1, 3, 4, 6]
    plain = body(*talk, tools=tools)
    assert tools_system_and_last_two(plain, Dialect.NONE) == plain
    breakpoints = tools_system_and_last_two(plain, Dialect.BREAKPOINT)
    assert breakpoints.count(b"prompt_cache_breakpoint") == 3


def test_means_are_by_kind_and_geometric() -> None:
    found = [compare(trace, setting()) for trace in (growing(4), clocked(4), clocked(6))]
    assert [(kind, len(some)) for kind, some in by_kind(found)] == [
        (SessionKind.APPEND_ONLY, 1),
        (SessionKind.MUTABLE, 2),
    ]
    lines = means(found)
    assert [(line.name, line.traces, line.requests) for line in lines] == [
        ("append-only", 1, 4),
        ("mutable", 2, 10),
        ("all", 3, 14),
    ]
    product = shares(found[1])[ECONOMIC] * shares(found[2])[ECONOMIC]
    assert lines[1].shares[ECONOMIC] == pytest.approx(product**0.5)
    assert [line.name for line in means(found[1:])] == ["mutable"]
    assert lines[1].waste[AS_SENT] is None
    assert lines[1].waste[SYSTEM_LAST] == 1.0


def test_a_gain_is_a_share_of_the_saving_at_a_limit() -> None:
    costs = {ECONOMIC: 0.6, FIXED: 1.0, BEST: 0.5, FREE: 0.2}
    assert gains(costs) == {FIXED: None, BEST: pytest.approx(0.8), FREE: pytest.approx(0.5)}
    one = compare(growing(4), setting())
    assert set(shares(one)) == set(COLUMNS)
    assert gains({**shares(one), ECONOMIC: shares(one)[AS_SENT]})[FIXED] == 0.0


def test_the_picture_is_well_formed_and_names_every_trace() -> None:
    long = Trace("a-name <&> that is much longer than a line of the picture has room for", growing(3).steps)
    svg = plot([compare(trace, setting()) for trace in (long, clocked(4))], "anthropic")
    root = ElementTree.fromstring(svg)
    texts = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "clocked" in texts
    assert any(one.startswith("a-name <&>") and one.endswith("…") for one in texts)
    assert "anthropic" in texts[0]
    width = float(root.attrib["width"])
    for shape in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(shape.attrib["cx"]) < width


@pytest.fixture(scope="module")
def encode() -> Encode:
    """Takes a moment to load."""
    return local_encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "profile"), in_turn(trace_files(), [ANTHROPIC, OPENAI, DEEPSEEK]), ids=lambda it: it.name.partition(".")[0]
)
def test_recorded_sessions_lie_between_their_bounds(path: Path, profile: CacheProfile, encode: Encode) -> None:
    one = compare(read_trace(path), setting(profile=profile, encode=encode))
    check_order(one, profile)
