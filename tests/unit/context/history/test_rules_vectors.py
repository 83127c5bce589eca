"""Vectors of the originals of these rules: what is sent of a conversation, and which rule has changed how much of it.

``rules.vectors`` says how to read them.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proxy.context import Conversation
from proxy.context.history import ruled
from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Edit
from tests.examples import for_every
from tests.turn_notation import message, metas_of, noted, words
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(
    Path(__file__).with_name("rules.vectors"), "given metas sent rules refused", "first later both profile"
)
assert len(VECTORS) >= 45


EDITS = {
    "summarized": Edit.HISTORY_SUMMARIZED, "deleted": Edit.HISTORY_REMOVED, "detached": Edit.HISTORY_REMOVED,
    "empty": Edit.HISTORY_REMOVED, "orphan-call": Edit.HISTORY_REPAIRED, "orphan-result": Edit.HISTORY_REPAIRED,
    "merged": Edit.CALLS_MERGED,
}  # fmt: skip


def edits(rules: str) -> Counter[Edit]:
    """The reasons for what the rules of the originals have changed."""
    found: Counter[Edit] = Counter()
    for rule, count in (word.split() for word in rules.split(", ") if word):
        found[EDITS[rule]] += int(count)
    return found


def shown(found: Conversation) -> list[Any]:
    return [json.loads(turn.raw) for turn in found]


@for_every(VECTORS)
def test_what_is_sent_and_what_each_rule_has_changed(vector: Vector) -> None:
    given = noted(vector.one("given"))
    metas = metas_of(vector)
    if refused := vector.one("refused"):
        with pytest.raises(InvalidRequest, match=rf"the message {refused}\b") as refusal:
            ruled(given, metas)
        assert (refusal.value.param, refusal.value.code) == ("stratiform.messages_meta", "invalid_index")
        return

    found = ruled(given, metas)

    sent = vector.one("sent", vector.one("given"))
    assert shown(found.conversation) == [message(word) for word in words(sent)]
    assert found.edits == edits(vector.one("rules"))
    own = {turn.raw for turn in given}
    same = [turn.raw for turn in found.conversation if json.loads(turn.raw) in shown(given)]
    assert own.issuperset(same)
    assert (found.conversation == given) is (vector.all("sent") == [])
