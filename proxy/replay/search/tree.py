"""Orders as paths in one tree of prefixes: two orders share a node exactly when they share the prefix up to it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from proxy.core.digest import digest
from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.layout.render import render_messages
from proxy.core.providers import CacheProfile
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import SYSTEM_ROLES
from proxy.core.wire.json_body import elements as array_of
from proxy.replay.search.scene import Shot
from proxy.upstream.embedded import PromptReader
from proxy.upstream.embedded.blocks import Block, BlockKind

_NO_SEED = PrefixSettings(b"", b"")
_RUN_KINDS = frozenset({BlockKind.CALL, BlockKind.RESULT})


@dataclass(frozen=True, slots=True)
class Piece:
    """One element as the provider counts it: its blocks, and which of them can carry a marker."""

    blocks: tuple[Block, ...]
    markable: tuple[bool, ...]
    key: bytes
    slices: tuple[tuple[bytes, int], ...]


@dataclass(slots=True)
class Path:
    """An order. ``nodes[i]`` is the tree node of position i, ``masks[i]`` has a bit for each request that could begin
    with everything up to it; ``element[i]`` is the position's element, ``offset[i]`` its place within it. ``number``
    tells paths apart."""

    number: int
    elements: tuple[Element, ...]
    digests: tuple[bytes, ...]
    nodes: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    markable: list[bool] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    element: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Prompt tokens."""
        return self.ends[-1] if self.ends else 0


class Tree:
    """All prefixes that a search meets."""

    def __init__(self, prompts: PromptReader, shots: Sequence[Shot]) -> None:
        self._prompts = prompts
        self._profile: CacheProfile = prompts.profile
        self._pieces: dict[bytes, Piece] = {}
        self._nodes: dict[tuple[int, bytes], int] = {}
        self._paths = 0
        self._masks: dict[bytes, int] = {}
        for shot in shots:
            bit = 1 << shot.index
            for block in self._blocks_of(shot):
                self._masks[block] = self._masks.get(block, 0) | bit
        self._cohorts: dict[int, int] = {}
        self._scopes: dict[bytes, int] = {}
        for shot in shots:
            self._cohorts[shot.cohort] = self._cohorts.get(shot.cohort, 0) | 1 << shot.index
            self._scopes[shot.scope] = self._scopes.get(shot.scope, 0) | 1 << shot.index

    def path(self, shot: Shot, order: tuple[Element, ...]) -> Path:
        """The order's path; its masks hold later requests only, behind the head those of the cohort."""
        self._paths += 1
        path = Path(self._paths, order, tuple(e.digest for e in order))
        node = self._child(0, shot.scope)
        mask = self._scopes[shot.scope] & ~((2 << shot.index) - 1)
        end, run, previous, in_messages = 0, -1, None, False
        for index, element in enumerate(order):
            if not in_messages and element.kind is not ElementKind.TOOLS and element.role not in SYSTEM_ROLES:
                in_messages = True
                node = self._child(node, shot.settings)
                mask &= self._cohorts[shot.cohort]
            piece = self.piece(shot, order, index)
            for offset, block in enumerate(piece.blocks):
                if block.kind not in _RUN_KINDS or block.kind is not previous:
                    run += 1
                previous = block.kind
                node = self._child(node, block.digest)
                mask &= self._masks.get(block.digest, 0)
                end += block.tokens
                path.place[node] = len(path.nodes)
                path.nodes.append(node)
                path.ends.append(end)
                path.runs.append(run)
                path.masks.append(mask)
                path.markable.append(piece.markable[offset])
                path.element.append(index)
                path.offset.append(offset)
        return path

    def piece(self, shot: Shot, order: Sequence[Element], index: int) -> Piece:
        """An element as the provider counts it."""
        element = order[index]
        key = digest(element.kind.encode(), element.digest)
        known = self._pieces.get(key)
        if known is None:
            blocks = self._read(shot, order, index)
            can = [part.markable and element.role != "assistant" for part in element.parts]
            known = self._pieces[key] = Piece(
                blocks=blocks,
                markable=tuple(can) if len(can) == len(blocks) else (False,) * len(blocks),
                key=digest(*(b.digest for b in blocks)),
                slices=tuple(_slices(blocks)),
            )
        return known

    def _read(self, shot: Shot, order: Sequence[Element], index: int) -> tuple[Block, ...]:
        """The blocks of an element. It is rendered as the product does it, and read as the provider does it."""
        element = order[index]
        if element.kind is ElementKind.TOOLS:
            return self._prompts.turns.tools(bytes(shot.request.members["tools"]))
        if element.kind is ElementKind.DOCUMENT:
            text = element.item.text if element.item is not None else ""
            parts = [{"type": "text", "text": "."}, {"type": "text", "text": text}]
            turn = self._prompts.turns.turn(orjson.dumps({"role": "system", "content": parts}), "messages")
            return turn.blocks[1:]
        written = render_messages(Layout(_NO_SEED, [element]), shot.recognised.messages, {}, self._profile.dialect)
        turns = [self._prompts.turns.turn(bytes(raw), "messages") for raw in array_of(written)]
        return tuple(block for turn in turns for block in turn.blocks)

    def _blocks_of(self, shot: Shot) -> Iterable[bytes]:
        """Every block that this request could be sent with, in whatever order."""
        found: set[bytes] = set()
        for material in shot.materials:
            every = [*material.natural, *material.preamble, *material.turns, *material.tail]
            every += [*material.forms.by_digest.values(), *material.documents.values()]
            for index in range(len(every)):
                found.update(block.digest for block in self.piece(shot, every, index).blocks)
        return found

    def _child(self, node: int, key: bytes) -> int:
        return self._nodes.setdefault((node, key), len(self._nodes) + 1)


def _slices(blocks: Sequence[Block]) -> Iterable[tuple[bytes, int]]:
    """What a cache that looks inside blocks compares: slices, and the tokens up to each one's end."""
    before = 0
    for block in blocks:
        cuts = block.cuts or (block.digest,)
        for number, cut in enumerate(cuts, 1):
            yield cut, before + block.tokens * number // len(cuts)
        before += block.tokens
