"""The parts of a request that cost money: the kind of call, its size, and what makes it dearer. Pure.

The demand is read from the path and from the small members of the body, never from the prompt. Servers differ in how
they read a value of a type that the API does not have (``"10"``, ``10.0``, ``true``): such a value counts as the
largest number that any server could read. A limit that some server could ignore does not count as a limit, so the
model's own maximum holds. A count that no server can read is named in ``unclear``, and a client whose key has a budget
is told about it.

The limits by path: https://platform.openai.com/docs/api-reference/chat/create,
https://platform.openai.com/docs/api-reference/completions/create,
https://platform.openai.com/docs/api-reference/responses/create, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/generate-content#generationconfig. For each prompt, the provider bills ``best_of`` answers,
not ``n``: https://platform.openai.com/docs/api-reference/completions/create#completions-create-best_of.

``Wants`` are the things that a request asks for beyond text at the usual price: a faster tier, tools that the provider
runs, sound, and content that is not in its body. Service tiers:
https://platform.openai.com/docs/api-reference/chat/create#chat-create-service_tier; ``fast`` is the new name of
``priority``, https://developers.openai.com/api/docs/guides/fast-mode. Speed and place of inference:
https://platform.claude.com/docs/en/build-with-claude/fast-mode,
https://platform.claude.com/docs/en/build-with-claude/data-residency. Tools that a provider runs and bills:
https://platform.openai.com/docs/pricing#built-in-tools,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool#usage-and-pricing,
https://ai.google.dev/gemini-api/docs/google-search, https://docs.x.ai/docs/guides/tools/overview. Containers are billed
by their memory, even if nothing ran in them: https://platform.openai.com/docs/pricing#built-in-tools. A provider may
summarise a long prompt first, which is billed beside the answer:
https://platform.claude.com/docs/en/build-with-claude/compaction,
https://developers.openai.com/api/docs/guides/compaction.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec import Raw

from proxy.kit.value import dataclass, replace
from proxy.protocol.wire.json_body import folded, scan_members, small_value


class Tool(StrEnum):
    """The kinds by which a provider's own tools are billed. ``CONTAINER`` is code in a container that is made for the
    request. Of ``READING`` only the tokens that the tool adds are billed: pages, answers of an MCP server."""

    SEARCH = "search"
    FILES = "files"
    CODE = "code"
    CONTAINER = "container"
    READING = "reading"


@dataclass(frozen=True, slots=True)
class Wants:
    """``tier`` is the service tier, empty for the usual one. ``calls`` are the tools that the provider may call, each
    with the greatest number of calls. ``is_beyond``: the prompt has parts that are not in the body."""

    tier: str = ""
    is_fast: bool = False
    is_local: bool = False
    """The request names the place where it is to be processed."""
    has_audio: bool = False
    is_beyond: bool = False
    calls: Sequence[tuple[Tool, int]] = ()
    searches_once: bool = False
    """The model searches before it answers, and the provider does not report how often."""
    is_summarised: bool = False
    """The provider may first summarise the prompt, in an answer of its own."""
    memory_gib: int = 0
    """The memory of all containers together."""
    is_background: bool = False
    """The provider writes the answer to its end whether the client waits for it or not:
    https://platform.openai.com/docs/guides/background."""


PLAIN = Wants()

_BEYOND = ("previous_response_id", "conversation", "cachedContent", "cached_content", "container")
# The members that say whether the answer is to be spoken. If they contain escapes, the answer counts as spoken.
_WAYS = ("modalities", "generationConfig", "generation_config")
_USUAL_TIERS = frozenset({"auto", "default", "standard", "standard_only", "on_demand", "scale", "reserved"})
_SAME_TIERS = {"fast": "priority"}
# The number of calls that is assumed for a tool if nothing limits its calls.
_CALLS = 8
# A setting of the context that contains one of these may ask for a summary: the word itself, or any escape.
_SUMMARISES = (b"compact", b"\\")
# The plugins of OpenRouter that cost no more than searches:
# https://openrouter.ai/docs/guides/features/plugins/overview.
_PLUGINS = frozenset({"web", "response-healing", "context-compression"})
# The most results of one search of a plugin: the reserved searches pay for this many.
_MOST_RESULTS = 50
_GIB: Mapping[str, int] = {"": 1, "1g": 1, "4g": 4, "16g": 16}
# The largest container: https://platform.openai.com/docs/guides/tools-code-interpreter#memory-tiers.
_MOST_GIB = 64
_MOST_OBJECT_BYTES = 256 << 10
LARGEST = 1 << 53
"""A larger number counts as this one: numbers of JSON beyond it are not exact."""

# The beginnings of the types of tools; dates and versions follow. The first one that fits counts.
_TOOLS: Sequence[tuple[str, Tool | None]] = (
    ("web_search", Tool.SEARCH),
    ("x_search", Tool.SEARCH),
    ("live_search", Tool.SEARCH),
    ("openrouter:web_search", Tool.SEARCH),
    ("openrouter:web_fetch", Tool.READING),
    ("openrouter:datetime", None),
    ("google_search", Tool.SEARCH),
    ("googlesearch", Tool.SEARCH),
    ("google_maps", Tool.SEARCH),
    ("googlemaps", Tool.SEARCH),
    ("enterprise_web_search", Tool.SEARCH),
    ("file_search", Tool.FILES),
    ("filesearch", Tool.FILES),
    ("collections_search", Tool.FILES),
    ("code_interpreter", Tool.CONTAINER),
    ("code_execution", Tool.CODE),
    ("codeexecution", Tool.CODE),
    ("web_fetch", Tool.READING),
    ("url_context", Tool.READING),
    ("urlcontext", Tool.READING),
    ("mcp", Tool.READING),
    # Texts of a knowledge base become a part of the prompt: https://docs.bigmodel.cn/cn/guide/tools/retrieval.
    ("retrieval", Tool.READING),
    # These tools are run by the client, and billed as the tokens of their calls. Only versions of them are.
    ("function", None),
    ("custom", None),
    ("computer", None),
    ("bash", None),
    ("text_editor", None),
    ("memory", None),
    ("local_shell", None),
    ("shell", None),
    ("apply_patch", None),
    ("tool_search", None),
)
_VERSION = re.compile(r"(?:_?(?:use|preview|tool|regex|bm25|v?\d+))*+", re.ASCII)
_GEMINI_FUNCTIONS = frozenset({"functiondeclarations", "function_declarations"})
COUNTS = ("n", "best_of", "num_completions", "num_generations", "candidateCount", "candidate_count")
# The members that are read within tools, plugins and settings.
_INNER = frozenset(
    {"type", "tools", "max_uses", "container", "environment", "memory_limit", "id", "max_results", "mode",
     "maxOutputTokens", "max_output_tokens", *COUNTS}
)  # fmt: skip
_FOLDED = frozenset(map(folded, _INNER))
_FUNCTION, _GROUP = Raw(b'"function"'), "namespace"
_KIND = re.compile(r"[\w:]{1,64}", re.ASCII)
WANTED_MEMBERS = (
    "service_tier", "speed", "inference_geo", "tools", "web_search_options", "search_parameters", "plugins",
    "max_tool_calls", "mcp_servers", "deferred", "context_management", "compaction", "background", *_WAYS, *_BEYOND,
)  # fmt: skip
"""The members of a body that are read here."""

MOST_VALUE_BYTES = 256
"""A longer value is neither a number nor a name, and is not decoded."""
# Longer lists of tools are not remembered.
_LONG_LIST_BYTES = 1 << 16
_MOST_BRACES = 20_000
_MOST_COMMAS = 100_000
_ARRAY = msgspec.json.Decoder(list[Raw])
_TOOL = msgspec.json.Decoder(dict[str, Raw])


def wants_of(asked: Mapping[str, Raw | bytes], limit: str = "") -> tuple[Wants, str]:
    """The wants of a request, and the member that cannot be understood ("" if all can be understood). ``limit`` is the
    member that limits the calls of tools on its path: ``max_tool_calls`` limits all calls, ``max_uses`` those of the
    tool that has it. Empty: nothing limits the calls, whatever the request says."""
    found = {name: raw for name in WANTED_MEMBERS if (raw := asked.get(name)) is not None and bytes(raw) != b"null"}
    if not found:
        return PLAIN, ""
    calls, memory_gib, odd = _calls(found, limit)
    tier, is_text = _word(found.get("service_tier"))
    if not odd and "deferred" in found and bytes(found["deferred"]) != b"false":
        odd = "deferred"  # the answer is fetched later, by a call that costs nothing itself
    if odd or not is_text:
        return PLAIN, odd or "service_tier"
    ways = b"".join([bytes(found.get(name, b"")) for name in _WAYS]).lower()
    wanted = Wants(
        tier=tier_of(tier),
        is_fast=_word(found.get("speed"))[0] not in ("", "standard"),
        is_local=_word(found.get("inference_geo"))[0] not in ("", "global"),
        has_audio=b"audio" in ways or b"\\" in ways,
        is_beyond=any(name in found for name in _BEYOND),
        calls=calls,
        searches_once="web_search_options" in found,
        is_summarised="compaction" in found
        or any(mark in bytes(found.get("context_management", b"")).lower() for mark in _SUMMARISES),
        memory_gib=memory_gib,
        is_background=bytes(found.get("background", b"false")) != b"false",
    )
    return wanted, ""


def tier_of(word: str) -> str:
    """The service tier with this name in small letters; empty for the usual one."""
    return "" if word in _USUAL_TIERS else _SAME_TIERS.get(word, word)


def _calls(found: Mapping[str, Raw | bytes], limit: str) -> tuple[Sequence[tuple[Tool, int]], int, str]:
    """The tools that the provider may call, the memory of their containers, and the member that cannot be understood.
    Of several such members, one that may call another model is named first."""
    content, overall = bytes(found.get("tools", b"null")), positive(found.get(limit)) or _CALLS
    own = (
        _tool_calls(content, limit, overall)
        if len(content) > _LONG_LIST_BYTES
        else _known_calls(content, limit, overall)
    )
    if own is None:
        return (), 0, "tools"
    most = Counter(own[0])
    most[Tool.SEARCH] += int("web_search_options" in found) + _CALLS * int("plugins" in found)
    most[Tool.READING] += _CALLS * int("mcp_servers" in found)
    if odd := max(map(_odd_plugin, _objects(found.get("plugins"))), default=""):
        return (), 0, odd
    search = found.get("search_parameters", b'{"mode":"off"}')  # https://docs.x.ai/docs/guides/live-search
    if _word((small_object(search) or {}).get("mode"))[0] != "off":
        return (), 0, "search_parameters"  # billed by sources, whose number is not reported
    return tuple((kind, min(calls, LARGEST)) for kind, calls in most.items() if calls), own[1], ""


def _tool_calls(tools: bytes, limit: str, overall: int) -> tuple[Mapping[Tool, int], int] | None:
    """The calls that a list of tools allows, and the memory of its containers; None if a tool cannot be understood."""
    most, memory_gib = Counter[Tool](), 0
    for tool in _objects(tools):
        for kind in (None,) if tool is None else _kinds(tool):
            if kind is None or tool is None:
                return None
            own = positive(tool.get("max_uses")) if limit == "max_uses" else None
            most[kind] += own or overall
            memory_gib += _gib(tool) if kind is Tool.CONTAINER else 0
    return most, memory_gib


# An agent sends the same tools with each request.
_known_calls = lru_cache(maxsize=64)(_tool_calls)


def _odd_plugin(plugin: Mapping[str, Raw] | None) -> str:
    """The member that cannot be understood in a plugin. The cost of a parser of files is unknown, but such a parser
    calls no model."""
    members = {} if plugin is None else plugin
    name = small_value(members.get("id", b"0"), MOST_VALUE_BYTES)
    results = small_value(members.get("max_results", b"5"), MOST_VALUE_BYTES)
    is_small = type(results) is int and results <= _MOST_RESULTS
    is_plain = isinstance(name, str) and name in _PLUGINS and is_small
    return "" if is_plain else "file-parser" if name == "file-parser" else "plugins"


def _gib(tool: Mapping[str, Raw]) -> int:
    """The memory of a tool's container. A container that is named by its id was paid for when it was made."""
    most = 1
    for raw in (tool[name] for name in ("container", "environment") if name in tool):
        if bytes(memoryview(raw)[:1]) != b'"':
            size, is_text = _word((small_object(raw) or {"memory_limit": raw}).get("memory_limit"))
            most = max(most, _GIB.get(size, _MOST_GIB) if is_text else _MOST_GIB)
    return most


def _objects(raw: Raw | bytes | None) -> Sequence[Mapping[str, Raw] | None]:
    """The objects of a list; None for each item that is no object."""
    text = b"null" if raw is None else bytes(raw)
    if text == b"null":
        return ()
    if text.count(b"{") <= _MOST_BRACES and text.count(b",") <= _MOST_COMMAS:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [_known_once(one, _TOOL.decode(one)) for one in _ARRAY.decode(text)]
    return (None,)


def small_object(raw: Raw | bytes) -> Mapping[str, Raw] | None:
    """An object's members; None for a value that is no object, is too large, or could be read in different ways."""
    if len(raw) <= _MOST_OBJECT_BYTES:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _known_once(raw, _TOOL.decode(raw))
    return None


def _known_once(raw: Raw | bytes, members: Mapping[str, Raw]) -> Mapping[str, Raw] | None:
    """The members of an object; None if a name occurs twice, or if only some servers read it as one of those that are
    read here, because servers may take either value."""
    if any(name not in _INNER and folded(name) in _FOLDED for name in members):
        return None
    if len(raw) == 1 + sum([len(name) + len(value) + 4 for name, value in members.items()]):
        return members  # written without spaces, and nothing is left over
    found = scan_members(bytes(raw))
    return members if found is not None and len(found) == len(members) else None


def _kinds(tool: Mapping[str, Raw]) -> Sequence[Tool | None]:
    """The kinds by which a tool is billed: none, one, or several in Gemini's shape. The item None stands for an unknown
    tool, and for each tool in a group of functions that is no function."""
    if "type" in tool:
        if tool["type"] == _FUNCTION:  # most tools are functions, and a request may have hundreds of them
            return ()
        kind, is_text = _word(tool["type"])
        if kind == _GROUP:
            # https://platform.openai.com/docs/api-reference/responses/create: it has functions and custom tools only.
            # A group within it is unknown, because that could go on without end.
            inner = _objects(tool.get("tools"))
            return [None for one in inner if one is None or _word(one.get("type"))[0] == _GROUP or _kinds(one)]
        if kind == "shell" and "environment" in tool:
            where = (small_object(tool["environment"]) or {}).get("type", b"")
            return () if bytes(where) == b'"local"' else (Tool.CONTAINER,)
        return _known(kind) if is_text else (None,)
    # Anthropic's own functions have no type; Gemini's tools are named by their member.
    if "input_schema" in tool or "function" in tool or "name" in tool:
        return ()
    return [kind for name in tool if name.lower() not in _GEMINI_FUNCTIONS for kind in _known(name.lower())]


def _known(kind: str) -> Sequence[Tool | None]:
    tools = [
        () if tool is None else (tool,)
        for beginning, tool in _TOOLS
        if kind.startswith(beginning) and (tool is not None or _VERSION.fullmatch(kind, len(beginning)))
    ]
    return () if not kind else tools[0] if tools else (None,)


def _word(raw: Raw | bytes | None) -> tuple[str, bool]:
    """A short word in small letters, and whether the value is such a word."""
    if raw is None or bytes(raw) == b"null":
        return "", True
    found = small_value(raw, MOST_VALUE_BYTES)
    if not isinstance(found, str) or not (_KIND.fullmatch(found) or not found):
        return "", False
    return found.lower(), True


def positive(raw: Raw | bytes | None) -> int | None:
    """A number above zero that every server reads alike; None for any other value."""
    found = small_value(raw, MOST_VALUE_BYTES) if raw is not None else None
    return min(found, LARGEST) if type(found) is int and found > 0 else None


Asked = Mapping[str, Raw | bytes]
"""Members of a body, unparsed."""


class BillingKind(StrEnum):
    """The quantity by which a call is billed."""

    TEXT = "text"
    """Tokens of a prompt and of answers."""
    PROMPT = "prompt"
    """Tokens of a prompt alone: embeddings, moderation."""
    RERANK = "rerank"
    IMAGE = "image"
    SPEECH = "speech"
    TRANSCRIPTION = "transcription"
    FREE = "free"
    UNKNOWN = "unknown"
    """A call whose cost the proxy cannot tell: training, batches, videos, runs of assistants."""


UNIT_KINDS = frozenset({BillingKind.IMAGE, BillingKind.SPEECH, BillingKind.TRANSCRIPTION, BillingKind.RERANK})
"""Calls that cost something although their answers report no tokens."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One request's demand. ``max_output_tokens`` is the greatest length of each of the ``answers``; None if the
    request does not limit it."""

    kind: BillingKind = BillingKind.TEXT
    max_output_tokens: int | None = None
    answers: int = 1
    least_output_tokens: int = 0
    """For a request without a valid limit: a number that some server may take for a limit. An answer may be at least
    that long."""
    predicted_tokens: int = 0
    """How many tokens of a predicted answer may be billed as output beside each answer, counted by its bytes:
    https://platform.openai.com/docs/guides/predicted-outputs#limitations."""
    unclear: str = ""
    """The member that cannot be understood; empty if all can be understood."""
    wants: Wants = PLAIN
    images: int = 0
    documents: int = 0
    characters: int = 0
    """The characters of the text that is to be spoken, at most."""
    seconds: float = 0.0
    """The seconds of sound that are to be made or transcribed, at most."""


@dataclass(frozen=True, slots=True)
class _Path:
    """How requests on paths with this ending are billed, and which members limit the answer there. ``calls`` is the
    member that limits the calls of tools (``wants_of``)."""

    ending: str
    kind: BillingKind
    limits: Sequence[str] = ()
    calls: str = ""


_CHAT = ("max_tokens", "max_completion_tokens")
# llama.cpp's own name for a limit, which overrides ``max_tokens`` there. Other servers ignore it, so that it is no
# limit by itself: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
_OVERRIDING = "n_predict"
_PATHS = (
    _Path("/threads/[^/]+/messages", BillingKind.FREE),
    _Path("/chat/completions", BillingKind.TEXT, _CHAT),
    _Path("/completions", BillingKind.TEXT, ("max_tokens",)),
    _Path("/responses", BillingKind.TEXT, ("max_output_tokens",), "max_tool_calls"),
    _Path("/responses/compact", BillingKind.TEXT),
    _Path("/messages", BillingKind.TEXT, ("max_tokens",), "max_uses"),
    _Path(":(?:stream)?generatecontent", BillingKind.TEXT, ("maxOutputTokens", "max_output_tokens")),
    _Path("/embeddings|/moderations|:(?:batch)?embedcontents?", BillingKind.PROMPT),
    _Path("/rerank", BillingKind.RERANK),
    _Path("/images/(?:generations|edits|variations)", BillingKind.IMAGE),
    _Path("/audio/speech", BillingKind.SPEECH),
    _Path("/audio/(?:transcriptions|translations)", BillingKind.TRANSCRIPTION),
    _Path("/files|/uploads(?:/[^/]+(?:/(?:parts|complete|cancel))?)?|/responses/[^/]+/cancel", BillingKind.FREE),
    _Path("/messages/count_tokens|/responses/input_tokens|:counttokens|/(?:de)?tokenize", BillingKind.FREE),
    _Path("/conversations(?:/[^/]+(?:/items)?)?|/chat/completions/(?!batch$)[^/]+", BillingKind.FREE),
    _Path("/threads(?:/(?!runs$)[^/]+)?|/assistants(?:/[^/]+)?", BillingKind.FREE),
)
_BY_ENDING = tuple((re.compile(f"(?:{path.ending})$"), path) for path in _PATHS)
_PLAIN_PATH = re.compile(r"[\w./:@+-]*", re.ASCII)
_SETTINGS = ("generationConfig", "generation_config")
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_TEXT = ("prompt", "input", "documents", "prediction", "inputs")
MEMBERS = (*_CHAT, _OVERRIDING, "max_output_tokens", *COUNTS[:4], *_TEXT, *WANTED_MEMBERS)
"""The members of a body that are read here."""

# The most images of one form: https://platform.openai.com/docs/api-reference/images/createEdit#images-createedit-n.
_MOST_IMAGES = 10
# The most seconds of speech per character: speech has ten or more characters a second.
_CHARACTER_S = 0.1
# https://platform.openai.com/docs/api-reference/audio/createSpeech#audio-createspeech-speed
_SLOWEST = 4.0
# The longest file that a provider takes: https://elevenlabs.io/docs/capabilities/speech-to-text.
_LONGEST_SOUND_S = 36_000.0
_LARGE_BYTES = 512 << 10
# A longer value is no number. It is not read, because reading it could take long.
_MOST_NUMBER_BYTES = 1024
# No provider gives as many answers to one prompt.
_MOST_ANSWERS = 1000


def demand_of(method: str, path: str, asked: Asked | None, sound_s: float | None = None) -> Demand:
    """The demand of a request. ``path`` is the path as the most lenient server reads it, in small letters. ``asked``
    are those members of its body that ``MEMBERS`` names, None for a body that was not read. ``sound_s`` is the length
    of the sound in the request, if it is known."""
    known = () if method in _HARMLESS or not _PLAIN_PATH.fullmatch(path) else _BY_ENDING
    missing = _Path("", BillingKind.FREE if method in _HARMLESS else BillingKind.UNKNOWN)
    found = next((one for ending, one in known if ending.search(path)), missing)
    match found.kind:
        case BillingKind.TEXT if asked is not None:
            return _text_demand(found, asked) if asked else Demand(found.kind)
        case BillingKind.TEXT | BillingKind.SPEECH | BillingKind.PROMPT if asked is None:
            return Demand(found.kind, unclear="body")
        case BillingKind.FREE if asked and "inputs" in asked:
            # A conversation of Mistral's, which asks a model: https://docs.mistral.ai/api/#tag/beta.conversations.
            return Demand(BillingKind.UNKNOWN)
        case BillingKind.UNKNOWN:
            return Demand(found.kind)
        case BillingKind.IMAGE:
            # The fields of a form are not read: a form may ask for the largest number of images.
            count = _MOST_IMAGES if asked is None else _few(asked["n"]) if "n" in asked else 1
            return Demand(found.kind, 0, unclear="" if count else "n", images=count or 1)
        case BillingKind.RERANK:
            # At least the number of documents: commas inside a document count, too.
            listed = (asked or {}).get("documents")
            return Demand(found.kind, 0, documents=0 if listed is None else bytes(listed).count(b",") + 1)
        case BillingKind.SPEECH if asked is not None:
            characters, slowness = len(asked.get("input", b"")), 1.0 if "speed" not in asked else _SLOWEST
            return Demand(found.kind, 0, characters=characters, seconds=characters * _CHARACTER_S * slowness)
        case BillingKind.TRANSCRIPTION:
            return Demand(found.kind, 0, seconds=_LONGEST_SOUND_S if sound_s is None else sound_s)
        case _:
            return Demand(found.kind, 0)


def _text_demand(found: _Path, asked: Asked) -> Demand:
    settings = {name: small_object(asked[name]) for name in _SETTINGS if name in asked and not _is_null(asked[name])}
    sources = (asked, *(members for members in settings.values() if members is not None))
    given = [one[name] for one in sources for name in found.limits if name in one and not _is_null(one[name])]
    if given and _OVERRIDING in asked and not _is_null(asked[_OVERRIDING]):
        given.append(asked[_OVERRIDING])
    limits = [positive(raw) for raw in given]
    answers, unclear = 1, ""
    for name, raw in ((name, source[name]) for source in sources for name in COUNTS if name in source):
        count = _few(raw)
        answers, unclear = max(answers, count or 1), unclear or ("" if count else name)
    if "prompt" in asked and found.ending == "/completions":
        prompts = _prompts(asked["prompt"])
        answers, unclear = answers * (prompts or 1), unclear or ("" if prompts else "prompt")
    known = [limit for limit in limits if limit is not None]
    limit = max(known) if known and len(known) == len(limits) else None
    unclear = unclear or next((name for name, members in settings.items() if members is None), "")
    wanted, odd = wants_of(asked, found.calls)
    if "prompt" in asked and found.ending != "/completions":
        wanted = replace(wanted, is_beyond=True)  # a stored prompt, which is not in the body
    least = max(_count(raw) or 0 for raw in given) if given and limit is None else 0
    more = len(asked["prediction"]) if "prediction" in asked and not _is_null(asked["prediction"]) else 0
    return Demand(found.kind, limit, answers, least, more, odd or unclear, wanted)


def _few(raw: Raw | bytes) -> int | None:
    """A count of answers; None if it cannot be read, or is larger than any server accepts."""
    return count if (count := _count(raw)) is not None and count <= _MOST_ANSWERS else None


def _count(raw: Raw | bytes) -> int | None:
    """The largest count that a server could read from the value; None if no server could read one."""
    found = small_value(raw, _MOST_NUMBER_BYTES)
    if isinstance(found, str):
        try:
            found = float(found.strip().replace("_", ""))
        except ValueError:
            return None
    if isinstance(found, bool) or (found is None and _is_null(raw)):
        return 1
    if isinstance(found, int) or (isinstance(found, float) and math.isfinite(found)):
        return max(1, min(math.ceil(found), LARGEST))
    return None


def _prompts(raw: Raw | bytes) -> int | None:
    """How many prompts the member holds. A string or an array of token ids is one prompt. None for a member of another
    type."""
    text = bytes(raw)
    if text[:1] != b"[":
        return 1 if text[:1] in b'"n' else None
    if len(text) <= _LARGE_BYTES:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = _ARRAY.decode(text)
            tokens = sum(1 for one in found if bytes(memoryview(one)[:1]) in b"-0123456789")
            return len(found) - tokens + (tokens > 0) or 1
    # Commas inside strings count, too: the count may be too large but never too small, and a large text is not decoded.
    return text.count(b",") + 1


def _is_null(raw: Raw | bytes) -> bool:
    return bytes(memoryview(raw)[:4]) == b"null"


_WRITING = frozenset({BillingKind.TEXT, BillingKind.UNKNOWN})
# Training, stores, videos, and calls that end another call: https://platform.openai.com/docs/api-reference.
_OTHERS = re.compile(
    r"/(?:fine_tuning|vector_stores|videos|containers|skills|organization)(?:/|$)"
    r"|/(?:evals(?:/[^/]+)?|classify|score|pooling|ocr)$"
    r"|/(?:batches|runs)/[^/]+/cancel$"
)


def asks_for_text(method: str, path: str) -> bool:
    """Whether a request may ask a model for a text. ``path`` is the path as the most lenient server reads it, in small
    letters."""
    return demand_of(method, path, {}).kind in _WRITING and _OTHERS.search(path) is None
