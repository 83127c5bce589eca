"""What kind of break it is, which piece it names, and whether it is waste."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.kit.value import digest
from proxy.planner.diagnose import compared, diagnose
from proxy.planner.record import KINDS, TURN, BreakKind, PromptPiece, PromptRecord, is_continuation, wire_record
from proxy.planner.shadow import Deviation
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, NONE, OPENAI
from proxy.protocol.recognition import PieceKind
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from tests.examples import examples

GRID = replace(OPENAI, min_tokens=1, step=1, hit_chance=1.0)


def piece(name: str, kind: str = TURN, version: int = 0, tokens: int = 100) -> PromptPiece:
    """A piece; turns that begin with ``a`` are answers."""
    key = name if kind != TURN else "assistant" if name.startswith("a") else "user"
    return PromptPiece(key, kind, digest(name.encode(), b"%d" % version), tokens)


def record(*pieces: PromptPiece, at: float = 0.0, **others: Any) -> PromptRecord:
    return PromptRecord(at=at, **others).holding(pieces)


SYSTEM = piece("system", "system")
TOOLS = [piece(f"tool-{n}", "tool") for n in range(3)]
FILES = [piece(f"file:{n}", PieceKind.FILE) for n in range(3)]
TALK = [piece(name) for name in ("q1", "a1", "q2", "a2", "q3")]
BEFORE = (*TOOLS, SYSTEM, *FILES, *TALK)
MORE = (piece("a3"), piece("q4"))


def changed(index: int, **fields: Any) -> tuple[PromptPiece, ...]:
    """The prompt with another version of a piece."""
    found = [*BEFORE, *MORE]
    found[index] = msgspec.structs.replace(found[index], digest=digest(b"other"), **fields)
    return tuple(found)


CASES = {
    "changed instructions": (changed(3), BreakKind.CHANGED, "system", True),
    "a changed tool": (changed(1), BreakKind.TOOLS, "tool-1", True),
    "a tool that is gone": ((*TOOLS[1:], *BEFORE[3:], *MORE), BreakKind.TOOLS, "tool-0", True),
    "an edited file": (changed(4), BreakKind.CHANGED, "file:0", False),
    "a new file": (
        (*BEFORE[:4], piece("file:new", PieceKind.FILE), *BEFORE[4:], *MORE), BreakKind.APPEARED, "file:new", False,
    ),
    "a file that is gone": ((*BEFORE[:4], *BEFORE[5:], *MORE), BreakKind.DISAPPEARED, "file:0", False),
    "files in another order": (
        (*BEFORE[:4], FILES[2], FILES[0], FILES[1], *TALK, *MORE), BreakKind.REORDERED, "file:2", True,
    ),
    "a rewritten answer": (changed(8), BreakKind.CHANGED, "assistant", True),
    "a summary": (
        (*BEFORE[:7], piece("summary", tokens=40), *TALK[3:], *MORE), BreakKind.COMPACTED, "user", False,
    ),
    "trimmed turns": ((*BEFORE[:7], *TALK[2:], *MORE), BreakKind.DISAPPEARED, "user", True),
    "files behind the talk": (
        (*TOOLS, SYSTEM, *TALK, *MORE, *FILES), BreakKind.REORDERED, "file:0", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_kind_the_culprit_and_whether_it_is_waste(name: str) -> None:
    pieces, kind, culprit, is_waste = CASES[name]
    found = diagnose([record(*BEFORE)], record(*pieces, at=10.0), None, GRID)
    assert (found.kind, found.culprit, found.is_waste, found.line) == (kind, culprit, is_waste, 0)
    assert found.before + found.tokens + found.behind == record(*pieces).total
    assert found.lost > 0


def test_of_a_message_of_files_the_file_that_changed_and_its_place_are_told() -> None:
    edited = piece("file:1", PieceKind.FILE, version=1)
    old, new = piece("context"), piece("context", version=1)
    cuts = {old.digest: FILES, new.digest: [FILES[0], edited, FILES[2]]}
    found = diagnose([record(SYSTEM, old, *TALK)], record(SYSTEM, new, *TALK, *MORE), None, GRID, cuts=cuts)
    assert (found.kind, found.culprit, found.before, found.tokens) == (BreakKind.CHANGED, "file:1", 200, 100)


@pytest.mark.parametrize(
    ("result", "culprit"),
    [
        ({"role": "tool", "content": "found"}, "tool"),
        ({"role": "user", "content": [{"type": "tool_result", "content": "found"}]}, "tool"),
        ({"role": "user", "content": [{"type": "text", "text": "found"}]}, "user"),
        ({"type": "function_call_output", "output": "found"}, "tool"),
    ],
)
def test_a_changed_tool_result_is_told_as_one_in_every_format(result: dict[str, Any], culprit: str) -> None:
    changed_result = orjson.loads(orjson.dumps(result).replace(b"found", b"found nothing"))
    talk = [{"role": role, "content": f"{role} {n}"} for n in range(4) for role in ("user", "assistant")]
    old, now = (
        wire_record({"messages": [*talk[:2], one, *talk[2:]]}, bytes_over_four, at=at)
        for at, one in enumerate((result, changed_result))
    )
    found = diagnose([old], now, None, GRID)
    assert (found.kind, found.culprit) == (BreakKind.CHANGED, culprit)


def test_the_tokens_in_front_of_a_changed_line_are_those_of_the_lines_before_it() -> None:
    lines = ["short", *["a line that is much longer than the first one " * 4] * 20, "It is 10:01."]
    old, now = (
        wire_record({"messages": [{"role": "system", "content": "\n".join(text)}, *talk]}, bytes_over_four, at=at)
        for at, text in enumerate((lines, [*lines[:-1], "It is 10:02."]))
        for talk in [[{"role": role, "content": f"{role} {n}"} for n in range(4) for role in ("user", "assistant")]]
    )
    found = diagnose([old], now, None, GRID)
    assert (found.culprit, found.line, found.tokens) == ("system", 22, pytest.approx(3, abs=1))
    assert found.before == pytest.approx(bytes_over_four("\n".join(lines[:-1])), rel=0.02)


def test_context_that_stays_behind_the_talk_is_pushed_further_by_each_turn() -> None:
    old = record(SYSTEM, *TALK, *FILES)
    found = diagnose([old], record(SYSTEM, *TALK, *MORE, *FILES, at=5.0), None, GRID)
    assert (found.kind, found.culprit, found.lost) == (BreakKind.REORDERED, "file:0", 300)


@pytest.mark.parametrize(("tokens", "is_continued"), [(50, False), (250, True)])
def test_a_request_that_shares_hardly_anything_is_another_conversation(tokens: int, is_continued: bool) -> None:
    answer = piece("a1", tokens=tokens)
    old = record(SYSTEM, piece("q1"), answer, *[piece(f"q-old-{n}") for n in range(10)])
    now = record(SYSTEM, piece("q1", version=1), answer, *[piece(f"q-new-{n}") for n in range(10)], at=5.0)
    assert (diagnose([old], now, None, GRID) is not None) is is_continued


def test_a_side_call_about_the_same_question_is_another_conversation() -> None:
    old, now = (record(piece(name, "system"), TALK[0], at=at) for at, name in enumerate(("agent", "title")))
    assert diagnose([old], now, None, GRID) is None


def test_a_request_continues_the_earlier_one_that_is_most_like_it() -> None:
    branch = record(SYSTEM, TALK[0], *[piece(f"a-branch-{n}") for n in range(3)], at=1.0)
    for before in ([record(*BEFORE), branch], [branch, record(*BEFORE)]):
        assert diagnose(before, record(*BEFORE, *MORE, at=5.0), None, GRID) is None
        found = diagnose(before, record(*changed(8), at=5.0), None, GRID)
        assert (found.kind, found.culprit) == (BreakKind.CHANGED, "assistant")


def test_what_stands_beside_the_pieces() -> None:
    old = record(*BEFORE, model="m1", route="r1", parameters={"tool_choice": b"a"})
    more = (*BEFORE, *MORE)
    profile = replace(GRID, breaking=ANTHROPIC.breaking)

    def kind(**others: Any) -> tuple[str, str]:
        same = {"model": "m1", "route": "r1", "parameters": {"tool_choice": b"a"}}
        found = diagnose([old], record(*more, at=5.0, **{**same, **others}), None, profile)
        assert found is None or found.is_waste is (found.kind != BreakKind.MODEL_SWITCHED)
        return ("", "") if found is None else (found.kind, found.culprit)

    assert kind() == ("", "")
    assert kind(model="m2") == (BreakKind.MODEL_SWITCHED, "m2")
    assert kind(route="r2") == (BreakKind.ROUTE_SWITCHED, "r2")
    assert kind(parameters={"tool_choice": b"b"}) == (BreakKind.PARAMETERS, "tool_choice")
    assert kind(parameters={"tool_choice": b"a", "temperature": b"1"}) == ("", "")


@pytest.mark.parametrize(("value", "culprits"), [(None, []), ("auto", []), ("none", ["tool_choice"])])
def test_a_parameter_that_says_what_holds_anyway_breaks_nothing(value: object, culprits: list[str]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "a long question " * 40}]}
    old, now = (wire_record(one, bytes_over_four, at=1.0) for one in (body, {**body, "tool_choice": value}))
    found = diagnose([old], now, None, replace(GRID, breaking=ANTHROPIC.breaking))
    assert ([found.culprit] if found is not None else []) == culprits


def test_what_no_difference_explains_is_the_providers_side() -> None:
    old, now = record(*BEFORE, TALK[0], *[piece(f"u{n}") for n in range(20)]), (*BEFORE, TALK[0])
    now = (*now, *[piece(f"u{n}") for n in range(20)], *MORE)

    def kind(at: float, usage: Usage | None, deviation: str = "", profile: Any = GRID) -> str:
        comparison = compared([old], record(*now, at=at))
        found = comparison.diagnosed(usage, profile, deviation=deviation)
        return "" if found is None else found.kind

    missed, read = Usage(3500, 1), Usage(3500, 1, read=3300)
    assert kind(10.0, read) == ""
    assert kind(10.0, missed) == Deviation.PARTITIONED
    assert kind(100.0, missed) == Deviation.EVICTED
    assert kind(1e6, None) == kind(1e6, missed) == Deviation.EXPIRED
    assert kind(10.0, missed, Deviation.OUT_OF_REACH) == Deviation.OUT_OF_REACH
    assert kind(10.0, missed, Deviation.AS_EXPECTED) == ""
    assert kind(10.0, missed, profile=replace(GRID, min_tokens=9000)) == BreakKind.BELOW_MINIMUM
    assert kind(10.0, missed, profile=NONE) == ""


def test_a_change_behind_a_pause_is_the_pauses_loss() -> None:
    found = diagnose([record(*BEFORE)], record(*changed(3), at=1e6), None, GRID)
    assert (found.kind, found.culprit, found.is_waste) == (Deviation.EXPIRED, "system", False)


def test_all_kinds_have_one_vocabulary() -> None:
    assert len(set(KINDS)) == len(KINDS) == len(BreakKind) + 7


def test_a_conversation_that_the_provider_keeps_goes_on_from_the_one_before() -> None:
    first = {"model": "m", "instructions": "Be brief.", "input": [{"role": "user", "content": "One."}], "tools": []}
    then = {**first, "input": [{"role": "user", "content": "Two."}], "previous_response_id": "r1"}
    old = wire_record(first, bytes_over_four, at=0.0)
    assert is_continuation(then)
    new = wire_record(then, bytes_over_four, at=1.0).continuing(old)
    assert new.digests.startswith(old.digests)
    assert diagnose([old], new, None, GRID) is None


@given(texts=st.lists(st.text(min_size=1, max_size=40), min_size=4, max_size=24, unique=True), where=st.integers(0, 22))
@settings(max_examples=examples(150))
def test_a_changed_turn_is_found_at_its_place_and_an_appended_one_breaks_nothing(texts: list[str], where: int) -> None:
    talk = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    old = wire_record({"messages": talk[:-1]}, bytes_over_four, at=0.0)
    assert diagnose([old], wire_record({"messages": talk}, bytes_over_four, at=1.0), None, GRID) is None
    where %= len(talk) - 1
    edited = [{**one, "content": one["content"] + "\0new"} if n == where else one for n, one in enumerate(talk)]
    found = diagnose([old], wire_record({"messages": edited}, bytes_over_four, at=1.0), None, GRID)
    if found is not None:
        assert (found.place, found.kind) in ((where, BreakKind.CHANGED), (where, BreakKind.COMPACTED))
    else:
        # Nothing, or hardly anything, behind it is in both; or no answer is.
        kept = sum(len(text) for text in texts[where + 1 : -1])
        assert where >= len(talk) - 3 or where < 2 or kept < sum(map(len, texts)) / 5


@given(body=st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["role", "content", "type", "text", "messages", "input", "tools", "system", "function", "name",
                         "cache_control", "thread", "instructions", "model"]), inner, max_size=5),
    max_leaves=25,
).filter(lambda value: isinstance(value, dict)))  # fmt: skip
@example({"tools": [{"type": []}]})  # not each value of JSON can be in a set
@settings(max_examples=examples(200))
def test_a_body_of_any_shape_has_a_record(body: Any) -> None:
    first = wire_record(body, bytes_over_four, at=0.0)
    again = wire_record(body, bytes_over_four, at=1.0)
    if is_continuation(body):
        again = again.continuing(first)
    assert first.is_sound
    assert diagnose([first], again, None, GRID) is None


def test_an_entry_that_was_marked_for_an_hour_is_alive_for_an_hour() -> None:
    profile = replace(ANTHROPIC, min_tokens=1)
    for long, kind in ((0, Deviation.EXPIRED), (1200, BreakKind.CHANGED)):
        old = record(*BEFORE, stops=[1200], long=long)
        found = diagnose([old], record(*changed(3), at=1800.0), None, profile)
        assert found.kind == kind


def test_a_piece_that_has_grown_makes_no_request_cheaper_than_what_was_read_of_it() -> None:
    now = record(*changed(3, tokens=5000), at=10.0)
    found = diagnose([record(*BEFORE)], now, Usage(now.total, 1, read=now.total), GRID, Price.relative(0.1, 1.25, 2.0))
    assert (found.lost, found.usd) == (0, 0.0)


@pytest.mark.parametrize(("distance", "lost"), [(0, 0), (1, 0), (ANTHROPIC.lookback - 1, 0), (ANTHROPIC.lookback, 400)])
def test_an_entry_is_lost_where_no_marker_is_near_enough_to_find_it(distance: int, lost: int) -> None:
    profile = replace(ANTHROPIC, min_tokens=1)
    turns = [piece(f"q{number}") for number in range(ANTHROPIC.lookback)]
    old = record(*TOOLS, SYSTEM, *turns, stops=(400,))
    now = record(*TOOLS, SYSTEM, piece("q0", version=1), *turns[1:], at=5.0, stops=(400 + 100 * distance,))
    found = diagnose([old], now, None, profile)
    assert found.lost == lost


@pytest.mark.parametrize(("implicit", "lost"), [(0, 400), (1, 0)])
def test_without_markers_an_entry_is_found_only_where_the_provider_sets_one(implicit: int, lost: int) -> None:
    old = record(*TOOLS, SYSTEM, *TALK, stops=(400,), stored=400)
    now = record(*TOOLS, SYSTEM, piece("q1", version=1), *TALK[1:], at=5.0)
    assert diagnose([old], now, None, replace(ANTHROPIC, min_tokens=1, implicit_marks=implicit)).lost == lost
