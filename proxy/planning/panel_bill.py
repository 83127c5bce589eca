"""What the panels of one request cost, and what a person wants to know of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.core.digest import digest
from proxy.core.money.prices import Price
from proxy.core.request.tokens import TokenCounter
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.panels.board import Board
from proxy.core.structured.panels.costs import EmittedPanel
from proxy.core.structured.panels.pairs import panel_text
from proxy.core.structured.panels.panel import Panel
from proxy.core.structured.panels.texts import is_known, iso_time
from proxy.core.wire.surrogates import printable, utf8

_MILLION = 1_000_000


def panel_tokens(panel: Panel, counter: TokenCounter) -> int:
    """The tokens of what the model reads of a panel."""
    text = panel_text(panel)
    return counter.count(digest(b"panel", utf8(text)), text)


@dataclass(frozen=True, slots=True)
class PanelBill:
    """``order`` are the panels in sending order, ``tokens`` theirs by id, ``shown`` is the board that they were placed
    by, and ``price`` the model's price in USD per token; None: nobody knows it, and nothing is charged."""

    order: tuple[Panel, ...]
    tokens: Mapping[str, int]
    shown: Board
    price: Price | None

    @classmethod
    def of(cls, chat: AssembledChat, price: Price | None) -> "PanelBill | None":
        """The bill of a request; None where no panel is shown."""
        board = chat.dialogue.board
        return cls(chat.order, chat.reading.panel_tokens, board, price) if board is not None and chat.order else None

    def charged(self, board: Board) -> Board:
        """The session's board after the request has counted: a panel that is not read from the cache is written."""
        emitted = [
            EmittedPanel(panel.id, self.shown.memory(panel).digest, self.tokens.get(panel.id, 0))
            for panel in self.order
        ]
        if self.price is None:
            return board.charged(emitted, 0.0, 0.0)
        return board.charged(emitted, self.price.read * _MILLION, self.price.write_5m * _MILLION)

    def value(self) -> Sequence[dict[str, object]]:
        """What the request would add, panel by panel, as a value for JSON. ``place`` is the index of the client's
        message, without system messages, that a panel stands in front of; None: it stands in front of all."""
        costs = self.charged(self.shown).costs.last
        unknown = {"cost_usd": None, "total_usd": None} if self.price is None else {}
        return [cost.value() | unknown | self._standing(panel) for panel, cost in zip(self.order, costs, strict=True)]

    def _standing(self, panel: Panel) -> dict[str, object]:
        memory = self.shown.memory(panel)
        return {
            "kind": printable(panel.kind),
            "header": printable(panel.header),
            "changed_at": iso_time(memory.stamp_s) if is_known(memory.stamp_s) else None,
            "place": None if memory.place is None else memory.place.index,
            "requests": memory.seen,
            "changes": memory.changes,
        }
