"""Additions to a conversation: panels with the words around them, and the times of prompts.

The file begins with the words, which are read from ``prompts/panels.md``, and with the messages that show a panel: a
call of the tool ``dynamic_panel`` and its result. The tool's declaration and the answer to a call that the model makes
itself belong to them.

Then the panels are put into the conversation, in one of two orders. In the original order, all panels stand in front of
the conversation, and panels that changed last stand behind the others. In the chronological order, each panel stands
where the conversation stood when the panel last changed. So a later change never rewrites the panel or anything in
front of it. At the end, the result is fitted to what an upstream requires.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate, chain, groupby, starmap
from math import log

from msgspec import Raw

from proxy.context import Turn, message, pair
from proxy.context.blocks import Assembly, Block, Item, Kind, Section
from proxy.context.panels import CONVERSATION, FRONT, Panel, change_rate, outside
from proxy.context.panels.board import Board
from proxy.kit.digest import digest
from proxy.kit.value import dataclass, field, replace
from proxy.planner.layout.tiers import Tier
from proxy.protocol.response.panel_answer import PANEL_TOOL
from proxy.protocol.wire.json_body import Unreadable, elements, members_of, text_json, text_value, utf8

ISO_TIME = "{iso_time}"
SYSTEM = "{system}"
"""Placeholders of the texts: for a time, and for the client's system prompt."""

# The beginning of 2020, in UTC. A clock that shows an earlier time was never set.
_FIRST_KNOWN_S = 1_577_836_800.0
# The beginning of the year 10000, which cannot be written in this form.
_LAST_KNOWN_S = 253_402_300_800.0


@dataclass(frozen=True, slots=True)
class PanelTexts:
    """The texts, without blank lines around them. ``timestamp`` and ``datetime`` hold ``{iso_time}``, ``repeat`` holds
    ``{system}``. ``ok`` is the text of the message that is added if an upstream requires a message of the other
    role."""

    header: str
    timestamp: str
    unknown_timestamp: str
    footer: str
    footer_ack: str
    datetime: str
    repeat: str
    repeat_ack: str
    ok: str

    def generated(self, stamp_s: float) -> str:
        """The words for the time at which a panel has changed, in seconds since 1970."""
        known = iso_time(stamp_s)
        return self.timestamp.replace(ISO_TIME, known) if known else self.unknown_timestamp

    def current(self, time_s: float) -> str:
        """The words for the time at which a prompt was first sent, in seconds since 1970; empty for a time that is not
        known."""
        known = iso_time(time_s)
        return self.datetime.replace(ISO_TIME, known) if known else ""


def iso_time(time_s: float) -> str:
    """A time in UTC, down to the second: ``2026-02-19T14:00:00Z``. Empty for a time that no clock shows that was
    set."""
    is_known = _FIRST_KNOWN_S <= time_s < _LAST_KNOWN_S
    return f"{datetime.fromtimestamp(int(time_s), UTC):%Y-%m-%dT%H:%M:%SZ}" if is_known else ""


FOOTER = "footer"
MOST_ID_CHARS = 40
"""OpenAI refuses longer ids of calls (https://github.com/vercel/ai/issues/5171)."""
_DIGEST_CHARS = 16
_PLAIN_CHARS = 9
_CALL_ID = re.compile(rb'("id"|"tool_call_id"):"([A-Za-z0-9_-]+)"')


def panel_text(panel: Panel) -> str:
    """The text of a panel for the model: a line with its id and its header, and its content."""
    return f"======= [{panel.id}] {panel.header} =======\n{panel.content}"


def call_id(panel_id: str) -> str:
    """The id of the call that shows a panel. The id for a long name is shortened, and ends in the name's digest."""
    named = f"panel_{panel_id}"
    if len(named) <= MOST_ID_CHARS:
        return named
    return f"{named[: MOST_ID_CHARS - _DIGEST_CHARS - 1]}_{digest(utf8(panel_id)).hex()[:_DIGEST_CHARS]}"


def with_plain_ids(messages: Iterable[bytes]) -> tuple[bytes, ...]:
    """The messages of pairs with ids of nine letters and digits, which are made from their present ids."""
    # The first match is the id of the call or of the result: quotes within texts are escaped.
    return tuple([_CALL_ID.sub(_plain_id, message, count=1) for message in messages])


def _plain_id(found: re.Match[bytes]) -> bytes:
    return found[1] + b':"' + digest(found[2]).hex()[:_PLAIN_CHARS].encode() + b'"'


def panel_pair(panel_id: str, words: str, text: str) -> tuple[bytes, bytes]:
    """The call for a panel, with these words as its content, and its result. The call for the footer ends the display
    of panels."""
    name = text_json(call_id(panel_id))
    arguments = '{"action":"end_panels"}' if panel_id == FOOTER else f'{{"id":{text_json(panel_id).decode()}}}'
    call = (
        b'{"role":"assistant","content":' + text_json(words) + b',"tool_calls":[{"id":' + name
        + b',"type":"function","function":{"name":"' + PANEL_TOOL.encode() + b'","arguments":'
        + text_json(arguments) + b"}}]}"
    )  # fmt: skip
    return call, b'{"role":"tool","tool_call_id":' + name + b',"content":' + text_json(text) + b"}"


DECLARATION = (
    b'{"type":"function","function":{"name":"'
    + PANEL_TOOL.encode()
    + b'","description":"Shows a panel: a part of the context'
    b" that changes on its own, as it is now. Panels are shown without being asked for, whenever they have changed, so"
    b' that there is no need to call this tool.","parameters":{"type":"object","properties":{"id":{"type":"string",'
    b'"description":"The id of the panel."},"action":{"type":"string","enum":["end_panels"],"description":"Ends the'
    b' display of panels."}}}}}'
)
"""The tool as an element of ``tools``. It is the same in every request, so that it never breaks the cache."""

UNKNOWN = "There is no panel with this id."
EMPTY = "This panel is empty at present."


def panel_answer(panels: Iterable[Panel], panel_id: str) -> str:
    """The result of a call for the panel: the text that the conversation shows for it, as it is now. If no panel has
    this id, or if the panel has no content, the result is a fixed sentence that repeats nothing from the call."""
    for panel in panels:
        if panel.id == panel_id and panel.id != CONVERSATION:
            return panel_text(panel) if panel.is_shown else EMPTY
    return UNKNOWN


def with_declaration(tools: Raw | bytes | None) -> bytes | None:
    """The request's tools with the declaration in front of them; None if they are not an array, and therefore stay as
    they are."""
    raw = b"null" if tools is None else bytes(tools).strip()
    if raw != b"null" and not raw.startswith(b"["):
        return None
    own = b"" if raw == b"null" else raw[1:-1]
    return b"[" + DECLARATION + (b"," + own if own.strip() else b"") + b"]"


def names_tool(tools: Raw | bytes | None) -> bool:
    """Whether one of the client's own tools has this name, however it is escaped. Tools that cannot be read count as
    not having it."""
    with suppress(Unreadable):
        return tools is not None and any(PANEL_TOOL in _names(tool) for tool in elements(tools))
    return False


def _names(tool: Raw) -> list[object]:
    """The names in a tool's definition. The name stands in the definition itself, or in the member that is named after
    the tool's type."""
    try:
        members = members_of(tool)
        holders = [members, *(members_of(members[kind]) for kind in ("function", "custom") if kind in members)]
        return [text_value(holder["name"]) for holder in holders if "name" in holder]
    except Unreadable:
        return []


PANEL, DATETIME, REPEAT = "panel:", "datetime:", "repeat"
"""The prefixes of the items' keys: ``panel:todo``, ``datetime:12`` for the message of this index, and ``repeat``."""
NAME = "panels"
"""The name of every block of an inlay."""
_MOST_CHANGE = 0.95


@dataclass(frozen=True, slots=True)
class Inlay:
    """``front`` stands in front of the conversation, behind all other context. ``within`` has, by the index of a
    message, the blocks that stand directly in front of that message. Indices are those of the conversation as it is
    sent (history and prompt, counted together); an index equal to its length means behind the last message. ``order``
    has the shown panels in sending order."""

    front: tuple[Block, ...] = ()
    within: Mapping[int, tuple[Block, ...]] = field(default_factory=dict)
    order: tuple[Panel, ...] = ()


NO_INLAY = Inlay()
"""Nothing is put into the conversation."""


def inlay_of(
    panels: Sequence[Panel],
    board: Board,
    turns: Sequence[Turn],
    origins: Sequence[int],
    texts: PanelTexts,
    repeat: str = "",
    *,
    is_chronological: bool,
) -> Inlay:
    """The panels in one of the two orders: each at the place that the ``board`` has for it, or all in front of the
    conversation, sorted by when they last changed. Panels that changed at the same time stand in the client's order.
    ``turns`` is the conversation as it is sent (history and prompt). ``origins`` has, for each of its messages, its
    index in the client's own conversation, or -1 for a message that the client did not send. ``repeat`` is the system
    prompt if it should be repeated behind the panels, else empty."""

    def key(panel: Panel) -> tuple[float, float]:
        memory = board.memory(panel)
        return memory.position if is_chronological else (FRONT, memory.stamp_s)

    order = sorted([panel for panel in panels if panel.is_shown], key=key)
    # A message that the client did not send belongs to the message in front of it.
    reached, free = list(accumulate(origins, max)), outside(turns)

    def run_of(panel: Panel) -> tuple[int, float]:
        memory = board.memory(panel)
        place = memory.place if is_chronological else None
        return (FRONT, 0.0) if place is None else (free[bisect_left(reached, place.index)], memory.placed_s)

    # Within the conversation, only panels that came there in the same request form one run. So the footer stays where
    # it is when another panel is put behind them later.
    blocks: dict[int, list[Block]] = {}
    for (at, _), run in groupby(order, run_of):
        is_first = not blocks
        blocks.setdefault(at, []).append(_panels_block(run, board, texts, is_first=is_first))
        # No user message stands in a tool loop, or where the model's answer to it would end the request.
        has_talk_behind = at == FRONT or (at < len(turns) and not (at and turns[at - 1].has_results))
        if is_first and repeat and has_talk_behind:
            blocks[at].append(_words_block(REPEAT, texts.repeat.replace(SYSTEM, repeat), texts.repeat_ack))
    for index, (_, time_s) in board.prompts.items():
        words, at = texts.current(time_s), bisect_left(reached, index)
        if words and at < len(origins) and origins[at] == index:
            blocks.setdefault(at, []).append(_words_block(f"{DATETIME}{index}", words))
    front = tuple(blocks.pop(FRONT, ()))
    return Inlay(front, {at: tuple(blocks[at]) for at in sorted(blocks)}, tuple(order))


def _panels_block(run: Iterable[Panel], board: Board, texts: PanelTexts, *, is_first: bool) -> Block:
    """A run of consecutive panels. The first run of a request stands between the header and the footer."""
    shown = [(panel.id, texts.generated(board.memory(panel).stamp_s), panel_text(panel)) for panel in run]
    if is_first:
        id_, words, text = shown[0]
        shown[0] = id_, f"{texts.header}\n\n{words}", text
        shown.append((FOOTER, texts.footer, texts.footer_ack))
    items = tuple(Item(Kind.PANELS, PANEL + id_, text) for id_, _, text in shown)
    section = Section(Kind.PANELS, items, header="".join([words for _, words, _ in shown]))
    return Block(Tier.ACTIVE, NAME, (section,), tuple(chain.from_iterable(starmap(panel_pair, shown))))


def _words_block(key: str, text: str, answer: str | None = None) -> Block:
    """A text as a user's message, and the assistant's answer, if there is one."""
    section = Section(Kind.PANELS, (Item(Kind.PANELS, key, text),), ok=answer or "")
    return Block(Tier.ACTIVE, NAME, (section,), (message("user", text),) if answer is None else pair(text, answer))


FILLER = "filler"
"""The name of the blocks that are added, and the key of their items."""


@dataclass(frozen=True, slots=True)
class Wants:
    """Requirements of an upstream: a conversation that ``begins_with_user``; an assistant message between a tool result
    and a user message (``answers_results``); call ids that consist of nine letters and digits (``plain_ids``)."""

    begins_with_user: bool = False
    answers_results: bool = False
    plain_ids: bool = False

    def __bool__(self) -> bool:
        return self.begins_with_user or self.answers_results or self.plain_ids


def fitted(inlay: Inlay, turns: Sequence[Turn], wants: Wants, ok: str) -> Inlay:
    """The inlay of a conversation of these messages, changed to what the upstream requires. ``ok`` is the text of added
    messages. If nothing is required, the inlay is returned as it is."""
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
    """The role of the first message of a block of an inlay: panels begin with a call, and all other blocks are user
    messages."""
    return "assistant" if block.sections[0].items[0].key.startswith(PANEL) else "user"


def _filler(role: str, ok: str) -> Block:
    return Block(Tier.ACTIVE, FILLER, (Section(Kind.PANELS, (Item(Kind.PANELS, FILLER, ok),)),), (message(role, ok),))


def moving(assembly: Assembly, board: Board, panels: Iterable[Panel]) -> dict[int, float]:
    """For each message that shows a panel, and for those around the panels, by the message's index in the request: -ln
    of the probability that it stands there in the next request as well, as far as the message itself decides that. A
    panel's result goes with its call; the footer and the times of prompts stay."""
    known = {PANEL + panel.id: panel for panel in panels}
    found: dict[int, float] = {}
    for index, item in assembly.shown(NAME):
        panel = known.pop(item.key, None)  # the call comes before its result
        found[index] = 0.0
        if panel is not None:
            memory = board.memory(panel)
            rate = 1.0 if panel.id in board.tail else change_rate(panel, memory, memory.taken)
            found[index] = -log(1.0 - min(rate, _MOST_CHANGE))
    return found
