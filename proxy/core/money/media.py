"""The most tokens that pictures, sounds and files in a prompt can cost, by the rules that providers publish. Pure.

The cost of a picture depends on its pixels, which its header says. A picture that is not understood, or is not in the
body, costs the most that its model bills for one picture. The length of sounds, films and files cannot be told from a
few bytes: ten kilobytes may be a hundred pages, or hours of silence. They may fill the model's context window.

Pictures: https://developers.openai.com/api/docs/guides/images-vision#calculating-costs,
https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size,
https://ai.google.dev/gemini-api/docs/media-resolution#token-counts.
"""

import math
import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.core.wire.json_body import values_within

Pixels = tuple[int, int]
"""Width and height."""
SizeOf = Callable[[bytes], Pixels | None]
"""Reads the pixels of a picture from the beginning of its file. None if the beginning does not say them."""


class _Rule(NamedTuple):
    """How a model bills a picture. Either ``base`` tokens and ``tile`` tokens for each tile of 512 pixels (at most 8
    tiles), or ``patch`` tokens for each patch of ``side`` pixels (at most ``most`` patches)."""

    base: int = 0
    tile: int = 0
    patch: float = 0.0
    side: int = 32
    most: int = 1536


# The first rule counts whose name is part of the model's name. Any other model bills at most 10,000 small patches.
_RULES: Sequence[tuple[str, _Rule]] = (
    ("gpt-4o-mini", _Rule(2833, 5667)),
    ("gpt-4.1-mini", _Rule(patch=1.62)),
    ("gpt-4.1-nano", _Rule(patch=2.46)),
    ("gpt-4o", _Rule(85, 170)),
    ("gpt-4.1", _Rule(85, 170)),
    ("o4-mini", _Rule(patch=1.72)),
    ("claude-", _Rule(patch=1.05, side=28, most=4784)),
)
_ANY = _Rule(1445, patch=1.0, side=28, most=10_000)
_MOST_TILES = 8

_BASE64 = re.compile(r"data:([\w.+/-]*)(?:;[\w.+=\"-]*)*;base64,", re.ASCII)
_HEADER_CHARS = 1 << 20
"""How many characters of a picture's base64 are read: a camera's notes may stand in front of its size."""
_TEXT_TYPE = re.compile(r"text/|application/(?:json|xml|x-yaml|yaml|toml|javascript|csv)", re.ASCII)
_PICTURE_TYPE = re.compile("image|picture|screenshot")
_PICTURE_ADDRESS = re.compile(
    r"https?://[^/?#]*(?:/[^?#]*?)?(?:\.(?:png|jpe?g|gif|webp|heic|heif|avif|bmp|tiff?)|/|(?<![^/])[^/.?#]*)(?:[?#].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
HOLDERS = frozenset(
    {
        "source", "image", "image_url", "input_audio", "audio", "audio_url", "video", "video_url", "file", "file_id",
        "file_url", "file_data", "fileData", "inlineData", "inline_data", "document",
    }
)  # fmt: skip
"""Members that make a part a medium, whatever its type says."""
_PICTURE_HOLDERS = frozenset({"source", "image", "image_url", "inlineData", "inline_data"})
_CARRIERS = HOLDERS | {"url", "data", "uri", "fileUri", "file_uri", "result", "bytes"}
"""Members that may hold the file itself, or its address."""
_KINDS = ("media_type", "mime_type", "mimeType", "format")
_REFERENCES = (HOLDERS - {"source", "image", "audio", "video", "file", "document"}) | {
    "fileUri",
    "file_uri",
    "file_ids",
}
"""Names that always mean a medium, wherever they are found."""


class Medium(NamedTuple):
    """The medium in a part. ``text`` is the text of a file that is only text. ``is_picture``: it is a picture, with
    these ``pixels`` if they are known. The length of any other medium is unknown. ``rest`` are the members that are not
    the medium."""

    text: str | None = None
    is_picture: bool = False
    pixels: Pixels | None = None
    rest: Sequence[tuple[str, object]] = ()


def picture_tokens(model: str, pixels: Pixels | None) -> int:
    """The most tokens that a picture costs. Without its pixels, it is the most that any picture costs."""
    name = model.lower().rsplit("/", 1)[-1]
    rule = next((rule for part, rule in _RULES if part in name), _ANY)
    tiles, patches = _MOST_TILES, rule.most
    if pixels is not None:
        width, height = pixels
        tiles = min(_MOST_TILES, math.ceil(width / 512) * math.ceil(height / 512))
        patches = min(rule.most, math.ceil(width / rule.side) * math.ceil(height / rule.side))
    return rule.base + rule.tile * tiles + math.ceil(rule.patch * patches)


def medium_of(part: Mapping[str, object], size_of: SizeOf) -> Medium:
    """The medium that a part of a message is. If the part could hold several media, or says two things about one, its
    length is unknown, because servers differ in which one they read."""
    held = [name for name, value in part.items() if name in HOLDERS and value is not None]
    inner = part[held[0]] if len(held) == 1 else None
    holder = inner if isinstance(inner, dict) else part
    outer = [] if holder is part else [(name, value) for name, value in part.items() if name != held[0]]
    carriers = [name for name, value in holder.items() if name in _CARRIERS and value is not None]
    kind, named = holder.get("type"), part.get("type")
    if kind == "content" and not carriers and holder is not part:
        return Medium(text="", rest=[*outer, *holder.items()])
    if len(held) > 1 or any(name in _CARRIERS and value is not None for name, value in outer):
        return Medium(rest=list(part.items()))
    carrier = carriers[0] if len(carriers) == 1 else ""
    value = holder.get(carrier)
    if not isinstance(value, str) or not isinstance(named, str | None):
        return Medium(rest=[*outer, *holder.items()])
    rest = [*outer, *((name, one) for name, one in holder.items() if name != carrier)]
    if kind == "text" and carrier == "data":
        return Medium(text=value, rest=rest)
    is_slot = not held or held[0] in _PICTURE_HOLDERS or held[0] == "file_id"
    # The holder decides the type of a part without a type. A holder that is null says nothing.
    is_named = _PICTURE_TYPE.search(named.lower()) is not None if named else not _PICTURE_HOLDERS.isdisjoint(held)
    return _file(holder, carrier, is_slot and is_named, size_of)._replace(rest=rest)


def _file(holder: Mapping[str, object], carrier: str, is_slot: bool, size_of: SizeOf) -> Medium:
    """The kind of a file, by its beginning and by the type that it states. ``is_slot``: it is in a place for
    pictures."""
    value = str(holder[carrier])
    shown = _BASE64.match(value, 0, 256)
    data = value[shown.end() :] if shown is not None else value if carrier in ("data", "file_data") else ""
    kinds = {str(holder[name]).lower() for name in _KINDS if holder.get(name) is not None}
    kinds |= {shown[1].lower()} if shown is not None else set()
    kind = next(iter(kinds), "")
    if len(kinds) > 1:
        return Medium()
    if data and _TEXT_TYPE.match(kind) and (text := _text(data)) is not None:
        return Medium(text=text)
    is_picture = is_slot and (kind.startswith("image/") if kind else True)
    if not is_picture or not (data or carrier in ("file_id", "result") or _PICTURE_ADDRESS.fullmatch(value)):
        return Medium()
    return Medium(is_picture=True, pixels=size_of(_bytes(data[:_HEADER_CHARS])) if data else None)


def holds_media(value: object) -> bool:
    """Whether a value that is not understood names or holds a medium anywhere."""
    return any(
        any(name in _REFERENCES and found for name, found in one.items())
        if isinstance(one, dict)
        else isinstance(one, str) and _BASE64.match(one, 0, 256)
        for one in values_within(value)
    )


def tells_size(header: bytes) -> bool:
    """Whether a picture's header bounds what is drawn. A frame of a GIF may be larger than the header says. An SVG may
    state any size. For a JPEG with several sizes, readers differ in which one they use."""
    if header[:8] == b"\x89PNG\r\n\x1a\n":
        return header[12:16] == b"IHDR"
    if header[:4] == b"RIFF":
        return header[8:15] == b"WEBPVP8"
    at, sizes = 2, 0
    while header[:2] == b"\xff\xd8" and header[at : at + 1] == b"\xff":
        mark = int.from_bytes(header[at + 1 : at + 2])
        if mark == _SCAN:
            return sizes == 1
        sizes += mark in _SIZES
        at += 2 + int.from_bytes(header[at + 2 : at + 4])
    return False


_SCAN = 0xDA
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _bytes(data: str) -> bytes:
    """The decoded bytes of a file's base64. Empty if readers could decode it differently."""
    plain = "".join(data.split())
    try:
        return b64decode(plain[: len(plain) // 4 * 4], validate=True)
    except (Error, ValueError):
        return b""


def _text(data: str) -> str | None:
    """The text of a file. None for a file that only claims to be text."""
    if not (content := _bytes(data)) or b"%PDF" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
