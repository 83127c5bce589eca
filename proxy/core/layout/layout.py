"""A layout: the request's content in the order in which it would be sent, as a provider's cache counts it.

In front of its positions stand the account, the model, and the members of the request that a provider renders into the
prompt."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, islice
from types import MappingProxyType

import orjson

from proxy.core.caches.prompt import Life, Prompt
from proxy.core.digest import DIGEST_BYTES, chain, digest
from proxy.core.providers import DEFAULTS, CacheProfile
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import SYSTEM_ROLES, Part, PartKind
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Members, members_of, value

NOTICE = "notice"
"""The key of a system message behind the leading ones, if the upstream moves it to the front."""


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

    @property
    def start(self) -> bytes:
        """The value that the hash of the first position is chained to."""
        return digest(self.scope, self.tools) if self.tools else self.scope


class Layout:
    """Elements in sending order and their positions. ``starts[i]`` is element i's first position. ``turns[i]`` is the
    index of its message if it is a message of the conversation as it came, or else -1. ``markable[p]``: position p may
    carry a marker.
    """

    __slots__ = (
        "_front", "_unmarked", "digests", "elements", "ends", "markable", "parts", "seed", "starts", "turns",
    )  # fmt: skip

    def __init__(self, seed: PrefixSettings, elements: Sequence[Element], base: "Layout | None" = None) -> None:
        """``base`` is a layout that begins with the same elements. The elements that both share are not numbered
        again."""
        self.seed = seed
        self.elements = tuple(elements)
        self.starts: list[int] = []
        self.turns: list[int] = []
        self.digests: list[bytes] = []
        self.markable: list[bool] = []
        self.parts: list[Part] = []
        self.ends: list[int] = []
        self._front: tuple[int, Sequence[bytes], Sequence[int]] = (0, (), ())
        self._unmarked: Prompt | None = None
        self._number(self._adopt(base) if base is not None else 0)

    def _adopt(self, base: "Layout") -> int:
        """Take over the positions of the elements in common. Returns how many elements these are."""
        if base.seed != self.seed:
            return 0
        shared = min(len(self.elements), len(base.elements))
        if self.elements[:shared] != base.elements[:shared]:
            pairs = zip(self.elements, base.elements, strict=False)
            shared = next(i for i, (mine, other) in enumerate(pairs) if mine is not other)
        stop = base.starts[shared] if shared < len(base.starts) else len(base.parts)
        self.starts, self.turns = base.starts[:shared], base.turns[:shared]
        self.digests, self.markable = base.digests[:shared], base.markable[:stop]
        self.parts, self.ends = base.parts[:stop], base.ends[:stop]
        if (plain := base._unmarked) is not None:
            self._front = shared, plain.hashes[:stop], plain.runs[:stop]
        return shared

    def _number(self, first: int) -> None:
        new, can_mark = self.elements[first:], self.seed.marks_answers
        self.digests += [e.digest for e in new]
        self.turns += [e.message if e.key in _TURNS else -1 for e in new]
        self.markable += [part.markable and (can_mark or e.role != "assistant") for e in new for part in e.parts]
        starts = accumulate([len(e.parts) for e in new], initial=len(self.parts))
        self.starts += islice(starts, len(new))
        self.parts += [part for e in new for part in e.parts]
        ends = accumulate([part.tokens for part in self.parts[len(self.ends) :]], initial=self.total)
        self.ends += islice(ends, 1, None)

    def _chained(self) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
        """The hash and the run of each position. To find them takes longer than everything else, so it is only done for
        layouts that are looked up in a cache."""
        seed, (first, front, front_runs) = self.seed, self._front
        hashes, runs = [*front], [*front_runs]
        at_system = next((i for i, e in enumerate(self.elements) if e.kind is not ElementKind.TOOLS), -1)
        at_settings = next((i for i, e in enumerate(self.elements) if is_message(e)), -1)
        running = hashes[-1] if hashes else seed.start
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

    @property
    def total(self) -> int:
        return self.ends[-1] if self.ends else 0

    def owner(self, position: int) -> Element:
        """The element that a position belongs to."""
        return self.elements[bisect_right(self.starts, position) - 1]

    def last_position(self, element: int) -> int:
        """The last position of an element. If the element has no position, this is the position in front of it."""
        following = element + 1
        return (self.starts[following] if following < len(self.starts) else len(self.parts)) - 1

    def prompt(self, marks: dict[int, Life]) -> Prompt:
        """The layout as a shadow cache reads it, with these markers."""
        plain = self._unmarked
        if plain is None:
            endings, head_end = self._endings() if self.seed.is_implicit else ((), -1)
            hashes, runs = self._chained()
            plain = self._unmarked = Prompt(self.seed.scope, hashes, tuple(self.ends), runs, {}, endings, head_end)
        if not marks:
            return plain
        return Prompt(plain.scope, plain.hashes, plain.ends, plain.runs, marks, plain.endings, plain.head_end)

    @property
    def implicit(self) -> tuple[int, ...]:
        """The last position at which the provider sets a boundary of its own; empty if it sets none."""
        return self.prompt({}).endings[-1:]

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
                own = (p for p in range(last, self.starts[index] - 1, -1) if self.markable[p])
                found.append(next(own, last))
        return tuple(found) or tuple(p for p in (head_end,) if p >= 0), head_end

    def own_marks(self) -> dict[int, Life]:
        """The client's markers, as far as a provider may honour them."""
        return {i: part.own_mark for i, part in enumerate(self.parts) if part.own_mark is not None}


_RESULT, _CALL = PartKind.RESULT, PartKind.CALL
_TURNS = frozenset({"turn", NOTICE})


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
    image = b"image" if has_media and breaking.images else b""
    return PrefixSettings(
        scope=scope,
        settings=digest(*_given(members, breaking.before_messages), image),
        tools=_digest_of(_given(members, breaking.before_tools)),
        system=_digest_of(_given(members, breaking.before_system)),
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


def _digest_of(given: Sequence[bytes]) -> bytes:
    return digest(*given) if given else b""


def given_members(members: Members, names: Sequence[str]) -> dict[str, bytes]:
    """The members with these names that a request has, as they are written. Members that only state a default are left
    out."""
    given = ((name, bytes(members[name])) for name in names if name in members)
    return {name: raw for name, raw in given if raw not in (b"null", _DEFAULTS.get(name))}


def _given(members: Members, names: Sequence[str]) -> list[bytes]:
    return [name.encode() + raw for name, raw in given_members(members, names).items()]


def _is_told_explicit(members: Members) -> bool:
    """Whether ``prompt_cache_options.mode`` is explicit: the provider then sets no boundary of its own."""
    options = bytes(members.get("prompt_cache_options", b"null"))
    if not options.startswith(b"{"):
        return False
    mode = members_of(options).get("mode")
    return mode is not None and value(mode) == "explicit"
