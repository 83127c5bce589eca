"""Requests with panels and a described history, each with one valid form of what is sent, made of the same pieces.

A piece of conversation knows what the client sends of it and what must be left of it, so that neither is computed from
the other: what the checker expects is tested by this, too.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from . import live_words as words
from .live_frozen import frozen_text
from .live_history import Message, role_of
from .view import SYSTEM_ROLES

Body = dict[str, Any]
NOW_S = 1_771_509_600.0
"""2026-02-19T14:00:00Z."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of conversation. ``sends`` are the client's messages, ``metas`` what it says of them (by their place in
    it), ``leaves`` the messages that are sent."""

    sends: tuple[Message, ...]
    leaves: tuple[Message, ...]
    metas: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LivePanel:
    """A panel, when it changed last, and in front of which of the sent messages it stands; None: in front of all."""

    id: str
    header: str
    content: str
    stamp_s: float
    place: int | None = None


@dataclass(frozen=True, slots=True)
class LiveChat:
    """One request. ``asked`` are the times of user messages, by their place among the sent messages. ``frozen`` are the
    lengths of the frozen parts; ``compacted`` messages in front of them are left out, for a ``summary`` if there is
    one. ``hidden`` are panels that are not shown."""

    systems: tuple[Message, ...]
    stretches: tuple[Stretch, ...]
    panels: tuple[LivePanel, ...] = ()
    asked: tuple[tuple[int, float], ...] = ()
    frozen: tuple[int, ...] = ()
    compacted: int = 0
    summary: str = ""
    hidden: tuple[Body, ...] = ()
    more: Body = field(default_factory=dict)
    section: Body = field(default_factory=dict)

    @property
    def leaves(self) -> list[Message]:
        """All messages that are left of the conversation by statuses and repairs."""
        return [message for stretch in self.stretches for message in stretch.leaves]

    def original(self) -> Body:
        """The client's body."""
        messages = list(self.systems)
        metas = []
        for stretch in self.stretches:
            for at, status, tl_dr in stretch.metas:
                said = {"tl_dr": tl_dr} if status == "summarized" else {}
                metas.append({"index": len(messages) + at, "status": status, **said})
            messages += stretch.sends
        panels = [
            {"id": panel.id, "content": panel.content, **({"header": panel.header} if panel.header else {})}
            for panel in self.panels
        ]
        described = {"messages_meta": metas} if metas else {}
        section = {"panels": [*panels, *self.hidden], **described, **self.section}
        return copy.deepcopy({"model": "m", "messages": messages, "stratiform": section, **self.more})

    def sent(self) -> Body:
        """What is sent of it. System messages stay, wherever they stand."""
        leaves, summary = self.leaves, summary_pair(self.summary) if self.summary else []
        systems = [at for at in range(self.compacted) if role_of(leaves[at]) in SYSTEM_ROLES]
        numbers = [*systems, *(-1 for _ in summary), *range(self.compacted, len(leaves))]
        rest = [*(leaves[at] for at in systems), *summary, *leaves[self.compacted :]]
        chunks = []
        for number, count in enumerate(self.frozen, 1):
            chosen = [at for at, message in enumerate(rest) if role_of(message) not in SYSTEM_ROLES][:count]
            text = frozen_text([rest[at] for at in chosen])
            assert text is not None
            chunks.append(LivePanel(f"history_{number}", f"Chat ({count})", text, NOW_S))
            rest = [message for at, message in enumerate(rest) if at not in chosen]
            numbers = [number for at, number in enumerate(numbers) if at not in chosen]
        runs: dict[int, list[LivePanel]] = {}
        for panel in sorted((*self.panels, *chunks), key=lambda panel: panel.stamp_s):
            behind = (at for at, number in enumerate(numbers) if panel.place is not None and number >= panel.place)
            runs.setdefault(-1 if panel.place is None else next(behind, len(rest)), []).append(panel)
        times = {numbers.index(at): time_s for at, time_s in self.asked if at in numbers}
        return copy.deepcopy({"model": "m", "messages": [*self.systems, *_put(rest, runs, times)], **self.more})


def _put(live: Sequence[Message], runs: dict[int, list[LivePanel]], times: dict[int, float]) -> Iterable[Message]:
    """The conversation with panels and times in it."""
    is_first = True
    for at in range(-1, len(live) + 1):
        for number, panel in enumerate(runs.get(at, ())):
            yield from panel_pair(panel, is_first=is_first and number == 0)
        if is_first and runs.get(at):
            yield from footer_pair()
            is_first = False
        if at in times:
            yield {"role": "user", "content": words.DATETIME + words.iso(times[at])}
        if 0 <= at < len(live):
            yield live[at]


def panel_pair(panel: LivePanel, *, is_first: bool) -> list[Message]:
    """A panel as it is shown."""
    line = words.stamp_line(panel.stamp_s)
    call_id = words.ID_PREFIX + panel.id
    return [
        words.call_message(
            call_id, words.panel_arguments(panel.id), f"{words.BEGINNING}\n\n{line}" if is_first else line
        ),
        words.result_message(call_id, words.panel_text(panel.id, panel.header, panel.content)),
    ]


def footer_pair() -> list[Message]:
    """The end of the panels."""
    return [
        words.call_message(words.FOOTER_ID, words.FOOTER_ARGUMENTS, words.FOOTER),
        words.result_message(words.FOOTER_ID, words.FOOTER_ANSWER),
    ]


def summary_pair(text: str) -> list[Message]:
    """A summary with its answer."""
    return [
        {"role": "user", "content": f"{words.SUMMARY}\n{text}"},
        {"role": "assistant", "content": words.SUMMARY_ANSWER},
    ]


def places(leaves: Sequence[Message]) -> list[int]:
    """In front of which messages a panel may stand: of a user's up to the last one, and behind results."""
    last = max((at for at, message in enumerate(leaves) if role_of(message) == "user"), default=0)
    found = [at for at in range(1, last + 1) if role_of(leaves[at]) == "user"]
    ends = [at + 1 for at, (one, other) in enumerate(pairwise([*leaves, {}])) if _is_end(one, other)]
    return sorted({*found, *ends})


def _is_end(one: Message, other: Message) -> bool:
    return role_of(one) == "tool" and role_of(other) not in ("tool", "system")


def cuts(leaves: Sequence[Message]) -> list[int]:
    """In front of which messages a part of the conversation may end: users', but for the first message."""
    return [at for at in range(1, len(leaves)) if role_of(leaves[at]) == "user"]


def spoken(leaves: Sequence[Message]) -> list[Message]:
    """All but the system messages."""
    return [message for message in leaves if role_of(message) not in SYSTEM_ROLES]
