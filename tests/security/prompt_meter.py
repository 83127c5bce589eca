"""What a provider bills for a prompt by the public rules, whoever wrote it: every text, every name that is not the
API's own, every medium. It shares nothing with the proxy but the tokenizers' files.
"""

import base64
import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tiktoken
from tokenizers import Tokenizer

from proxy.services import local_encode

Count = Callable[[str], int]

# Members that no template shows to a model.
_SILENT = frozenset(
    {"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "stream", "n", "temperature", "user", "stop"}
)
_NAMES = frozenset(
    {"role", "type", "content", "text", "messages", "system", "input", "parts", "contents", "id", "index"}
)
_OF_MEDIA = frozenset({"type", "url", "file_data", "data", "media_type", "mimeType", "format"})
_FRAME_TOKENS = 4
_PDF_PAGE_TOKENS = 3000


@cache
def counts() -> Mapping[str, Count]:
    """Every real tokenizer that is at hand, by its name."""
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    found: dict[str, Count] = {"o200k": local_encode()}
    for name in ("anthropic_tokenizer", "deepseek_tokenizer"):
        tokenizer = Tokenizer.from_file(str(folder / f"{name}.json"))
        found[name] = lambda text, of=tokenizer: len(of.encode(_whole(text), add_special_tokens=False).ids)
    # A tokenizer that has learnt nothing: as many tokens as there are bytes.
    bare = tiktoken.Encoding(
        "bare", pat_str=r"[\s\S]", mergeable_ranks={bytes([n]): n for n in range(256)}, special_tokens={}
    )
    found["bytes"] = lambda text: len(bare.encode_ordinary(_whole(text)))
    return found


def most(text: str) -> int:
    """The most tokens that any of them makes of a text."""
    return max(count(text) for count in counts().values())


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def billed_prompt(body: bytes, count: Count) -> int:
    """The tokens of a body; of one that is no JSON, those of its text."""
    try:
        found = json.loads(body)
        first = json.loads(body, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    except ValueError:
        return count(body.decode("utf-8", "replace"))
    if not isinstance(found, dict):
        return count(body.decode("utf-8", "replace"))
    return max(_billed(one, count) for one in (found, first))


def _billed(found: Mapping[str, Any], count: Count) -> int:
    return _members({name: value for name, value in found.items() if name not in _SILENT}, count)


def _members(found: Mapping[str, Any], count: Count) -> int:
    """The tokens of members with their names. A prompt shows nothing of a member that holds nothing."""
    shown = {name: value for name, value in found.items() if value not in (None, [], {}, "")}
    return sum(_name(name, count) + _tokens(value, count) for name, value in shown.items())


def _name(name: str, count: Count) -> int:
    return 0 if name in _NAMES else count(name)


def _tokens(value: Any, count: Count) -> int:
    if isinstance(value, str):
        return count(value)
    if isinstance(value, list):
        return sum(_tokens(one, count) for one in value)
    if not isinstance(value, dict):
        return 0 if value is None else count(json.dumps(value))
    name, medium = _medium(value, count)
    if medium is not None:
        held = value[name] if isinstance(value[name], dict) else {}
        rest = [*((one, more) for one, more in value.items() if one != name), *held.items()]
        return medium + sum(_name(one, count) + _tokens(more, count) for one, more in rest if one not in _OF_MEDIA)
    frame = _FRAME_TOKENS if "role" in value else 0
    return frame + _members({name: one for name, one in value.items() if name != "type"}, count)


def _medium(value: Mapping[str, Any], count: Count) -> tuple[str, int | None]:
    for name in ("image_url", "source", "file", "inlineData", "input_audio"):
        held = value.get(name)
        held = {"url": held} if isinstance(held, str) else held
        if not isinstance(held, dict):
            continue
        if held.get("type") == "text":
            return name, count(held["data"])
        data = str(held.get("url") or held.get("file_data") or held.get("data") or "")
        raw = _bytes(data.rpartition(",")[2])
        if raw.startswith(b"\x89PNG"):
            width, height = struct.unpack(">II", raw[16:24])
            return name, 85 + 170 * min(8, math.ceil(width / 512) * math.ceil(height / 512))
        if b"%PDF" in raw[:1024]:
            return name, _PDF_PAGE_TOKENS * raw.count(b"/Type/Page/")
        if raw:
            return name, count(raw.decode("utf-8", "replace"))
        return name, 1445
    return "", None


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except ValueError:
        return b""


def picture(width: int, height: int) -> str:
    """A PNG of so many pixels, of which only the header is true: base64."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    file = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return base64.b64encode(file + bytes(60)).decode()


def pdf(pages: int) -> str:
    """A PDF of so many pages, or what passes for one: base64."""
    return base64.b64encode(b"%PDF-1.7\n" + b"<</Type/Page/Parent 2 0 R>>\n" * pages).decode()
