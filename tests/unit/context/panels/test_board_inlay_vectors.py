"""The vectors of ``panels.vectors``, read and held."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from proxy.context import Conversation
from proxy.context.panels import Panel, Progress
from proxy.context.panels.board import Board, Inlay, inlay_of, refreshed
from tests.examples import for_every
from tests.panels import SHORT_S, START_S, TEXTS, SentTurns, message, notation, unchanged, wire
from tests.talk import user
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(
    Path(__file__).with_name("panels.vectors"),
    "sent origins kind repeat original chronological json",
    "original ours",
)
MADE = orjson.dumps(user("x"))


def time_of(word: str) -> float:
    return float(word) + (START_S if 0 < int(word) < SHORT_S else 0)


@dataclass(frozen=True)
class Sent:
    """What the last request of a vector sends."""

    inlays: Mapping[str, Inlay]
    turns: SentTurns


def play(vector: Vector) -> Sent:
    kinds = dict(word.split("=") for word in vector.one("kind").split())
    board, conversation = Board(), Conversation()
    panels: tuple[Panel, ...] = ()
    for line in vector.all("sent"):
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
    if origins := [int(word) for word in vector.one("origins").split()]:
        made = Conversation.of([MADE]).prompt[0]
        sent = SentTurns([made if i < 0 else turns[i] for i in origins], origins)
    repeat = vector.one("repeat")
    inlays = {
        name: inlay_of(panels, board, *sent, TEXTS, repeat, is_chronological=is_chronological)
        for name, is_chronological in (("original", False), ("chronological", True))
    }
    return Sent(inlays, sent)


def of(*names: str) -> list[Vector]:
    return [vector for vector in VECTORS if any(map(vector.all, names))]


@for_every(of("original", "chronological"))
def test_what_is_sent_is_what_the_vector_says(vector: Vector) -> None:
    sent = play(vector)
    for order, inlay in sent.inlays.items():
        if expected := vector.all(order):
            assert notation(wire(inlay, sent.turns)) == " ".join(" ".join(expected).split())


@pytest.mark.parametrize("vector", of("json"), ids=lambda v: v.says)
def test_what_is_sent_is_the_vector_byte_for_byte(vector: Vector) -> None:
    sent = play(vector)
    assert [m.decode() for m in wire(sent.inlays["original"], sent.turns, has_talk=False)] == vector.all("json")


def test_there_are_enough_vectors() -> None:
    assert len(VECTORS) >= 40
