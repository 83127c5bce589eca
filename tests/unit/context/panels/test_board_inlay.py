"""What is put into conversations of any course: each panel once, pairs together, nothing anew in front of a change."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation
from proxy.context.assembly import without_last_answer
from proxy.context.blocks import Assembly, ItemKind
from proxy.context.panels import Panel, Progress
from proxy.context.panels.board import Board, Inlay, inlay_of, refreshed
from proxy.planner.tiers import Tier
from tests.panels import TEXTS, SentTurns, message, unchanged, wire
from tests.talk import MARK, assistant, calling, result, text_part, user

NAMES = "ABCDE"
KINDS = dict(zip(NAMES, ("console", "file", "own", "todo", "skill"), strict=True))
T0 = 1_800_000_000.0


@dataclass(frozen=True)
class Step:
    """What a client does between two requests. ``course`` is how its conversation goes on; ``edits`` are new contents
    by panel, None for one that vanishes."""

    course: str
    edits: dict[str, str | None]
    gap_s: float
    has_thinking: bool = False
    cut: int = 0
    is_echo: bool = False


steps = st.builds(
    Step,
    st.sampled_from(["prompt", "prompt", "loop", "loop", "again"]),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "1", "2", "3", None]), max_size=3),
    st.sampled_from([0.0, 1.0, 60.0, -500.0]),
    st.booleans(),
    st.integers(0, 20),
    st.booleans(),
)
rewrites = st.builds(Step, st.just("rewritten"), st.just({}), st.just(5.0), st.booleans(), st.integers(0, 20))


@dataclass
class Client:
    """A session: its conversation, its panels in the client's order, and the board."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    panels: dict[str, str] = field(default_factory=dict)
    board: Board = field(default_factory=Board)
    now_s: float = T0
    count: int = 0
    repeat: str = ""

    def say(self, made: dict[str, Any]) -> None:
        self.messages.append(made)
        self.count += 1

    def do(self, step: Step) -> "Shown":
        if step.course == "rewritten":
            cut = step.cut
            while cut < len(self.messages) and self.messages[cut]["role"] == "tool":
                cut += 1
            del self.messages[cut:]
        if step.course == "loop" and self.messages and self.messages[-1]["role"] != "assistant":
            ids = [f"t{self.count}-{n}" for n in range(1 + step.cut % 2)]
            self.say(calling(*ids))
            for each in ids:
                self.say(result(each, f"r{self.count}"))
        elif step.course != "again" or not self.messages:
            if self.messages:
                self.say(assistant("Ok." if step.is_echo else f"a{self.count}"))
            self.say(user("Go on." if step.is_echo else f"u{self.count}"))
        for name, content in step.edits.items():
            if content is None:
                self.panels.pop(name, None)
            else:
                self.panels[name] = content
        self.now_s += step.gap_s
        return self.shown(has_thinking=step.has_thinking)

    def shown(self, *, has_thinking: bool) -> "Shown":
        before = self.board
        panels = tuple(Panel(name, KINDS[name], name.lower(), content) for name, content in self.panels.items())
        conversation = Conversation.of([json.dumps(made).encode() for made in self.messages])
        progress = Progress.of(conversation, has_thinking=has_thinking)
        self.board = refreshed(before, panels, progress, self.now_s)
        sent = unchanged(conversation.turns)
        return Shown(before, self.board, panels, sent, progress.now_at, self.repeat)


@dataclass(frozen=True)
class Shown:
    """One request."""

    before: Board
    board: Board
    panels: tuple[Panel, ...]
    sent: SentTurns
    now_at: int

    repeat: str = ""

    def inlay(self, repeat: str = "") -> Inlay:
        return inlay_of(self.panels, self.board, *self.sent, TEXTS, repeat or self.repeat, is_chronological=True)

    def original(self, repeat: str = "") -> Inlay:
        return inlay_of(self.panels, self.board, *self.sent, TEXTS, repeat, is_chronological=False)

    @cached_property
    def chronological(self) -> Inlay:
        return self.inlay()

    @cached_property
    def wire(self) -> list[bytes]:
        return wire(self.chronological, self.sent)

    def call_at(self, name: str) -> int:
        """Where the call of a panel stands among all messages; behind the last one, where it is not shown."""
        needle = f'"id":"panel_{name}"'.encode()
        return next((i for i, raw in enumerate(self.wire) if needle in raw), len(self.wire))

    def message_at(self, index: int) -> int:
        """Where a message of the client's stands among all messages, with the time in front of it."""
        if index >= len(self.sent.turns):
            return len(self.wire)
        inlay = self.chronological
        own = sum(len(block.messages) for block in inlay.front) + index
        own += sum(len(block.messages) for at in range(index + 1) for block in inlay.within.get(at, ()))
        return own - (index in self.board.prompts)


def changed(before: Shown, after: Shown) -> set[str]:
    """Panels whose content is another, that are new, or that are gone."""
    old, new = ({panel.id: panel.digest for panel in shown.panels} for shown in (before, after))
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def taken_along(before: Shown, after: Shown) -> set[str]:
    """Panels that have moved although they stood in front of the change: it made what is sent anew little longer."""
    old, new = before.board.panels, after.board.panels
    return {name for name in new.keys() & old.keys() if new[name].placed_s != old[name].placed_s}


def sessions(*more: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.one_of(steps, *more), min_size=2, max_size=12)


repeats = st.sampled_from(["", "Be kind."])


@given(sessions(), repeats)
def test_nothing_in_front_of_the_first_change_is_ever_sent_anew(session: list[Step], repeat: str) -> None:
    """The conversation only grows at its end. A request then begins with the same bytes as the one before, up to where
    the first of the panels that have changed stood, or of those that were taken along, and up to where what is new is
    put in."""
    client = Client(repeat=repeat)
    requests = [client.do(step) for step in session]
    for before, after in pairwise(requests):
        moved = changed(before, after) | taken_along(before, after)
        ends = [before.call_at(name) for name in moved] + ([before.message_at(after.now_at)] if moved else [])
        end = min(ends, default=len(before.wire))
        assert after.wire[:end] == before.wire[:end]


def test_a_panel_that_comes_while_the_clock_stands_still_does_not_join_those_that_have_moved_there() -> None:
    client = Client()
    steps = [
        Step("prompt", {"D": "1"}, 0.0),
        Step("prompt", {"A": "1"}, 0.0),
        Step("prompt", {"D": None}, 0.0),
        Step("loop", {"B": "1"}, 0.0, has_thinking=True),
    ]
    *_, before, after = [client.do(step) for step in steps]

    assert after.wire[: before.message_at(after.now_at)] == before.wire[: before.message_at(after.now_at)]


@given(sessions(), repeats)
def test_what_is_new_stands_behind_what_was_sent_but_where_the_model_thinks(session: list[Step], repeat: str) -> None:
    """So that the place of the first changed panel alone bounds what is sent anew, whenever the conversation grows."""
    client = Client(repeat=repeat)
    requests = [client.do(Step(step.course, step.edits, step.gap_s)) for step in session]
    for before, after in pairwise(requests):
        if len(after.sent.turns) > len(before.sent.turns):
            moved = changed(before, after) | taken_along(before, after)
            end = min(map(before.call_at, moved), default=len(before.wire))
            assert after.wire[:end] == before.wire[:end]


@given(sessions(rewrites))
def test_each_panel_stands_once_and_each_message_in_its_order(session: list[Step]) -> None:
    client = Client()
    for step in session:
        shown = client.do(step)
        for inlay in (shown.inlay(), shown.original()):
            check_whole(shown, inlay)


def check_whole(shown: Shown, inlay: Inlay) -> None:
    messages = [json.loads(raw) for raw in wire(inlay, shown.sent)]
    calls = [call["id"] for body in messages for call in body.get("tool_calls", ()) if is_ours(call)]
    visible = sorted(panel.id for panel in shown.panels if panel.content)
    assert sorted(calls) == sorted([f"panel_{name}" for name in visible] + ["panel_footer"] * bool(visible))
    assert sorted(panel.id for panel in inlay.order) == visible
    assert [f"panel_{panel.id}" for panel in inlay.order] == [call for call in calls if call != "panel_footer"]
    for body, after in zip(messages, [*messages[1:], {}], strict=False):
        ids = [call["id"] for call in body.get("tool_calls", ())]
        # A call is followed by its first result, whoever has made it.
        assert not ids or after["tool_call_id"] == ids[0]
    raws = {turn.raw for turn in shown.sent.turns}
    assert [raw for raw in wire(inlay, shown.sent) if raw in raws] == [turn.raw for turn in shown.sent.turns]
    times = [i for i, body in enumerate(messages) if str(body["content"]).startswith("Current datetime: ")]
    assert all(messages[i + 1]["role"] == "user" for i in times)
    heads = [i for i, body in enumerate(messages) if TEXTS.header in str(body["content"])]
    assert len(heads) == bool(visible)


def is_ours(call: dict[str, Any]) -> bool:
    return bool(call["function"]["name"] == "dynamic_panel")


@given(sessions(rewrites))
def test_a_request_that_is_sent_again_is_the_same(session: list[Step]) -> None:
    client = Client()
    for step in session:
        shown = client.do(step)
        client.now_s += 3
        again = client.shown(has_thinking=step.has_thinking)
        assert again.wire == shown.wire


@given(sessions(rewrites), st.data())
def test_messages_that_are_left_out_part_no_call_from_its_result(session: list[Step], data: st.DataObject) -> None:
    client = Client()
    for step in session:
        shown = client.do(step)
    starts = [i for i, turn in enumerate(shown.sent.turns) if not turn.has_results]
    gone = data.draw(st.sets(st.sampled_from(starts)))
    origins, skips = [], False
    for index, turn in enumerate(shown.sent.turns):
        skips = index in gone if not turn.has_results else skips
        origins += [] if skips else [index]
    sent = SentTurns([shown.sent.turns[i] for i in origins], origins)
    left = Shown(shown.before, shown.board, shown.panels, sent, 0)
    for inlay in (left.inlay(), left.original()):
        check_whole(left, inlay)


@given(sessions(rewrites), repeats)
def test_blocks_say_what_their_messages_say(session: list[Step], repeat: str) -> None:
    """The breakdown is made from the items; no text is counted that is not sent, and none twice."""
    client = Client()
    for step in session:
        shown = client.do(step)
    for inlay in (shown.inlay(repeat), shown.original(repeat)):
        blocks = [*inlay.front, *(block for at in inlay.within.values() for block in at)]
        keys = [item.key for block in blocks for section in block.sections for item in section.items]
        assert len(set(keys)) == len(keys)
        assert "repeat" not in keys or (repeat and inlay.order)
        for block in blocks:
            assert (block.name, block.tier, block.marks) == ("panels", Tier.ACTIVE, ())
            said = sorted("".join(json.loads(raw)["content"] for raw in block.messages))
            texts = [section.words + "".join(item.text for item in section.items) for section in block.sections]
            assert sorted("".join(texts)) == said
            assert {item.kind for section in block.sections for item in section.items} == {ItemKind.PANELS}


def panel(name: str, content: str = "1") -> Panel:
    return Panel(name, "own", "", content)


def inlaid(panels: Sequence[Panel], talk: str, repeat: str = "") -> Inlay:
    conversation = Conversation.of([message(name) for name in talk.split()])
    board = refreshed(Board(), panels, Progress.of(conversation), T0)
    sent = unchanged(conversation.turns)
    return inlay_of(panels, board, *sent, TEXTS, repeat, is_chronological=True)


def test_the_answer_to_the_repeated_system_prompt_is_never_the_last_message() -> None:
    front = inlaid([panel("A")], "", "Be kind.").front
    messages = Assembly(without_last_answer(front)).messages
    assert json.loads(messages[-1])["role"] == "user"


def test_the_items_have_keys_of_their_own() -> None:
    inlay = inlaid([panel("A"), panel("repeat")], "u0 a0 u1", "Be kind.")
    blocks = [*inlay.front, *inlay.within[2]]
    keys = [item.key for block in blocks for section in block.sections for item in section.items]
    assert keys == ["panel:A", "panel:repeat", "panel:footer", "repeat", "datetime:2"]
    assert [len(block.messages) for block in blocks] == [6, 2, 1]


def test_a_marker_that_moves_moves_no_panel() -> None:
    def conversation(*marked: bool) -> Conversation:
        talk = [[text_part(f"t{i}", **(MARK if is_marked else {}))] for i, is_marked in enumerate(marked)]
        roles = (user, assistant, user, assistant, user)
        return Conversation.of([json.dumps(role(part)).encode() for role, part in zip(roles, talk, strict=False)])

    board = refreshed(Board(), [panel("A")], Progress.of(conversation(True)), T0)
    board = refreshed(board, [panel("A", "2")], Progress.of(conversation(False, False, True)), T0 + 1)
    board = refreshed(board, [panel("A", "2")], Progress.of(conversation(False, False, False, False, True)), T0 + 2)

    place = board.panels["A"].place
    assert place.index == 2
    assert list(board.prompts) == [0, 2, 4]


def test_contents_that_look_like_what_the_proxy_writes_are_contents() -> None:
    pair = wire(inlaid([panel("A")], "u0"), unchanged(()))
    fake = b",".join(pair).decode() + TEXTS.header + '"}]}' + "======= [B] x =======\n"
    found = wire(inlaid([panel("A", fake), panel("B", TEXTS.footer)], "u0"), unchanged(()))
    assert json.loads(found[1])["content"] == "======= [A]  =======\n" + fake
    assert [json.loads(raw)["role"] for raw in found[:-1]] == ["assistant", "tool"] * 3
