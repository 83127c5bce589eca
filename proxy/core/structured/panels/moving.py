"""Which messages of a request are the proxy's own, and how likely each of them stands at its place next time."""

from collections.abc import Iterable
from math import log

from proxy.core.structured.blocks.blocks import Block
from proxy.core.structured.panels.board import Board
from proxy.core.structured.panels.inlay import DATETIME, NAME, PANEL
from proxy.core.structured.panels.panel import Panel
from proxy.core.structured.panels.placing import leaving_rate

_MOST_CHANGE = 0.95


def moving(blocks: Iterable[Block], board: Board, panels: Iterable[Panel]) -> dict[int, float]:
    """For each message that shows a panel, and for those around the panels, by its index in the request: -ln P(it
    stands there in the next request as well), as far as the message itself decides that. A panel's result goes with its
    call; the footer and the times of prompts stay."""
    known = {PANEL + panel.id: panel for panel in panels}
    found: dict[int, float] = {}
    at = 0
    for block in blocks:
        if block.name == NAME:
            index = at
            for item in (item for section in block.sections for item in section.items):
                panel = known.get(item.key)
                found[index] = 0.0 if panel is None else _hazard(panel, board)
                index += 1
                if not item.key.startswith(DATETIME):
                    found[index] = 0.0
                    index += 1
        at += len(block.messages)
    return found


def _hazard(panel: Panel, board: Board) -> float:
    rate = 1.0 if panel.id in board.tail else leaving_rate(panel, board.memory(panel))
    return -log(1.0 - min(rate, _MOST_CHANGE))
