"""A layout, and the breakpoints that pay in it.

A layout is the request's content in the order in which it would be sent, as a provider's cache counts it. In front of
its positions stand the account, the model, and the members of the request that a provider renders into the prompt.

Breakpoints are placed by dynamic programming over the positions where survival drops, at most ``max_marks`` of them. An
entry is worth the tokens that the next request is expected to read from it. A cache write costs its premium once. Both
are linear in tokens, so the best places solve a small shortest-path problem. Break-even: a written prefix pays if it is
expected to be read more than (w - 1) / ``mark_gain`` times, where ``mark_gain`` is 0.82 * (0.8 * w + 0.2 - r). For a
write at 1.25 this is about (w - 1) / (1 - r).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, islice
from operator import mul, neg, sub
from types import MappingProxyType

import orjson
from msgspec import Struct, structs

from proxy.kit.value import DIGEST_BYTES, chain, dataclass, digest, in_common
from proxy.protocol.caches import Life, PromptPositions
from proxy.protocol.providers import DEFAULTS, CacheProfile, Family
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import SYSTEM_ROLES, Part, PartKind
from proxy.protocol.wire.json_body import Members, members_of, value

NOTICE = "notice"
"""The key of a system message behind the leading ones, if the upstream moves it to the front."""
TURNS = frozenset({"turn", NOTICE})
"""The keys of messages of the conversation as they came."""


@dataclass(frozen=True, slots=True)
class PrefixSettings:
    """The settings that stand in front of the first position. ``scope`` names account and model. ``settings`` is the
    digest of the parameters that a provider renders between the system text and the messages. ``tools`` and ``system``
    are digests of the parameters that it renders in front of the tools and of the system text. ``is_implicit``: the
    provider sets boundaries of its own at the ends of messages. ``marks_answers``: the provider reads a marker on the
    text of an assistant's message."""

    scope: bytes
    settings: bytes
    tools: bytes = b""
    system: bytes = b""
    is_implicit: bool = False
    marks_answers: bool = False


class Layout:
    """Elements in sending order and their positions. ``starts[i]`` is element i's first position. ``markable[p]`` is 1
    if position p may carry a marker, or else 0. ``total`` is the number of tokens.
    """

    __slots__ = (
        "_front", "_unmarked", "about_bytes", "digests", "elements", "ends", "markable", "parts", "seed", "starts",
        "total",
    )  # fmt: skip

    def __init__(self, seed: PrefixSettings, elements: Sequence[Element], base: "Layout | None" = None) -> None:
        """``base`` is a layout that begins with the same elements. The elements that both share are not numbered
        again."""
        self.seed = seed
        self.elements = tuple(elements)
        self.starts: list[int] = []
        self.digests: list[bytes] = []
        self.markable = bytearray()
        self.parts: list[Part] = []
        self.ends: list[int] = []
        self._front: tuple[int, Sequence[bytes], Sequence[int]] = (0, (), ())
        self._unmarked: PromptPositions | None = None
        shared = 0
        if base is not None and base.seed == seed:
            # The positions of the elements in common are taken over.
            shared = in_common(self.elements, base.elements)
            stop = base.starts[shared] if shared < len(base.starts) else len(base.parts)
            self.starts, self.digests = base.starts[:shared], base.digests[:shared]
            self.markable, self.parts, self.ends = base.markable[:stop], base.parts[:stop], base.ends[:stop]
            if (plain := base._unmarked) is not None:
                self._front = shared, plain.hashes[:stop], plain.runs[:stop]
        new = self.elements[shared:]
        self.digests += [e.digest for e in new]
        can_mark = seed.marks_answers
        self.markable += bytes([p.markable and (can_mark or e.role != "assistant") for e in new for p in e.parts])
        starts = accumulate([len(e.parts) for e in new], initial=len(self.parts))
        self.starts += islice(starts, len(new))
        self.parts += [part for e in new for part in e.parts]
        before = self.ends[-1] if self.ends else 0
        ends = accumulate([part.tokens for part in self.parts[len(self.ends) :]], initial=before)
        self.ends += islice(ends, 1, None)
        self.total = self.ends[-1] if self.ends else 0
        self.about_bytes = 2_000 + 300 * len(self.parts)

    def _chained(self) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
        """The hash and the run of each position. To find them takes longer than everything else, so it is only done for
        layouts that are looked up in a cache."""
        seed, (first, front, front_runs) = self.seed, self._front
        hashes, runs = [*front], [*front_runs]
        at_system = next((i for i, e in enumerate(self.elements) if e.kind is not ElementKind.TOOLS), -1)
        at_settings = next((i for i, e in enumerate(self.elements) if is_message(e)), -1)
        running = hashes[-1] if hashes else digest(seed.scope, seed.tools) if seed.tools else seed.scope
        run = runs[-1] if runs else -1
        previous = self.parts[len(hashes) - 1].kind if hashes else PartKind.OTHER
        add_hash, add_run = hashes.append, runs.append
        for index, element in enumerate(self.elements[first:], first):
            if index == at_system and seed.system:
                running = chain(running, seed.system)
            if index == at_settings:
                running = chain(running, seed.settings)
            is_first = True
            for part in element.parts:
                running = sha256(running + part.digest).digest()[:DIGEST_BYTES]
                # A run of calls, or of results, counts as one position for the look-back (providers' own rule).
                kind = part.kind
                if kind is not previous or not (kind is _RESULT or (kind is _CALL and not is_first)):
                    run += 1
                previous, is_first = kind, False
                add_hash(running)
                add_run(run)
        return tuple(hashes), tuple(runs)

    def owner(self, position: int) -> Element:
        """The element that a position belongs to."""
        return self.elements[bisect_right(self.starts, position) - 1]

    def last_position(self, element: int) -> int:
        """The last position of an element. If the element has no position, this is the position in front of it."""
        following = element + 1
        return (self.starts[following] if following < len(self.starts) else len(self.parts)) - 1

    def prompt(self, marks: dict[int, Life]) -> PromptPositions:
        """The layout as a shadow cache reads it, with these markers."""
        plain = self._unmarked
        if plain is None:
            endings, head_end = self._endings() if self.seed.is_implicit else ((), -1)
            hashes, runs = self._chained()
            plain = self._unmarked = PromptPositions(
                self.seed.scope, hashes, tuple(self.ends), runs, {}, endings, head_end
            )
        if not marks:
            return plain
        return PromptPositions(plain.scope, plain.hashes, plain.ends, plain.runs, marks, plain.endings, plain.head_end)

    def _endings(self) -> tuple[tuple[int, ...], int]:
        """The ends of the messages that get a boundary from the provider itself (user messages, and the last tool
        output of a group), and the end of the opening instructions. Without any such message, the end of the
        instructions is the only boundary."""
        found: list[int] = []
        head_end = -1
        for index, element in enumerate(self.elements):
            last = self.last_position(index)
            if element.kind is ElementKind.TOOLS or last < self.starts[index]:
                continue  # a message without content has no last position
            if not is_message(element):
                head_end = last if head_end == self.starts[index] - 1 or head_end < 0 else head_end
            elif element.role == "tool":
                if found and found[-1] == self.starts[index] - 1 and self.parts[found[-1]].kind is _RESULT:
                    found.pop()
                found.append(last)
            elif element.role == "user":
                # A context message stands together with its acknowledgement, and no part of the acknowledgement can
                # carry a marker.
                own = self.markable.rfind(1, self.starts[index], last + 1)
                found.append(own if own >= 0 else last)
        return tuple(found) or tuple(p for p in (head_end,) if p >= 0), head_end

    def own_marks(self) -> dict[int, Life]:
        """The client's markers, as far as a provider may honour them."""
        return {i: part.own_mark for i, part in enumerate(self.parts) if part.own_mark is not None}


_RESULT, _CALL = PartKind.RESULT, PartKind.CALL


def is_message(element: Element) -> bool:
    """Whether an element stands in the conversation, wherever system messages are put."""
    return element.kind is not ElementKind.TOOLS and element.role not in SYSTEM_ROLES


_DEFAULTS: Mapping[str, bytes] = MappingProxyType(
    {name: orjson.dumps(dict(v) if isinstance(v, Mapping) else v) for name, v in DEFAULTS.items()}
)


def seed_of(members: Members, profile: CacheProfile, scope: bytes, *, has_media: bool) -> PrefixSettings:
    """The seed of one request. Members are compared as they are written, so another spelling counts as another
    value."""
    breaking = profile.breaking
    tools, system, settings = (
        [name.encode() + raw for name, raw in given_members(members, names).items()]
        for names in (breaking.before_tools, breaking.before_system, breaking.before_messages)
    )
    return PrefixSettings(
        scope=scope,
        settings=digest(*settings, b"image" if has_media and breaking.images else b""),
        tools=digest(*tools) if tools else b"",
        system=digest(*system) if system else b"",
        is_implicit=profile.implicit_marks > 0 and not _is_told_explicit(members),
        marks_answers=profile.answer_mark,
    )


def slots_of(members: Members, profile: CacheProfile) -> int:
    """How many markers a request may carry besides those that the provider sets itself. The provider sets them at
    boundaries of its own, or on the last block if a marker on the whole request asks for it."""
    if profile.implicit_marks:
        return profile.max_marks if _is_told_explicit(members) else profile.slots
    is_asked_for = bytes(members.get("cache_control", b"null")) != b"null"
    return profile.max_marks - int(is_asked_for and profile.body_mark)


def given_members(members: Members, names: Sequence[str]) -> dict[str, bytes]:
    """The members with these names that a request has, as they are written. Members that only state a default are left
    out."""
    given = ((name, bytes(members[name])) for name in names if name in members)
    return {name: raw for name, raw in given if raw not in (b"null", _DEFAULTS.get(name))}


def _is_told_explicit(members: Members) -> bool:
    """Whether ``prompt_cache_options.mode`` is explicit: the provider then sets no boundary of its own."""
    options = bytes(members.get("prompt_cache_options", b"null"))
    if not options.startswith(b"{"):
        return False
    mode = members_of(options).get("mode")
    return mode is not None and value(mode) == "explicit"


_MAX_STOPS = 16
# Survival must fall by this factor before a place is considered as a candidate. A panel that changes in one of two
# hundred requests is such a place, because the whole conversation may stand behind it.
_DROP = 0.995
# If an expected read fails, the tokens are mostly written again (w), and sometimes left unmarked (1).
_REWRITTEN_SHARE = 0.8
# The best of many places promises more than it delivers (measured: fewer of the least likely entries were read).
_CAUTION = 0.82
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Placement:
    """Chosen positions, ascending, and what they promise: the next request is expected to read ``expected`` tokens.

    ``reached`` is the last position that is cached after this request (-1: none).
    """

    positions: tuple[int, ...]
    expected: float
    reached: int


class _Stop(Struct, frozen=True, order=True, gc=False):
    position: int
    tokens: int
    survival: float
    is_free: bool


def drops(survival: Sequence[float]) -> tuple[int, ...]:
    """The positions, ascending, behind which survival drops, and the last position. Small steps add up: survival is
    compared with its value behind the previous drop."""
    falling, drop = [*map(neg, survival)], -1
    found: list[int] = []
    while drop < len(falling) - 1:
        drop = bisect_right(falling, falling[drop + 1] * _DROP, lo=drop + 2) - 1
        found.append(drop)
    return tuple(found)


def read_gain(profile: CacheProfile) -> float:
    """What reading a token from the cache saves, in input prices."""
    return _REWRITTEN_SHARE * profile.write + (1 - _REWRITTEN_SHARE) - profile.read


def mark_gain(profile: CacheProfile) -> float:
    """What an expected read of a token is worth when markers are placed."""
    return _CAUTION * read_gain(profile)


def place(
    layout: Layout,
    survival: Sequence[float],
    live: Sequence[int],
    profile: CacheProfile,
    slots: int,
    falls: Sequence[int] | None = None,
) -> Placement:
    """The best markers for a layout. ``survival[i]`` is P(the next request comes in time and repeats everything up to
    position i); ``live`` are the positions, ascending, whose entries the provider still holds. ``falls`` are the
    ``drops`` of survival, if they are known."""
    if profile.family is not Family.MARKER:
        return _automatic(layout, survival, profile)
    stops = _stops(layout, survival, drops(survival) if falls is None else falls, live, profile)
    deepest = live[-1] if live else -1
    chosen, fewer = _best(stops, layout, deepest, profile, slots)
    first, markable = _first_markable(layout, profile), layout.markable
    if slots > 0 and deepest >= 0 and not _in_reach(chosen, deepest, profile.lookback):
        # The nearest place for a marker that finds the entry. The client's own markers may have made entries at places
        # where the proxy sets no markers (tool calls).
        reaching = markable.find(1, max(deepest, first), deepest + profile.lookback)
        if reaching >= 0:
            chosen = (reaching, *fewer)
            if all(stop.position != reaching for stop in stops):
                insort(stops, _Stop(reaching, layout.ends[reaching], survival[reaching], False))
    chosen = tuple(sorted(set(chosen)))
    if chosen and len(chosen) < slots:
        # Spare markers on the most stable stops in front of the last chosen position cost nothing.
        free = [s for s in stops if first <= s.position < chosen[-1] and s.position not in chosen]
        steadiest = sorted((s for s in free if markable[s.position]), key=lambda s: (-s.survival, s.position))
        chosen = tuple(sorted([*chosen, *(s.position for s in steadiest[: slots - len(chosen)])]))
    return Placement(chosen, _expected(stops, chosen), max((*chosen, deepest)) if chosen or live else -1)


def place_given(
    layout: Layout, survival: Sequence[float], live: Sequence[int], profile: CacheProfile, positions: Sequence[int]
) -> Placement:
    """What given markers promise (the client's own markers, or those of a fixed policy)."""
    if profile.family is not Family.MARKER:
        return _automatic(layout, survival, profile)
    usable = sorted({p for p in positions if layout.ends[p] >= profile.min_tokens})
    deepest = live[-1] if live else -1
    reached = deepest if usable and _in_reach(usable, deepest, profile.lookback) else -1
    kept = set(live[: bisect_right(live, reached)])
    stops = [_Stop(p, layout.ends[p], survival[p], p in kept) for p in sorted({*usable, *kept})]
    return Placement(tuple(usable), _expected(stops, usable), max((*usable, reached), default=-1))


def _automatic(layout: Layout, survival: Sequence[float], profile: CacheProfile) -> Placement:
    """For a cache that stores every position there is nothing to choose."""
    if profile.family is Family.NONE or layout.total < profile.min_tokens:
        return Placement((), 0.0, -1)
    first = bisect_left(layout.ends, profile.min_tokens)
    ends = layout.ends[first:]
    expected = sum(map(mul, map(sub, ends, (0, *ends)), survival[first:]))
    return Placement((), expected, len(layout.ends) - 1)


def _stops(
    layout: Layout, survival: Sequence[float], falls: Sequence[int], live: Sequence[int], profile: CacheProfile
) -> list[_Stop]:
    """The candidate positions, found where survival ``falls``: the last live entry in front of a drop, and the last
    markable position behind that entry."""
    found: list[_Stop] = []
    ends, markable = layout.ends, layout.markable
    # From ``first`` on, the positions are looked at for the next drop, each of them only once.
    first = max(_first_markable(layout, profile), bisect_left(ends, profile.least_marked))
    begin = 0
    for drop in falls:
        held = bisect_right(live, drop, lo=begin) - 1
        if held >= begin:
            stop, begin = live[held], held + 1
            found.append(_Stop(stop, ends[stop], survival[stop], True))
            first = max(first, stop + 1)
        waiting = markable.rfind(1, first, drop + 1)
        first = max(first, drop + 1)
        if waiting >= 0:
            found.append(_Stop(waiting, ends[waiting], survival[waiting], False))
    return _thin(found) if len(found) > _MAX_STOPS else found


def _thin(stops: list[_Stop]) -> list[_Stop]:
    """The stops that matter most, by the tokens since the previous stop times the fall of survival behind the stop. The
    deepest live entry and the last stop are always kept."""
    befores = (0, *(stop.tokens for stop in stops))
    afters = (*(stop.survival for stop in stops[1:]), 0.0)
    rows = enumerate(zip(stops, befores, afters, strict=False))
    worth = [((stop.tokens - before) * (stop.survival - after), index) for index, (stop, before, after) in rows]
    last = len(stops) - 1
    always = {last, next((index for index in range(last, -1, -1) if stops[index].is_free), last)}
    ranked = [index for _, index in sorted(worth, reverse=True) if index not in always]
    return [stops[i] for i in sorted([*always, *ranked[: _MAX_STOPS - len(always)]])]


def _best(
    stops: Sequence[_Stop], layout: Layout, deepest: int, profile: CacheProfile, slots: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The marker positions of the greatest value, and those of one marker fewer; empty if no marker pays."""
    gain, premium = mark_gain(profile), profile.write - 1.0
    held = layout.ends[deepest] if deepest >= 0 else 0
    # rows[k] are the states with k markers used: value, tokens up to the last stop, the positions marked.
    rows: list[list[tuple[float, int, tuple[int, ...]]]] = [[] for _ in range(slots + 1)]
    answer: tuple[float, tuple[int, ...]] = (0.0, ())
    fewer = answer
    for position, tokens, survival, is_free in map(structs.astuple, stops):
        written = max(0, tokens - held) * premium if not is_free else 0.0
        added: list[tuple[int, float, tuple[int, ...]]] = []
        for used in range(0 if is_free else 1, slots + 1):
            row = rows[used if is_free else used - 1]
            found, best = (tokens * survival * gain if row is rows[0] else _NEVER), -1
            for index, (gained, reached, _) in enumerate(row):
                worth = gained + (tokens - reached) * survival * gain
                if worth > found:
                    found, best = worth, index
            if found > _NEVER:
                chain = row[best][2] if best >= 0 else ()
                added.append((used, found, chain if is_free else (*chain, position)))
            if best > 0 and gain > 0:
                # Survival never rises: a state that is worth less than a later one is worth less at every further stop.
                del row[:best]
        for used, gained, chain in added:
            if is_free:
                # All later stops are best reached from here.
                rows[used].clear()
            rows[used].append((gained, tokens, chain))
            if gained - written > answer[0] + 1e-9:
                answer = (gained - written, chain)
            if used < slots and gained - written > fewer[0] + 1e-9:
                fewer = (gained - written, chain)
    return answer[1], fewer[1]


def _in_reach(marks: Sequence[int], entry: int, lookback: int) -> bool:
    """Whether some marker finds the entry. Positions are counted singly, which is also safe if a provider counts a run
    as one position."""
    return any(0 <= mark - entry < lookback for mark in marks)


def honoured(layout: Layout, profile: CacheProfile) -> dict[int, Life]:
    """The client's own markers that this provider reads."""
    first, parts = _first_markable(layout, profile), layout.parts
    own = {p: life for p, life in layout.own_marks().items() if p >= first}
    if profile.message_mark:
        return own
    return {p: life for p, life in own.items() if parts[p].index >= 0 and parts[p].kind is not PartKind.CALL}


def _first_markable(layout: Layout, profile: CacheProfile) -> int:
    """The first position that may carry a marker: not every provider accepts a marker on tools."""
    elements = layout.elements
    if not profile.tool_mark and elements and elements[0].kind is ElementKind.TOOLS:
        return len(elements[0].parts)
    return 0


def _expected(stops: Sequence[_Stop], chosen: Sequence[int]) -> float:
    marked = set(chosen)
    expected, previous = 0.0, 0
    for stop in stops:
        if stop.is_free or stop.position in marked:
            expected += (stop.tokens - previous) * stop.survival
            previous = stop.tokens
    return expected
