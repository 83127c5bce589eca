"""Bounds the tokens of prompts. Reservations are made from these bounds.

Each message is weighed once and counted once, and the result is kept with the message, or by digest. Texts are counted
only if the caller asks for it. If many of them were not counted before, they are counted outside the event loop.
"""

from collections.abc import Callable, MutableMapping, Sequence
from io import BytesIO

import imagesize
from msgspec import Raw

from proxy.aside import LARGE_BYTES, Aside
from proxy.core.digest import digest
from proxy.core.lru import LastUsed
from proxy.core.money.bound import SETTING_BYTES, SETTINGS, TALK, Encode, InputBound, of_bytes, weigh, whole
from proxy.core.money.media import Pixels, tells_size
from proxy.core.request.parsed_body import ParsedBody, parse_body
from proxy.core.wire.json_body import Unreadable, elements
from proxy.engine.exchange import Exchange
from proxy.errors import InvalidRequest

_MOST_KNOWN = 20_000
_KNOWN_SHARE = 25_000
_MOST_KEPT_PICTURES = 16
"""The most pictures of one value for which its bound is kept. A bound with thousands of pictures would take more memory
than their bytes, for as long as it is kept."""
_LARGE_COUNT_BYTES = 32 << 10
"""About 4 ms of counting."""
_WEIGHED = "proxy.spend.weighed"


_Place = tuple[MutableMapping[object, object], object, str, bytes | Raw]
"""For one value of the body: where its bound is kept, and under which key; the member that it belongs to; the value."""


class PromptBounds:
    """Bounds prompts. ``encode`` counts the tokens of whole texts. For the models that ``is_exact`` accepts, it counts
    as the model's own tokenizer does."""

    def __init__(
        self,
        encode: Encode,
        aside: Aside,
        is_exact: Callable[[str], bool] = lambda _: False,
        memory_bytes: int = 512 << 20,
    ) -> None:
        """``memory_bytes``: the room for layout state. One bound is kept for each 25,000 bytes of it."""
        self._encode = encode
        self.is_exact = is_exact
        self._aside = aside
        self._known: LastUsed[object, object] = LastUsed(min(_MOST_KNOWN, memory_bytes // _KNOWN_SHARE))

    async def bound(self, exchange: Exchange, *, counts: bool) -> InputBound:
        """The bound over all bodies that may be sent for the request. With ``counts``, its texts are counted."""
        plan = exchange.planned.plan
        sent = exchange.sent or (() if plan is None else ((plan.body, 0),))
        found = [await self._bound(body, added, counts=counts) for body, added in sent]
        return max(found, key=lambda one: one.tokens(1.0), default=InputBound(bare=exchange.arrival.size))

    async def _bound(self, body: bytes | ParsedBody, added: int, *, counts: bool) -> InputBound:
        try:
            parsed = parse_body(body) if isinstance(body, bytes) else body
            places = self._places(parsed)
        except (InvalidRequest, Unreadable):
            return InputBound(bare=of_bytes(body if isinstance(body, bytes) else body.body) + added)
        encode = self._encode if counts else None
        found = [one if isinstance(one := kept.get(key), InputBound) else None for kept, key, _, _ in places]
        new = [at for at, one in enumerate(found) if one is None or (encode is not None and one.counted is None)]
        size = sum([len(places[at][3]) for at in new])

        def work() -> Sequence[InputBound]:
            return [weigh(*places[at][2:], size_of, encode) for at in new]

        is_large = size >= (LARGE_BYTES if encode is None else _LARGE_COUNT_BYTES)
        for at, one in zip(new, await self._aside.run(size, work) if is_large else work(), strict=True):
            found[at] = one
            if len(one.pictures) <= _MOST_KEPT_PICTURES:
                places[at][0][places[at][1]] = one
        self._known.trim()
        return whole(
            [(name, one) for (_, _, name, _), one in zip(places, found, strict=True) if one is not None], added
        )

    def _places(self, parsed: ParsedBody) -> Sequence[_Place]:
        """The places where the bounds of the body's values are kept. Raises Unreadable."""
        places: list[_Place] = []
        for name, raw in parsed.members.items():
            if name == "messages" and (messages := parsed.read_messages) is not None:
                places += [(one.memo, _WEIGHED, name, one.raw) for one in messages]
            elif name not in SETTINGS or len(raw) > SETTING_BYTES:
                is_list = name in TALK and bytes(memoryview(raw)[:1]) == b"["
                values: Sequence[bytes | Raw] = elements(raw) if is_list else (raw,)
                places += [(self._known, digest(name.encode(), bytes(one)), name, one) for one in values]
        return places


def size_of(header: bytes) -> Pixels | None:
    """The size of a picture in pixels, read from its header; the picture is not decoded."""
    width, height = imagesize.get(BytesIO(header), exif_rotation=False) if tells_size(header) else (-1, -1)
    return (width, height) if width > 0 and height > 0 else None
