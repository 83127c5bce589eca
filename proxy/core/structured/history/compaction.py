"""A compaction: the oldest part of a conversation is left out, and perhaps a summary stands in its place.

It belongs to the messages that it was made of. As long as a conversation begins with exactly these, the same messages
are left out and the same words take their place, so that the prefix stays the same from request to request. Where the
client has rewritten any of them, nothing is left out, and the words reach nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.digest import digest
from proxy.core.reasons import Edit
from proxy.core.structured.history.compaction_texts import CompactionTexts
from proxy.core.structured.history.cuts import cuts
from proxy.core.structured.history.groups import MADE
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.messages.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first ``covered`` messages of the client's conversation are left out, not counting the leading system
    messages. The first ``known`` ones, which are at least as many, the model had read that wrote the ``summary``;
    ``digest`` is that of the known messages, without markers, as the other rules leave them. Where the summary is
    empty, nothing takes the place of the covered messages."""

    covered: int
    known: int
    digest: bytes
    summary: str = ""


def compacted(
    ruled: RuledHistory, compaction: Compaction | None, texts: CompactionTexts, keep_exchanges: int = 2
) -> RuledHistory:
    """The conversation with its oldest part left out; as it is, where it does not begin with the messages that the
    compaction knows, or where fewer user exchanges than ``keep_exchanges`` would stay.

    System messages stay, in front of the summary. The time is that of hashing the known messages.
    """
    if compaction is None or not 0 < compaction.covered <= compaction.known:
        return ruled
    conversation, origins = ruled.conversation, ruled.origins
    turns = conversation.turns
    at = place_of(origins, compaction.covered)
    if at == 0 or digest_of_known(ruled, compaction.known) != compaction.digest:
        return ruled
    places = [cut for cut in cuts(turns) if cut >= at]
    if len(places) < max(1, keep_exchanges) or places[0] != at:
        return ruled
    pair = texts.pair(compaction.summary)
    kept = [index for index in range(at) if turns[index].is_system]
    history = (*(turns[index] for index in kept), *pair, *conversation.history[at:])
    return RuledHistory(
        Conversation(conversation.system, history, conversation.prompt),
        (*(origins[index] for index in kept), *(MADE for _ in pair), *origins[at:]),
        {**ruled.edits, Edit.HISTORY_COMPACTED: at - len(kept)},
    )


def place_of(origins: Sequence[int], count: int) -> int:
    """Where the first message stands that is none of the client's first so many; behind the end where there is none."""
    return next((place for place, origin in enumerate(origins) if origin >= count), len(origins))


def digest_of_known(ruled: RuledHistory, known: int) -> bytes:
    """The digest of the client's first so many messages, without markers, as the rules leave them."""
    return digest(*(turn.bare for turn in ruled.conversation.turns[: place_of(ruled.origins, known)]))
