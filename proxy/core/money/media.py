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
    known. ``rest`` is whatever else the part holds: its bytes count as those of any other value."""

    text: str | None = None
    is_picture: bool = False
    pixels: Pixels | None = None
    rest: Sequence[tuple[str, object]] = ()


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
    """The medium that a part of a message is. Where it holds several, nobody can tell which of them counts."""
    names = " ".join((*map(str, part), str(part.get("type")))).lower()
    found, rest = dict[str, str](), list[tuple[str, object]]()
    for one in (part, *(member for member in part.values() if isinstance(member, dict))):
        for name, member in one.items():
            shown = _BASE64.match(member, 0, 256) if isinstance(member, str) else None
            if shown is not None:
                told = {"kind": shown[1], "data": member[shown.end() :]}
            elif isinstance(member, str) and name in ("media_type", "mime_type", "mimeType") and "kind" not in found:
                told = {"kind": member}
            elif isinstance(member, str) and name == "data":
                told = {"text" if one.get("type") == "text" else "data": member}
            else:
                told = {}
                rest.append((name, "" if one is part and isinstance(member, dict) else member))
            if told.keys() & found.keys() & {"data", "text"}:
                return Medium(rest=rest)
            found |= told
    data, kind = found.get("data"), found.get("kind", "").lower()
    text = found.get("text") if not data else _text(data) if _TEXT_TYPE.match(kind) else None
    if text is not None:
        return Medium(text, rest=rest)
    is_picture = kind.startswith("image/") if kind else any(name in names for name in _MEDIA_NAMES)
    pixels = size_of(_bytes(data[:_HEADER_CHARS])) if is_picture and data else None
    return Medium(is_picture=is_picture, pixels=pixels, rest=rest)


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
