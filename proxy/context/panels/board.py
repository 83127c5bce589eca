"""The memory of a session's panels: what they showed last, since when, and where they stand.

A board is an immutable value. Each request makes a new board from the one before (``refreshed``): it finds the old
places in the conversation as it is now, and decides which panels leave theirs. The caller keeps the new board as soon
as the request is assembled.

Some panels have no place of their own. They stand in the tail, last in every request, where their changes break
nothing. A panel at a place is read from the cache, and everything behind it is written anew when it changes. A panel in
the tail is sent anew with every request, and so is everything behind the tail, but its changes cost nothing. The sizes,
the rates of change and the prices decide which is cheaper (``in_tail``).

Once the request has counted, its panels have a cost (``counted``), by the rule of the original: panels are read from
the cache as far as the list of panels has the same beginning as the list of the request before. It is an estimate by
which people compare panels. It ignores how long caches live, and does not count messages. The real cost of a request is
what the provider reports.

At the end, the panels of a board are put into the conversation, with the words around them and the times of prompts, in
one of two orders. In the original order, all panels stand in front of the conversation, and panels that changed last
stand behind the others. In the chronological order, each panel stands where the conversation stood when the panel last
changed. So a later change never rewrites the panel or anything in front of it. The result is fitted to what an upstream
requires.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, chain, groupby, starmap, takewhile
from math import inf, log, nextafter
from sys import getsizeof

from msgspec import Struct, structs

from proxy.context import Turn, pair
from proxy.context.blocks import Assembly, Block, ContextItem, ContextSection, ItemKind
from proxy.context.panels import (
    EVERYTHING,
    FOOTER,
    FRONT,
    LEAST_CHANGE,
    SYSTEM,
    UNKNOWN_LIFE_S,
    CacheTerms,
    Count,
    Panel,
    PanelId,
    PanelMemory,
    PanelPlace,
    PanelTexts,
    Progress,
    Usd,
    change_rate,
    first_broken,
    outside,
    panel_pair,
    panel_text,
    put,
    size_of,
    taken_along,
    turn_size,
    with_plain_ids,
)
from proxy.kit.value import dataclass, field, replace
from proxy.kit.value import digest as digest_of
from proxy.planner.tiers import Tier
from proxy.protocol.request.message import message_json

MOST_GONE = 500
"""At most this many totals are kept for panels that a session no longer shows."""
_COST_BYTES = 150


class PanelCost(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One panel of the last counted request: its tokens, whether it was a hit, its cost in that request, and its total
    cost since the session began, in USD."""

    id: PanelId
    tokens: Count
    is_hit: bool
    cost_usd: Usd
    total_usd: Usd


@dataclass(frozen=True, slots=True)
class PanelCosts:
    """The panel costs of a session. ``entries`` are the panels of the last counted request in sending order, and
    ``last`` are their costs. ``totals`` are the running totals in USD by panel id; the panels that were counted last
    stand behind the others."""

    entries: tuple[str, ...] = ()
    last: tuple[PanelCost, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """An estimate of its size in memory."""
        texts = sum(map(getsizeof, self.entries)) + sum(map(getsizeof, self.totals))
        return texts + _COST_BYTES * (len(self.entries) + len(self.last) + len(self.totals))


MOST_PROMPTS = 4_096
"""The times of at most this many prompts are kept. If there are more, only the newer half stays, so that this seldom
happens: a prompt whose time is forgotten is sent without it, which rewrites everything behind the prompt."""
_SLOT_BYTES = 300
_TURN_MESSAGES = 2


@dataclass(frozen=True, slots=True)
class Board:
    """``panels`` are by id. ``prompts`` has, by the index of the user message, the digest of the message and the time
    when it was first sent, in seconds since 1970. ``is_begun``: the session has had a request; ``last_s`` is the time
    of the last one. ``costs`` are those of all requests that have counted. The panels in the ``tail`` stand last in
    each request; the tail is determined anew for each request."""

    panels: Mapping[str, PanelMemory] = field(default_factory=dict)
    prompts: Mapping[int, tuple[bytes, float]] = field(default_factory=dict)
    is_begun: bool = False
    last_s: float = 0.0
    costs: PanelCosts = PanelCosts()
    tail: frozenset[str] = frozenset()

    @property
    def size_bytes(self) -> int:
        """An estimate of its size in memory."""
        names = sum(map(getsizeof, self.panels))
        return names + _SLOT_BYTES * (len(self.panels) + len(self.prompts)) + self.costs.size_bytes

    def memory(self, panel: Panel) -> PanelMemory:
        """The memory of the panel. A panel that the board has never seen counts as standing in front of the
        conversation since an unknown time."""
        return self.panels.get(panel.id) or PanelMemory(panel.id, b"", 0.0)


def refreshed(
    board: Board, panels: Sequence[Panel], progress: Progress, now_s: float, terms: CacheTerms | None = None
) -> Board:
    """The board of a request, made from the board of the request before, at the time ``now_s`` in seconds since 1970.

    A panel with new content gets this time; a panel with equal content keeps its time. In the session's first request
    all panels stand in front of the conversation, as frozen parts of the conversation always do. Later, a panel moves
    to the place where the conversation stands now if it has changed, stands behind the first change, or has lost its
    place. Panels that are not shown are forgotten.

    The new time is later than every time at which a panel has changed or moved. If the clock has stood still or gone
    backwards, the new time is the next larger number after the last of these times. So nothing is reordered, and no
    panel joins those that came to its place before. In the same way, the board is later than the board before it.
    """
    known = _Whereabouts(progress)
    shown = [panel for panel in panels if panel.is_shown]
    digests = _digests(shown)
    changes = (board.panels[key].changed_s for key in digests if key in board.panels)
    stamp_s = _later(now_s, max(changes, default=-inf))
    old = {key: known.memory(memory) for key, memory in board.panels.items()}
    memories = {
        key: _seen_again(old.get(key), PanelMemory(key, digest, stamp_s), in_loop=not progress.is_prompt_last)
        for key, digest in digests.items()
    }
    is_cold = board.is_begun and now_s - board.last_s > (UNKNOWN_LIFE_S if terms is None else terms.life_s)
    broken = EVERYTHING if is_cold else first_broken(old, digests, (panel for panel in shown if panel.id not in old))
    leaving = _leaving(board, old, shown, digests, broken)
    # If a panel leaves its place only for the tail, everything behind it is written anew, except the newest turn, which
    # is written in any case. A panel leaves only a place behind which the conversation has gone on.
    newest = progress.now_at - _TURN_MESSAGES
    free = {key for key, memory in old.items() if memory.position[0] >= newest or newest <= 0}
    tail = in_tail(shown, memories, progress, terms) & (board.tail | leaving | free)
    leaving |= {key for key in tail & old.keys() if old[key].position[0] < progress.now_at}
    taken: Sequence[str] = ()
    if broken is not None and not is_cold:
        taken = taken_along(old, {panel.id: panel for panel in shown}, leaving, broken, progress.sizes)
    moved = [panel for panel in shown if panel.id in leaving or panel.id in taken]
    memories |= {key: structs.replace(memories[key], taken=memories[key].taken + 1) for key in taken}
    if board.is_begun:
        memories = put(memories, [panel for panel in moved if panel.is_frozen], None, stamp_s)
        here = _place(progress, progress.now_at)
        memories = put(memories, [panel for panel in moved if not panel.is_frozen], here, stamp_s, tail)
    else:
        memories = put(memories, moved, None, stamp_s, tail)
    prompts = known.prompts(board.prompts)
    _remember_prompt(prompts, board, shown, progress, now_s)
    return Board(memories, prompts, is_begun=True, last_s=_later(now_s, board.last_s), costs=board.costs, tail=tail)


def _later(now_s: float, last_s: float) -> float:
    """The time now, or the next larger number after the last time if the clock is not ahead of that: another worker's
    clock may be. Of two boards of a session, workers take the later one."""
    return now_s if now_s > last_s else nextafter(last_s, inf)


def _digests(shown: Iterable[Panel]) -> dict[str, bytes]:
    """The digest of each panel, by its id. The digest of a frozen part of the conversation also covers the frozen parts
    in front of it, so that all frozen parts keep their order."""
    found: dict[str, bytes] = {}
    before = b""
    for panel in shown:
        found[panel.id] = panel.digest
        if panel.is_frozen:
            found[panel.id] = before = digest_of(before, panel.digest) if before else panel.digest
    return found


def _seen_again(before: PanelMemory | None, now: PanelMemory, *, in_loop: bool) -> PanelMemory:
    if before is None:
        return now
    if before.digest == now.digest:
        return structs.replace(before, seen=before.seen + 1)
    return structs.replace(
        before,
        digest=now.digest,
        stamp_s=now.stamp_s,
        seen=before.seen + 1,
        changes=before.changes + 1,
        in_loops=before.in_loops + in_loop,
    )


def _leaving(
    board: Board,
    old: Mapping[str, PanelMemory],
    shown: Iterable[Panel],
    digests: Mapping[str, bytes],
    broken: tuple[float, float] | None,
) -> Set[str]:
    """The ids of the panels that have no place or lose theirs: panels that have changed, and panels behind the
    ``broken`` position. Frozen parts of the conversation stay where they are as long as they are unchanged."""

    def leaves(panel: Panel) -> bool:
        memory = old.get(panel.id)
        if memory is None or memory.digest != digests[panel.id]:
            return True
        is_lost = memory.place is None and board.panels[panel.id].place is not None
        is_behind = broken is not None and memory.position > broken
        return not panel.is_frozen and (is_lost or is_behind)

    return {panel.id for panel in shown if leaves(panel)}


def _remember_prompt(
    prompts: dict[int, tuple[bytes, float]], board: Board, shown: Sequence[Panel], progress: Progress, now_s: float
) -> None:
    """Remember when the prompt was first sent. A prompt that was sent before without a time stays without one, because
    adding it would rewrite everything behind the prompt."""
    at = progress.prompt_at
    is_new = progress.is_prompt_last or not board.is_begun
    if at is None or at in prompts or not is_new or not shown:
        return
    prompts[at] = (progress.digests[at], now_s)
    if len(prompts) > MOST_PROMPTS:
        for index in sorted(prompts)[: -MOST_PROMPTS // 2]:
            del prompts[index]


def _place(progress: Progress, index: int) -> PanelPlace:
    return PanelPlace(index, progress.digests[index - 1] if index else b"")


class _Whereabouts:
    """Finds messages of earlier requests in the conversation as it is now."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._by_digest: dict[bytes, list[int]] | None = None

    def memory(self, memory: PanelMemory) -> PanelMemory:
        """The memory with its place in the present conversation: behind the message that it stood behind before. The
        place is None if there is no such message."""
        place = memory.place
        if place is None or place.index == 0:
            return memory
        before = self._nearest(place.index - 1, place.before)
        at = None if before is None else self._progress.outside[before + 1]
        if at == place.index:
            return memory
        return structs.replace(memory, place=None if at is None else _place(self._progress, at))

    def prompts(self, prompts: Mapping[int, tuple[bytes, float]]) -> dict[int, tuple[bytes, float]]:
        """The times of the prompts that are still there, by their present index, in the order of the conversation. The
        prompt that is sent now counts as asked anew if it stands elsewhere than before. No time stands behind a later
        one.
        """
        found: dict[int, tuple[bytes, float]] = {}
        moved: list[tuple[int, tuple[bytes, float]]] = []
        asked_at = self._progress.prompt_at if self._progress.is_prompt_last else None
        for index, prompt in prompts.items():
            at = self._nearest(index, prompt[0])
            if at == index:
                found[at] = prompt
            elif at is not None and at != asked_at:
                moved.append((at, prompt))
        return _in_order(found, moved) if moved else found

    def _nearest(self, index: int, digest: bytes) -> int | None:
        """The index of the message with this digest that is nearest to ``index``. If two are equally near, it is the
        one in front."""
        digests = self._progress.digests
        if index < len(digests) and digests[index] == digest:
            return index
        if self._by_digest is None:
            self._by_digest = {}
            for at, each in enumerate(digests):
                self._by_digest.setdefault(each, []).append(at)
        places = self._by_digest.get(digest, [])
        behind = bisect_left(places, index)
        return min(places[max(0, behind - 1) : behind + 1], key=lambda at: abs(at - index), default=None)


def _in_order(
    found: Mapping[int, tuple[bytes, float]], moved: Iterable[tuple[int, tuple[bytes, float]]]
) -> dict[int, tuple[bytes, float]]:
    """The prompts that were found at their old index, and those of the moved prompts whose times fit into the ascending
    order."""
    together = dict(found)
    for at, prompt in moved:
        together.setdefault(at, prompt)
    order = sorted(together)
    # No moved prompt may have a later time than any found prompt behind it.
    ahead = accumulate((together[at][1] if at in found else inf for at in reversed(order)), min, initial=inf)
    bounds = dict(zip(reversed(order), ahead, strict=False))
    kept: dict[int, tuple[bytes, float]] = {}
    last_s = -inf
    for at in order:
        if at in found or last_s <= together[at][1] <= bounds[at]:
            kept[at] = together[at]
            last_s = together[at][1]
    return kept


# A conversation is expected to have this many more requests, plus as many again as it has had.
_AHEAD = 20
# At most this many sizes of the tail are compared, so that the time does not grow with the square of the number of
# panels.
_MOST_TRIES = 32


@dataclass(frozen=True, slots=True)
class _Stake:
    """A panel: its size in bytes, and the probability that it changes before the next request."""

    id: str
    size: int
    change: float

    def kept(self, terms: CacheTerms) -> float:
        """The cost of the panel at a place in one request, without the messages behind it."""
        return self.size * (terms.read + self.change * terms.anew)


def in_tail(
    shown: Iterable[Panel], memories: Mapping[str, PanelMemory], progress: Progress, terms: CacheTerms | None
) -> frozenset[str]:
    """The ids of the panels that stand in the tail; none if the prices are not known, or if a tool loop holds the tail
    at its place."""
    if terms is None or terms.anew <= 0.0 or not progress.has_tail:
        return frozenset()
    share = progress.prompt_share
    stakes = [_stake(panel, memories[panel.id], share) for panel in shown if not panel.is_frozen]
    # Small panels that change often go to the tail first.
    stakes.sort(key=lambda each: (each.size - each.kept(terms)) / each.change)
    turn, requests = turn_size(progress.sizes), _AHEAD + max((each.seen for each in memories.values()), default=0)
    # The prompt stands behind the tail. The answer in front of it is sent anew, too, if no cache entry can end with an
    # answer.
    behind = (1.0 - terms.read) * share * (progress.prompt_size if terms.ends_at_answers else turn)

    def cost(count: int) -> float:
        kept, tail = stakes[count:], stakes[:count]
        again = terms.anew * turn * _rewrites([each.change for each in kept], requests)
        sent = behind + sum(each.size for each in tail) if tail else 0.0
        return sent + sum(each.kept(terms) for each in kept) + again

    best = min(range(0, len(stakes) + 1, 1 + len(stakes) // _MOST_TRIES), key=cost)
    return frozenset(each.id for each in stakes[:best])


def _stake(panel: Panel, memory: PanelMemory, prompt_share: float) -> _Stake:
    """In a conversation with tool loops the tail moves with each call. So a panel that changes only with prompts is
    cheaper at a place."""
    change = change_rate(panel, memory)
    if prompt_share < 1.0:
        change = min(change, max(LEAST_CHANGE, memory.in_loops / (memory.seen * (1.0 - prompt_share))))
    return _Stake(panel.id, size_of(panel), change)


def _rewrites(changes: Sequence[float], requests: int) -> float:
    """How often, in all later requests, a message is written anew because a panel in front of it changes. That panel
    then stands behind the message, and so does every panel that stood between the two. The panels that change least
    stand in front. Panels are assumed to change at the same time as far as their rates allow it."""
    found, most, still = 0.0, max(changes, default=1.0), 1.0
    for change in sorted(changes):
        own = change / most
        ever = 1.0 - (1.0 - (1.0 - change) ** requests) / (change * requests)
        found += ever * own * still / (1.0 - (1.0 - own) * still)
        still *= 1.0 - own
    return found


def counted(
    costs: PanelCosts, panels: Sequence[PanelMemory], tokens: Mapping[str, int], hit_usd: float, miss_usd: float
) -> PanelCosts:
    """The costs after a request that was settled. ``panels`` are in sending order, and ``tokens`` are by id. The prices
    are in USD per million tokens: ``hit_usd`` for tokens that are read from the cache, ``miss_usd`` for others. It must
    be called only once for a request: the second time everything would be a hit."""
    # The id is part of an entry, because panels of equal content are not the same panel.
    entries = tuple([f"{panel.id}:{panel.digest.hex()}" for panel in panels])
    hits = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(entries, costs.entries, strict=False)))
    totals = dict(costs.totals)
    last: list[PanelCost] = []
    for index, panel in enumerate(panels):
        size = tokens.get(panel.id, 0)
        cost = size * (hit_usd if index < hits else miss_usd) / 1e6
        totals[panel.id] = totals.pop(panel.id, 0.0) + cost  # the totals of the shown panels stand last
        last.append(PanelCost(panel.id, size, index < hits, cost, totals[panel.id]))
    for gone in list(totals)[: max(0, len(totals) - len({panel.id for panel in panels}) - MOST_GONE)]:
        del totals[gone]
    return PanelCosts(entries, tuple(last), totals)


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
    items = tuple(ContextItem(ItemKind.PANELS, PANEL + id_, text) for id_, _, text in shown)
    section = ContextSection(ItemKind.PANELS, items, header="".join([words for _, words, _ in shown]))
    return Block(Tier.ACTIVE, NAME, (section,), tuple(chain.from_iterable(starmap(panel_pair, shown))))


def _words_block(key: str, text: str, answer: str | None = None) -> Block:
    """A text as a user's message, and the assistant's answer, if there is one."""
    section = ContextSection(ItemKind.PANELS, (ContextItem(ItemKind.PANELS, key, text),), ok=answer or "")
    return Block(Tier.ACTIVE, NAME, (section,), (message_json("user", text),) if answer is None else pair(text, answer))


FILLER = "filler"
"""The name of the blocks that are added, and the key of their items."""


@dataclass(frozen=True, slots=True)
class UpstreamNeeds:
    """Requirements of an upstream: a conversation that ``begins_with_user``; an assistant message between a tool result
    and a user message (``answers_results``); call ids that consist of nine letters and digits (``plain_ids``)."""

    begins_with_user: bool = False
    answers_results: bool = False
    plain_ids: bool = False

    def __bool__(self) -> bool:
        return self.begins_with_user or self.answers_results or self.plain_ids


def fitted(inlay: Inlay, turns: Sequence[Turn], wants: UpstreamNeeds, ok: str) -> Inlay:
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


def _fitted(blocks: Sequence[Block], role_behind: str, wants: UpstreamNeeds, ok: str) -> Iterator[Block]:
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
    return Block(
        Tier.ACTIVE,
        FILLER,
        (ContextSection(ItemKind.PANELS, (ContextItem(ItemKind.PANELS, FILLER, ok),)),),
        (message_json(role, ok),),
    )


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
