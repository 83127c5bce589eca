"""Makes an inlay one that an upstream takes: some refuse orders of messages, or ids, that others take.

What is added is constant, so that it never breaks a cache: a short word of the user's or of the assistant's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core.layout.tiers import Tier
from proxy.core.structured.blocks.blocks import Block, Item, Kind, Section
from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.messages.written import message
from proxy.core.structured.panels.inlay import PANEL, Inlay
from proxy.core.structured.panels.pairs import with_plain_ids

FILLER = "filler"
"""The name of the blocks that are added, and the key of their items."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What an upstream wants of the messages: a conversation that ``begins_with_user``; a word of the assistant's
    between the result of a tool and a message of the user's (``answers_results``); ids of calls that consist of nine
    letters and digits (``plain_ids``)."""

    begins_with_user: bool = False
    answers_results: bool = False
    plain_ids: bool = False

    def __bool__(self) -> bool:
        return self.begins_with_user or self.answers_results or self.plain_ids


def fitted(inlay: Inlay, turns: Sequence[Turn], wants: Wants, ok: str) -> Inlay:
    """The inlay of a conversation of these messages as the upstream wants it; ``ok`` is the word that is added. It is
    the same again wherever nothing is wanted."""
    if not wants:
        return inlay
    roles = [turn.role for turn in turns] + [""]
    starts = {at: _role(blocks[0]) for at, blocks in inlay.within.items()}
    within = {at: tuple(_fitted(blocks, roles[at], wants, ok)) for at, blocks in inlay.within.items()}
    front = tuple(_fitted(inlay.front, starts.get(0, roles[0]), wants, ok))
    if front and wants.begins_with_user:
        front = (_filler("user", ok), *front)
    return replace(inlay, front=front, within=within)


def _fitted(blocks: Sequence[Block], role_behind: str, wants: Wants, ok: str) -> Iterator[Block]:
    """``role_behind`` is the role of the message that follows the blocks."""
    behind = [*(_role(block) for block in blocks[1:]), role_behind]
    for block, role in zip(blocks, behind, strict=False):
        shows_panels = _role(block) == "assistant"
        yield replace(block, messages=with_plain_ids(block.messages)) if wants.plain_ids and shows_panels else block
        if wants.answers_results and shows_panels and role == "user":
            yield _filler("assistant", ok)


def _role(block: Block) -> str:
    """The role of the first message of a block of an inlay: panels begin with a call, all else is said by the user."""
    return "assistant" if block.sections[0].items[0].key.startswith(PANEL) else "user"


def _filler(role: str, ok: str) -> Block:
    return Block(Tier.ACTIVE, FILLER, (Section(Kind.PANELS, (Item(Kind.PANELS, FILLER, ok),)),), (message(role, ok),))
