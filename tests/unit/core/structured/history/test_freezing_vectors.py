"""Vectors of the originals of freezing: which messages become chunks, and how a chunk reads.

``freezing.vectors`` says how to read them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from proxy.core.reasons import Edit
from proxy.core.structured.history.freezing import frozen
from proxy.core.structured.history.rules import DetachTerms, MessageMeta, Status, ruled
from proxy.core.structured.messages import Conversation
from tests.examples import for_every
from tests.turn_notation import message, tokens_of, words, written

TERMS = {"first": "25/5000/25/7500", "later": "10/5000/5/2000"}


@dataclass(frozen=True, slots=True)
class Vector:
    says: str
    lines: dict[str, str]


def read(paragraph: str) -> Vector:
    says, *lines = paragraph.splitlines()
    parts = {name: rest.strip() for name, _, rest in (line.partition(" ") for line in lines)}
    assert parts.keys() <= {"given", "tokens", "metas", "terms", "chunks", "live", "text", "instead"}, paragraph
    assert len(parts) == len(lines), paragraph
    return Vector(says, parts)


PARAGRAPHS = Path(__file__).with_name("freezing.vectors").read_text().strip().split("\n\n")
VECTORS = [read(paragraph) for paragraph in PARAGRAPHS if not paragraph.startswith("#")]


def meta(word: str) -> tuple[int, MessageMeta]:
    index, _, rest = word.partition("=")
    status, _, tl_dr = rest.partition(":")
    return int(index), MessageMeta(Status(status), tl_dr)


@for_every(VECTORS)
def test_which_messages_are_frozen_and_how_they_read(vector: Vector) -> None:
    given = words(vector.lines["given"])
    weights = {written(message(word)): tokens_of(word, int(vector.lines.get("tokens", "1"))) for word in given}
    terms = vector.lines["terms"]
    whole = ruled(
        Conversation.of([written(message(word)) for word in given]),
        dict(map(meta, vector.lines.get("metas", "").split())),
    )

    found, chunks = frozen(
        whole, DetachTerms(*map(int, TERMS.get(terms, terms).split("/"))), lambda turn: weights.get(turn.raw, 1)
    )

    live = [json.loads(turn.raw) for turn in found.conversation]
    counts = list(map(int, vector.lines.get("chunks", "").split()))
    expected = vector.lines["live"]
    if expected.isdigit():
        assert len(live) == int(expected)
    else:
        assert live == [message(word) for word in words(expected)]
    assert [chunk.header for chunk in chunks] == [f"Chat ({count})" for count in counts]
    assert found.edits.get(Edit.HISTORY_FROZEN, 0) == sum(counts)
    if "text" in vector.lines:
        assert chunks[0].content.replace("\n", "/") == vector.lines["text"]


def test_each_vector_says_whose_rule_it_is_and_stands_once() -> None:
    assert all(re.match(r"(first|later|both|profile): ", vector.says) for vector in VECTORS)
    assert len({vector.says for vector in VECTORS}) == len(VECTORS)


def test_the_minimums_of_a_client_that_says_nothing_are_the_first_ones() -> None:
    assert DetachTerms() == DetachTerms(*map(int, TERMS["first"].split("/")))
