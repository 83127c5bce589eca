"""Orders that a request may be sent in: behind a prefix that is held, the pieces that live longest first."""

from collections.abc import Iterator, Sequence

from proxy.core.layout.orders import RequestElements, Weight, behind_prefix, documents_left, valid_prefix
from proxy.core.recognition.pieces import ContextPiece
from proxy.core.request.element import Element, ElementKind
from proxy.replay.search.scene import Shot

Elements = tuple[Element, ...]

_MAX_THRESHOLDS = 4
# Above any number of tokens: life decides, size only between pieces of equal life.
_LIFE_WEIGHT = 1e9


class Orders:
    """Every order that the search tries for one request. Each is made once."""

    def __init__(self, shot: Shot) -> None:
        self._shot = shot
        self._behind: dict[tuple[int, tuple[bytes, ...]], tuple[Elements, ...]] = {}
        self._kept: dict[tuple[int, tuple[bytes, ...]], Elements] = {}

    def natural(self) -> Elements:
        """The client's own order."""
        return self._shot.materials[0].natural

    def cold(self) -> Iterator[Elements]:
        """Orders that keep nothing of what was sent before."""
        for number, material in enumerate(self._shot.materials):
            if material.is_movable or number:
                yield from self._orders(number, (*material.tools, *material.preamble))

    def behind(self, before: tuple[bytes, ...], *, shorten: bool) -> Iterator[Elements]:
        """Orders that begin with what is still valid of an earlier one (element digests); with ``shorten`` also with
        less of it, cut in front of pieces that are about to change."""
        for number, material in enumerate(self._shot.materials):
            if not (material.is_movable or number):
                continue
            kept = self.kept(number, before)
            if len(kept) <= len(material.tools) + len(material.preamble):
                continue
            yield from self._orders(number, kept)
            for cut in _cuts(self._shot, kept) if shorten else ():
                shorter = self.kept(number, tuple(e.digest for e in kept[:cut]))
                if len(shorter) > len(material.tools) + len(material.preamble):
                    yield from self._orders(number, shorter)

    def kept(self, number: int, before: tuple[bytes, ...]) -> Elements:
        """What is still valid of an earlier order."""
        found = self._kept.get((number, before))
        if found is None:
            found = self._kept[number, before] = valid_prefix(self._shot.materials[number], before)
        return found

    def _orders(self, number: int, kept: Elements) -> tuple[Elements, ...]:
        key = (number, tuple(e.digest for e in kept))
        found = self._behind.get(key)
        if found is None:
            found = self._behind[key] = tuple(self._variants(self._shot.materials[number], kept))
        return found

    def _variants(self, material: RequestElements, kept: Elements) -> Iterator[Elements]:
        """The remaining pieces behind the conversation, or in front of it those of them that live long enough."""
        seen: set[tuple[bytes, ...]] = set()
        for weight in (self._by_life, self._by_presence):
            yield from self._weighted(material, kept, weight, seen)

    def _weighted(
        self, material: RequestElements, kept: Elements, weight: Weight, seen: set[tuple[bytes, ...]]
    ) -> Iterator[Elements]:
        left = sorted(_left(material, kept), key=lambda item: -weight(item))
        lives = sorted({self._shot.life(item) for item in left}, reverse=True)
        for threshold in [None, *_spread(lives)]:
            early = [] if threshold is None else [item for item in left if self._shot.life(item) >= threshold]
            extended = kept
            if threshold is not None:
                wanted = (*kept, *documents_left(material, kept, weight), *_forms(material, kept, early))
                extended = valid_prefix(material, [e.digest for e in wanted])
                if len(extended) <= len(kept):
                    continue
            order = behind_prefix(material, extended, weight)
            key = tuple(e.digest for e in order)
            if key not in seen:
                seen.add(key)
                yield order

    def _by_life(self, item: ContextPiece) -> float:
        return self._shot.life(item) * _LIFE_WEIGHT + len(item.text)

    def _by_presence(self, item: ContextPiece) -> float:
        return self._shot.presence(item) * _LIFE_WEIGHT + len(item.text)


def _spread(lives: Sequence[int]) -> list[int]:
    """A limited number of thresholds, with the extremes among them."""
    if len(lives) <= _MAX_THRESHOLDS:
        return list(lives)
    last = len(lives) - 1
    return [lives[i * last // (_MAX_THRESHOLDS - 1)] for i in range(_MAX_THRESHOLDS)]


def _left(material: RequestElements, kept: Sequence[Element]) -> list[ContextPiece]:
    """Context pieces that the prefix does not hold, documents apart (they stand behind the head anyway)."""
    done = {e.key for e in kept if e.kind in (ElementKind.PART, ElementKind.LAST_PART)}
    whole = {e.message for e in kept if e.kind is ElementKind.WHOLE}
    return [i for g in material.groups if g.message not in whole for i in g.items if i.key not in done]


def _forms(material: RequestElements, kept: Sequence[Element], early: Sequence[ContextPiece]) -> list[Element]:
    """These pieces as elements. The last one of a group stands under the client's own opening."""
    count = {g.message: len(g.items) for g in material.groups}
    done: dict[int, int] = {}
    for element in kept:
        if element.kind in (ElementKind.PART, ElementKind.LAST_PART):
            done[element.message] = done.get(element.message, 0) + 1
    group_of = {item.key: g for g in material.groups for item in g.items}
    found: list[Element] = []
    for item in early:
        group = group_of[item.key]
        if len(group.items) == 1:
            found.append(material.forms.wholes[group.message])
            continue
        done[group.message] = done.get(group.message, 0) + 1
        forms = material.forms.lasts if done[group.message] == count[group.message] else material.forms.parts
        found.append(forms[item.key])
    return found


def _cuts(shot: Shot, kept: Sequence[Element]) -> list[int]:
    """The places in front of the first piece that lives no longer than 0, 1 and 3 requests."""
    found = []
    for limit in (0, 1, 3):
        for index, element in enumerate(kept):
            if element.item is not None and shot.life(element.item) <= limit:
                found.append(index)
                break
    return sorted(set(found))
