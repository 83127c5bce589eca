"""Reads what an answer says about the objects of the provider's account that it shows or has made. Pure.

Only members whose content the provider decides are read. Other members (``metadata``, texts) return what a client has
sent, and must not give the client an object.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import orjson

from proxy.core.account.references import MOST_ID_CHARS
from proxy.core.wire.surrogates import read_or_mended

_MOST_MADE = 1000
# A batch's results, and the file that a finished upload has become.
_FILES = ("output_file_id", "error_file_id", "file")


@dataclass(slots=True)
class Said:
    """The objects that are known so far. In a stream, the last statement counts."""

    id: str = ""
    status: str = ""
    model: str = ""
    is_background: bool = False
    is_stored: bool = True
    ids: dict[str, str] = field(default_factory=dict)
    """Further objects that were made: the family of each, by its id."""

    def learn(self, answer: Mapping[str, object]) -> None:
        """Read an answer, or one event of a stream."""
        holder = answer.get("message" if answer.get("type") == "message_start" else "response")
        said = holder if isinstance(holder, Mapping) else answer
        self.id = self.id or _id(said.get("id"))
        status = said.get("status")
        self.status = status if isinstance(status, str) else self.status
        model = said.get("model")
        self.model = model if isinstance(model, str) else self.model
        self.is_background = self.is_background or said.get("background") is True
        self.is_stored = self.is_stored and said.get("store") is not False
        for name, family in _made(said):
            if len(self.ids) < _MOST_MADE:
                self.ids[name] = family


class _Item(msgspec.Struct):
    """An item of a list, with the members that distinguish it from others."""

    id: object = None
    type: object = None


_ITEMS = msgspec.json.Decoder(list[_Item])


def known_items(output: bytes | msgspec.Raw) -> list[dict[str, object]]:
    """The items of a response's output, or of another list. They come without their content, unless the list names
    containers. In texts, each half of a surrogate pair is replaced by another character."""
    raw = bytes(output)
    if b'"container_id"' not in raw:
        return [{"id": item.id, "type": item.type} for item in read_or_mended(_ITEMS.decode, raw) or ()]
    items = read_or_mended(orjson.loads, raw)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _made(said: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for member, family in (("conversation", "conversations"), ("container", "containers")):
        if found := _id_in(said.get(member)):
            yield found, family
    for member in _FILES:
        value = said.get(member)
        if found := _id(value) or _id_in(value):
            yield found, "files"
    for item in _objects(said.get("output")):
        yield from _made_by(item)
    for choice in _objects(said.get("choices")):
        for member in ("message", "delta"):
            message = choice.get(member)
            if isinstance(message, Mapping) and (found := _id_in(message.get("audio"))):
                yield found, "chat/completions"


def _made_by(item: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The objects of an item of a response's output: the item itself, and the containers in which its tools ran."""
    if found := _id(item.get("id")):
        yield found, "responses"
    notes = [note for part in _objects(item.get("content")) for note in _objects(part.get("annotations"))]
    for holder in (item, *notes):
        if found := _id(holder.get("container_id")):
            yield found, "containers"


def _objects(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _id_in(value: object) -> str:
    return _id(value.get("id")) if isinstance(value, Mapping) else ""


def _id(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= MOST_ID_CHARS else ""
