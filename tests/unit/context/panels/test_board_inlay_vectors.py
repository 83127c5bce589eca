"""The vectors of ``panels.vectors``, read and held."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from proxy.context import Conversation
from proxy.context.panels import Panel, Progress
from proxy.context.panels.board import Board, Inlay, inlay_of, refreshed
from tests.examples import for_every
from tests.panels import SHORT_S, START_S, TEXTS, SentTurns, message, notation, unchanged, wire
from tests.talk import user

VECTORS = Path(__file__).parent / "panels.vectors"
MADE = orjson.dumps(user("x"))
COMMENT = re.compile(r"#.*")


@dataclass(frozen=True)
class Vector:
    """One paragraph: the rule, and its lines by key."""

    rule: str
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def words(self, key: str) -> list[str]:
        return " ".join(self.lines.get(key, ())).split()


def read() -> Iterator[Vector]:
    for paragraph in VECTORS.read_text("utf-8").split("\n\n"):
        written = [line for line in paragraph.splitlines() if not COMMENT.match(line)]
        if not written:
            continue
        lines: dict[str, list[str]] = {}
        for line in written[1:]:
            key, _, rest = line.partition(" ")
            lines.setdefault(key, []).append(rest.strip())
        yield Vector(written[0], lines)


ALL = list(read())


def time_of(word: str) -> float:
    return float(word) + (START_S if 0 < int(word) < SHORT_S else 0)


@dataclass(frozen=True)
class Sent:
    """What the last request of a vector sends."""

    inlays: Mapping[str, Inlay]
    turns: SentTurns


def play(vector: Vector) -> Sent:
    kinds = dict(word.split("=") for word in vector.words("kind"))
    board, conversation = Board(), Conversation()
    panels: tuple[Panel, ...] = ()
    for line in vector.lines["sent"]:
        left, _, talk = line.partition("|")
        time, *words = left.split()
        has_thinking = "thinking" in words
        panels = tuple(
            Panel(name, kinds.get(name, "own"), f"{name}'s header", content)
            for name, _, content in (word.partition("=") for word in words if "=" in word)
        )
        conversation = Conversation.of([message(name) for name in talk.split()])
        progress = Progress.of(conversation, has_thinking=has_thinking)
        board = refreshed(board, panels, progress, time_of(time))
    turns = conversation.turns
    sent = unchanged(turns)
    if origins := [int(word) for word in vector.words("origins")]:
        made = Conversation.of([MADE]).prompt[0]
        sent = SentTurns([made if i < 0 else turns[i] for i in origins], origins)
    repeat = " ".join(vector.lines.get("repeat", ()))
    inlays = {
        name: inlay_of(panels, board, *sent, TEXTS, repeat, is_chronological=is_chronological)
        for name, is_chronological in (("original", False), ("chronological", True))
    }
    return Sent(inlays, sent)


def of(*keys: str) -> list[Vector]:
    return [vector for vector in ALL if any(key in vector.lines for key in keys)]


@for_every(of("original", "chronological"))
def test_what_is_sent_is_what_the_vector_says(vector: Vector) -> None:
    sent = play(vector)
    for order, inlay in sent.inlays.items():
        if order in vector.lines:
            assert notation(wire(inlay, sent.turns)) == " ".join(vector.words(order))


@pytest.mark.parametrize("vector", of("json"), ids=lambda v: v.rule)
def test_what_is_sent_is_the_vector_byte_for_byte(vector: Vector) -> None:
    sent = play(vector)
    assert [m.decode() for m in wire(sent.inlays["original"], sent.turns, has_talk=False)] == vector.lines["json"]


def test_there_are_enough_vectors_and_each_rule_stands_once() -> None:
    assert len(ALL) >= 40
    assert len({vector.rule for vector in ALL}) == len(ALL)
    assert {vector.rule.partition(":")[0] for vector in ALL} == {"original", "ours"}
    known = {"sent", "origins", "kind", "repeat", "original", "chronological", "json"}
    assert {key for vector in ALL for key in vector.lines} <= known
