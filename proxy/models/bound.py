"""The bound on a prompt's tokens. It is made from all bytes of a request, and is lowered only with a proof. Pure.

No tokenizer of today makes more tokens of a text than the text has bytes in UTF-8 (``tests/bench/tokenizers.py``
measures that over all scripts). Some tokenizers normalise the text first (NFKC), which may make it longer: then the
longer form counts. So the bytes of every text are a bound for every model. Less is reserved only

- for text that was counted whole with the model's own tokenizer;
- for the names, roles and settings of the API that a provider does not show to the model as text;
- for pictures whose header says their pixels.

A value that is not understood counts with its bytes. The module has three parts, in this order:

- Media: the most tokens that pictures, sounds and files can cost, by the rules that providers publish. The cost of a
  picture depends on its pixels, which its header says. A picture that is not understood, or is not in the body, costs
  the most that its model bills for one picture. The length of sounds, films and files cannot be told from a few bytes:
  ten kilobytes may be a hundred pages, or hours of silence. They may fill the model's context window.
- Schemas: a JSON schema counts with the length that it has when its references are replaced by what they name, as some
  servers do.
- The walk through a value of the body, which adds up the bounds of what the value holds.

Pictures: https://developers.openai.com/api/docs/guides/images-vision#calculating-costs,
https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size,
https://ai.google.dev/gemini-api/docs/media-resolution#token-counts.
"""

import math
import re
import unicodedata
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import orjson
from msgspec import Raw

from proxy.protocol.request.demand import MEMBERS
from proxy.protocol.request.tokens import Encode
from proxy.protocol.wire.json_body import Unreadable, kept_value, utf8, values_within

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


# The first rule counts whose name is part of the model's name. Any other model bills at most as many small patches as
# Qwen with ``vl_high_resolution_images`` (https://www.alibabacloud.com/help/en/model-studio/vision).
_RULES: Sequence[tuple[str, _Rule]] = (
    ("gpt-4o-mini", _Rule(2833, 5667)),
    ("gpt-4.1-mini", _Rule(patch=1.62)),
    ("gpt-4.1-nano", _Rule(patch=2.46)),
    ("gpt-4o", _Rule(85, 170)),
    ("gpt-4.1", _Rule(85, 170)),
    ("o4-mini", _Rule(patch=1.72)),
    ("claude-", _Rule(patch=1.05, side=28, most=4784)),
)
_ANY = _Rule(1445, patch=1.0, side=28, most=16_384)
_MOST_TILES = 8

_BASE64 = re.compile(r"data:([\w.+/-]*)(?:;[\w.+=\"-]*)*;base64,", re.ASCII)
# How many characters of a picture's base64 are read: a camera's notes may stand in front of its size.
_HEADER_CHARS = 1 << 20
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
# Members that may hold the file itself, or its address.
_CARRIERS = HOLDERS | {"url", "data", "uri", "fileUri", "file_uri", "result", "bytes"}
_KINDS = ("media_type", "mime_type", "mimeType", "format")
# Names that always mean a medium, wherever they are found.
_REFERENCES = (HOLDERS - {"source", "image", "audio", "video", "file", "document"}) | {
    "fileUri",
    "file_uri",
    "file_ids",
}


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


_MOST_DEPTH = 64
# The most bytes of all definitions that are named.
_MOST_WORK = 1 << 24
# The most bytes of one definition. A few kilobytes that double a thousand times have a length that no machine number
# can hold.
_MOST_UNFOLDED = 1 << 30


class _Endless(Exception):
    """The length cannot be computed: definitions name each other in turn, nest too deeply, become too long, or cannot
    be written."""


def unfolded_bytes(value: object) -> int | None:
    """The most bytes that a value grows by when its references are replaced. None if that cannot be computed. A
    reference names a definition by the last part of its path. Any definition with that name may be meant, and the
    longest one counts. A definition that names itself is replaced once."""
    named: dict[str, list[object]] = {}
    for name, one in _members(value):
        named.setdefault(name, []).append(one)
    try:
        return _Unfolding(named).added(value, ())
    except _Endless:
        return None


class _Unfolding:
    def __init__(self, named: dict[str, list[object]]) -> None:
        self._named = named
        self._known: dict[str, int] = {}
        self._work = 0

    def added(self, value: object, within: tuple[str, ...]) -> int:
        names = [one.rsplit("/", 1)[-1] for name, one in _members(value) if name == "$ref" and isinstance(one, str)]
        return sum([self._size(name, within) for name in names])

    def _size(self, name: str, within: tuple[str, ...]) -> int:
        if within[-1:] == (name,):
            return 0
        if name in within or len(within) > _MOST_DEPTH:
            raise _Endless
        if name not in self._known:
            sizes = [0]
            for one in self._named.get(name, ()):
                try:
                    own = 0 if isinstance(one, str) else len(orjson.dumps(one))
                except orjson.JSONEncodeError as error:  # too deep, or halves of surrogate pairs
                    raise _Endless from error
                self._work += own
                if self._work > _MOST_WORK:
                    raise _Endless
                sizes.append(own + self.added(one, (*within, name)))
            self._known[name] = max(sizes)
            if self._known[name] > _MOST_UNFOLDED:
                raise _Endless
        return self._known[name]


def _members(value: object) -> Iterator[tuple[str, object]]:
    """All members of all objects in the value."""
    for one in values_within(value):
        if isinstance(one, dict):
            yield from one.items()


_PIECE_CHARS = 100_000
# Marks that follow one letter are sorted by insertion: a run of 50,000 marks would take seconds, without a pause.
_NORMAL_PIECE_CHARS = 128
# Tokens that a provider adds to a prompt: a chat template and, with tools, the instructions for their use
# (Claude: up to 530 tokens, https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing).
_TEMPLATE_TOKENS = 30
_TOOL_TEMPLATE_TOKENS = 600
# The tokens that a template writes around a message, or around a part of one.
_FRAME_TOKENS = 6
# U+FDFA has 3 bytes and becomes 18 letters, of which no tokenizer makes more than 15 tokens.
_NORMALISED = 5
_ESCAPED = 9
_WIDE = bytes(range(128, 256))

SETTINGS = frozenset(
    {
        "model", "stream", "stream_options", "temperature", "top_p", "top_k", "n", "seed", "stop", "stop_sequences",
        "max_tokens", "max_completion_tokens", "max_output_tokens", "presence_penalty", "frequency_penalty",
        "logprobs", "top_logprobs", "logit_bias", "user", "parallel_tool_calls", "tool_choice", "reasoning_effort",
        "store", "service_tier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_control",
        "safety_identifier", "metadata", "reasoning", "thinking", "modalities", "verbosity",
        "include", "truncation", "anthropic_version", "encoding_format", "dimensions",
    }
)  # fmt: skip
"""Settings that control a model and are no part of its prompt, according to their published descriptions."""
TALK = frozenset(
    {
        "messages", "system", "input", "instructions", "contents", "systemInstruction", "system_instruction", "prompt",
        "suffix", "documents", "query", "prediction",
    }
)  # fmt: skip
"""Members whose texts the model reads as they are."""
# Members that the model reads as JSON, or in a shorter form of the same words.
_JSON = frozenset(
    {
        "tools", "functions", "function_call", "response_format", "text", "output_config", "output_format",
        "generationConfig",
    }
)  # fmt: skip
# Members within messages whose values the model reads as they are, after their names.
_INNER_TEXT = frozenset(
    {
        "text", "content", "parts", "thinking", "summary", "arguments", "output", "refusal", "reasoning_content",
        "tool_calls", "function", "message", "title", "context", "reasoning", "id", "call_id", "tool_call_id",
        "tool_use_id", "name", "index", "status", "role", "type",
    }
)  # fmt: skip
# The replacement for each name that no template writes.
_TITLES: Mapping[str, str] = MappingProxyType(
    {name: "" for name in ("content", "text", "parts", "id", "index", "role", "type")}
)
# Members within messages that the model reads as JSON, or in a shorter form of the same words.
_INNER_JSON = frozenset({"input", "functionCall", "functionResponse", "function_call", "args", "response", "citations"})
# The members of ``_INNER_JSON`` that may hold media.
_RESPONSES = frozenset({"functionResponse", "response"})
_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_MARK_BYTES = 64
# The type that a member must have to make its part a medium. The source of a search result is only a name.
_HELD: Mapping[str, type] = MappingProxyType({"source": dict})
# The tokens that a provider writes about a tool of its own (Claude: up to 735 tokens):
# https://platform.claude.com/docs/en/agents-and-tools/tool-use/computer-use-tool#pricing.
_OWN_TOOL_TOKENS = 1_000
# Words in the names of members with which a provider looks something up and puts it into the prompt: DashScope's
# ``enable_search`` (https://www.alibabacloud.com/help/en/model-studio/web-search), Azure's ``data_sources``
# (https://learn.microsoft.com/en-us/azure/ai-foundry/openai/references/on-your-data), connectors, knowledge bases.
_BRINGS = re.compile(r"search|retriev|knowledge|source|connector|ground", re.IGNORECASE | re.ASCII)
SETTING_BYTES = 16 << 10
"""A longer value is not a setting according to any description."""
# Types of parts that are only text. Any other part may be a medium.
_TEXTUAL = frozenset(
    {
        "text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal", "thinking",
        "redacted_thinking", "reasoning", "message", "function", "custom", "tool_use", "tool_result", "function_call",
        "function_call_output", "custom_tool_call", "custom_tool_call_output", "server_tool_use", "mcp_tool_use",
        "mcp_tool_result", "mcp_call", "mcp_list_tools", "web_search_call", "file_search_call", "local_shell_call",
        "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
        "web_search_tool_result", "web_search_result", "tool_reference", "content", "search_result", "compaction",
        "computer_call", "computer_call_output",
    }
)  # fmt: skip


class InputBound(NamedTuple):
    """The bound of a prompt, or of a value in it. ``text`` is the bound by the bytes of its texts. ``counted`` are the
    tokens of these texts if they were counted whole (None: they were not). ``bare`` is the bound by the bytes of all
    else. ``pictures`` are the pictures with their pixels. ``beyond`` names what may fill the context window.
    ``largest`` is the member with the longest value that cannot be counted."""

    text: int = 0
    counted: int | None = None
    bare: int = 0
    pictures: Sequence[Pixels | None] = ()
    beyond: str = ""
    largest: str = ""
    has_tools: bool = False

    def tokens(self, factor: float | None, model: str = "") -> int:
        """The most tokens that the model reads. The model's count may exceed the proxy's count by this ``factor``;
        None: no count is used."""
        text = self.text
        if factor is not None and self.counted is not None:
            text = min(text, math.ceil(self.counted * factor))
        found = text + self.bare + sum(picture_tokens(model, pixels) for pixels in self.pictures)
        return found + (_TOOL_TEMPLATE_TOKENS if self.has_tools else _TEMPLATE_TOKENS) if found else 0

    def words(self) -> str:
        """A text that says what the bound was made from, and what would lower it."""
        parts = [f"its texts have {self.text} bytes, of which each counts as a token"]
        if self.counted is not None:
            parts = [f"its texts have {self.counted} tokens by our count, in {self.text} bytes"]
        if self.beyond:
            parts.append(f"'{self.beyond}' is of unknown length and may fill the model's context window")
        if self.pictures:
            parts.append(f"{len(self.pictures)} of its parts are pictures")
        if self.bare and self.largest:
            parts.append(f"{self.bare} bytes more are no text, mostly in '{self.largest}', and count as a token each")
        return f"{'; '.join(parts)}; a shorter prompt and a lower output limit lower that"


def of_bytes(body: bytes) -> int:
    """The most tokens of JSON, or of any other body, that is not taken apart."""
    wide = 0 if body.isascii() else len(body) - len(body.translate(None, _WIDE))
    return len(body) + (_NORMALISED - 1) * wide + _ESCAPED * body.count(b"\\u")


def whole(found: Sequence[tuple[str, InputBound]], added: int) -> InputBound:
    """The bound of a body, made from the bounds of its values, each with its member. ``added`` bytes are written into
    the body later."""
    ones = [one for _, one in found]
    counts = [one.counted for one in ones if one.counted is not None]
    return InputBound(
        sum([one.text for one in ones]),
        sum(counts) if len(counts) == len(ones) else None,
        sum([one.bare for one in ones]) + added,
        [pixels for one in ones for pixels in one.pictures],
        next((one.beyond for one in ones if one.beyond), ""),
        max(found, key=lambda pair: pair[1].bare, default=("",))[0],
        any(member in ("tools", "functions") for member, _ in found),
    )


def weigh(name: str, raw: bytes | Raw, size_of: SizeOf, encode: Encode | None) -> InputBound:
    """The bound of this member's value, or of an element of the value. If ``encode`` is given, its texts are
    counted."""
    content, walk = bytes(raw), _Walk(size_of, encode)
    try:
        value = kept_value(content)
    except Unreadable:
        return InputBound(counted=0, bare=of_bytes(content), beyond=name[:64])
    if name in TALK:
        walk.take(value, _MOST_DEPTH)
    elif name in _JSON:
        walk.schema(value, name)
    else:
        walk.unknown(name, value, content)
    # Texts and numbers only narrow a search.
    if (
        name not in MEMBERS
        and _BRINGS.search(name)
        and any(one is True or isinstance(one, dict) for one in values_within(value))
    ):
        return walk.found()._replace(beyond=name[:64])
    return walk.found()


class _Walk:
    """Adds up the bounds of what a value holds."""

    def __init__(self, size_of: SizeOf, encode: Encode | None) -> None:
        self._size_of = size_of
        self._encode = encode
        self._text = self._counted = self._bare = 0
        self._pictures: list[Pixels | None] = []
        self._beyond = ""

    def found(self) -> InputBound:
        counted = None if self._encode is None else self._counted
        return InputBound(self._text, counted, self._bare, self._pictures, self._beyond)

    def text(self, text: str) -> None:
        for at in range(0, len(text), _PIECE_CHARS):
            self._text += _most(text[at : at + _PIECE_CHARS])
        if self._encode is not None and text:
            self._counted += self._encode(text)

    def schema(self, value: object, name: str) -> None:
        """Add a value that the model reads as JSON, with what its references unfold to."""
        written = _written(value)
        self.text(written)
        if isinstance(value, list):
            self._bare += _OWN_TOOL_TOKENS * sum(
                isinstance(one, dict) and one.get("type", "function") not in ("function", "custom") for one in value
            )
        unfolded = unfolded_bytes(value) if "$ref" in written else 0
        self._bare += unfolded or 0
        if unfolded is None:
            self._beyond = name

    def unknown(self, name: str, value: object, content: bytes) -> None:
        """Add a value that the proxy does not understand: its bytes, and what it may refer to."""
        self._bare += of_bytes(name.encode("utf-8", "replace")) + of_bytes(content) + 1
        if holds_media({name: value}):
            self._beyond = name[:64]

    def take(self, value: object, depth: int) -> None:
        """Add a value that a model reads as text."""
        if isinstance(value, str):
            self.text(value)
        elif isinstance(value, list | dict) and not depth:
            self._bare += of_bytes(_written(value).encode())
            self._beyond = "a part that is nested deeply"
        elif isinstance(value, list):
            self._bare += len(value)
            for one in value:
                self.take(one, depth - 1)
        elif isinstance(value, dict):
            self._object(value, depth)
        elif value is not None:
            self._bare += of_bytes(_written(value).encode())

    def _object(self, value: dict[str, object], depth: int) -> None:
        self._bare += _FRAME_TOKENS
        kind = value.get("type")
        if kind == "reasoning" and value.get("id") and not (value.get("encrypted_content") or value.get("content")):
            self._beyond = "reasoning"  # the provider replaces the id by what it has kept of an earlier answer
        is_text = kind is None or (isinstance(kind, str) and kind in _TEXTUAL)
        members: Iterable[tuple[str, object]] = value.items()
        if not is_text or any(isinstance(value[name], _HELD.get(name, object)) for name in HOLDERS.intersection(value)):
            medium = medium_of(value, self._size_of)
            named = kind if isinstance(kind, str) else ""
            self._medium(medium, named or next(iter(HOLDERS.intersection(value)), ""))
            members = medium.rest
        for name, one in members:
            if one is not None:
                self._member(name, one, depth)

    def _member(self, name: str, one: object, depth: int) -> None:
        if name in _INNER_TEXT:
            self.text(_TITLES.get(name, name))
            self.take(one, depth - 1)
            return
        written = _written(one)
        if name in _INNER_JSON:
            self.text(name)
            self.text(written)
            if name in _RESPONSES and holds_media(one):
                self._beyond = name
        elif name not in _MARKS or len(written) > _MARK_BYTES:
            self.unknown(name, one, written.encode())

    def _medium(self, medium: Medium, kind: str) -> None:
        if medium.text is not None:
            self.text(medium.text)
        elif medium.is_picture:
            self._pictures.append(medium.pixels)
        else:
            self._beyond = kind[:64] or "a part without a type"


def _written(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # halves of surrogate pairs
        return str(value).encode("utf-8", "replace").decode()


def _most(text: str) -> int:
    """The most tokens of a text: its bytes, or the bytes of its normal form if that is longer."""
    return len(text) if text.isascii() else sum(map(_most_normalised, _apart(text)))


def _most_normalised(piece: str) -> int:
    size = len(utf8(piece))
    if len(piece) > _NORMAL_PIECE_CHARS:
        return _NORMALISED * size
    if unicodedata.is_normalized("NFKC", piece):
        return size
    return max(size, len(utf8(unicodedata.normalize("NFKC", piece))))


def _apart(text: str) -> Iterator[str]:
    """The text in pieces. No piece but the first begins with a mark, so that no mark is sorted across pieces. A piece
    is longer than usual only if it is a run of marks."""
    start = 0
    while start < len(text):
        end = behind = min(len(text), start + _NORMAL_PIECE_CHARS)
        while end > start and end < len(text) and unicodedata.combining(text[end]):
            end -= 1
        if end == start:
            end = behind
            while end < len(text) and unicodedata.combining(text[end]):
                end += 1
        yield text[start:end]
        start = end
