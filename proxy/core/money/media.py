"""What pictures, sounds and files in a prompt can cost in tokens, by the rules that providers publish. Pure.

A picture costs by its pixels, which stand in its own header. A picture that is not understood, or does not stand in
the body, costs what its model bills at most for one. Of sounds, films and files nobody can tell the length from a few
bytes: ten kilobytes may be a hundred pages, or hours of silence. They may fill the model's context window.

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

Pixels = tuple[int, int]
"""Width and height."""
SizeOf = Callable[[bytes], Pixels | None]
"""The pixels of a picture by the beginning of its file; None where they are not told."""


class _Rule(NamedTuple):
    """``base`` and ``tile`` tokens by tiles of 512 pixels, of which there are 8 at most; or ``patch`` tokens by patches
    of ``side`` pixels, of which there are ``most`` at most."""

    base: int = 0
    tile: int = 0
    patch: float = 0.0
    side: int = 32
    most: int = 1536


# The first whose beginning a model's name has. Any other model bills no more than 10,000 small patches.
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
"""Of a picture's base64: a camera's notes may stand in front of its size."""
_TEXT_TYPE = re.compile(r"text/|application/(?:json|xml|x-yaml|yaml|toml|javascript|csv)", re.ASCII)
_MEDIA_NAMES = ("image", "picture", "screenshot")


class Medium(NamedTuple):
    """``text`` is that of a file that is nothing else; ``is_picture``: it is one, of these ``pixels`` where they are
    known."""

    text: str | None = None
    is_picture: bool = False
    pixels: Pixels | None = None


def picture_tokens(model: str, pixels: Pixels | None) -> int:
    """The most tokens that a picture costs; without its pixels the most that any picture costs."""
    name = model.lower().rsplit("/", 1)[-1]
    rule = next((rule for beginning, rule in _RULES if name.startswith(beginning)), _ANY)
    tiles, patches = _MOST_TILES, rule.most
    if pixels is not None:
        width, height = pixels
        tiles = min(_MOST_TILES, math.ceil(width / 512) * math.ceil(height / 512))
        patches = min(rule.most, math.ceil(width / rule.side) * math.ceil(height / rule.side))
    return rule.base + rule.tile * tiles + math.ceil(rule.patch * patches)


def medium_of(part: Mapping[str, object], size_of: SizeOf) -> Medium:
    """The medium that a part of a message is."""
    found, names = _inside(part), " ".join((*map(str, part), str(part.get("type")))).lower()
    data, kind = found.get("data"), found.get("kind", "").lower()
    if not data and "text" in found:
        return Medium(text=found["text"])
    if data and _TEXT_TYPE.match(kind) and (text := _text(data)) is not None:
        return Medium(text=text)
    is_picture = kind.startswith("image/") if kind else any(name in names for name in _MEDIA_NAMES)
    if not is_picture:
        return Medium()
    return Medium(is_picture=True, pixels=size_of(_bytes(data[:_HEADER_CHARS])) if data else None)


def _inside(part: Mapping[str, object]) -> dict[str, str]:
    """The base64 that a part or any member of it holds, with the type that it says; or the text of its source."""
    found: dict[str, str] = {}
    for one in (part, *(member for member in part.values() if isinstance(member, dict))):
        for name, member in one.items():
            if not isinstance(member, str):
                continue
            shown = _BASE64.match(member, 0, 256)
            if shown is not None:
                found |= {"kind": shown[1], "data": member[shown.end() :]}
            elif name in ("media_type", "mime_type", "mimeType"):
                found.setdefault("kind", member)
            elif name == "data":
                found.setdefault("text" if one.get("type") == "text" else "data", member)
    return found


def _bytes(data: str) -> bytes:
    try:
        return b64decode(data[: len(data) // 4 * 4])
    except (Error, ValueError):
        return b""


def _text(data: str) -> str | None:
    """The text of a file; None for one that only says that it is text."""
    content = _bytes(data)
    if not content or b"%PDF" in content[:1024]:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
