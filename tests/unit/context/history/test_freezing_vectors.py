"""Vectors of the originals of freezing: which messages become chunks, and how a chunk reads.

``freezing.vectors`` says how to read them.
"""

import json
from pathlib import Path

from proxy.context import Conversation
from proxy.context.history import DetachTerms, frozen, ruled
from proxy.kit.modes import Edit
from tests.examples import for_every
from tests.turn_notation import message, metas_of, tokens_of, words, written
from tests.vectors import Vector, read_vectors

TERMS = {"first": "25/5000/25/7500", "later": "10/5000/5/2000"}


VECTORS = read_vectors(
    Path(__file__).with_name("freezing.vectors"),
    "given tokens metas terms chunks live text",
    "first later both profile",
)


@for_every(VECTORS)
def test_which_messages_are_frozen_and_how_they_read(vector: Vector) -> None:
    given = words(vector.one("given"))
    weights = {written(message(word)): tokens_of(word, int(vector.one("tokens", "1"))) for word in given}
    terms = vector.one("terms")
    whole = ruled(Conversation.of([written(message(word)) for word in given]), metas_of(vector))

    found, chunks = frozen(
        whole, DetachTerms(*map(int, TERMS.get(terms, terms).split("/"))), lambda turn: weights.get(turn.raw, 1)
    )

    live = [json.loads(turn.raw) for turn in found.conversation]
    counts = list(map(int, vector.one("chunks").split()))
    expected = vector.one("live")
    if expected.isdigit():
        assert len(live) == int(expected)
    else:
        assert live == [message(word) for word in words(expected)]
    assert [chunk.header for chunk in chunks] == [f"Chat ({count})" for count in counts]
    assert found.edits.get(Edit.HISTORY_FROZEN, 0) == sum(counts)
    for text in vector.all("text"):
        assert chunks[0].content.replace("\n", "/") == text


def test_the_minimums_of_a_client_that_says_nothing_are_the_first_ones() -> None:
    assert DetachTerms() == DetachTerms(*map(int, TERMS["first"].split("/")))
