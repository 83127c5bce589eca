"""A check that the messages of a conversation have arrived, in their order."""

from collections.abc import Iterator, Sequence


def in_order(wanted: Sequence[object], said: Sequence[object]) -> Iterator[str]:
    """The first message of a conversation that is not among those that arrived, behind the ones in front of it."""
    at = 0
    for number, one in enumerate(wanted, 1):
        if one not in said[at:]:
            yield f"message {number} of the conversation is missing, or out of order"
            return
        at = said.index(one, at) + 1
