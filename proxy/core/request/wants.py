"""What a request wants beyond text at the usual price: a faster tier, tools that the provider runs, sound, and content
that does not stand in its body. Pure; every fact has its source.

Service tiers: https://platform.openai.com/docs/api-reference/chat/create#chat-create-service_tier; ``fast`` is the new
name of ``priority``, https://developers.openai.com/api/docs/guides/fast-mode. Speed and place of inference:
https://platform.claude.com/docs/en/build-with-claude/fast-mode,
https://platform.claude.com/docs/en/build-with-claude/data-residency. Tools that a provider runs and bills:
https://platform.openai.com/docs/pricing#built-in-tools,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool#usage-and-pricing,
https://ai.google.dev/gemini-api/docs/google-search, https://docs.x.ai/docs/guides/tools/overview.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec import Raw

from proxy.core.wire.json_body import small_value
from proxy.core.wire.scan import scan_members


class Tool(StrEnum):
    """What a provider's own tool is billed as."""

    SEARCH = "search"
    FILES = "files"
    CODE = "code"
    READING = "reading"
    """Nothing but the tokens that it brings: pages, answers of an MCP server."""


@dataclass(frozen=True, slots=True)
class Wants:
    """``tier`` is the service tier, empty for the usual one. ``calls`` are tools that the provider may call, and how
    often at the most. ``is_beyond``: the prompt has parts that do not stand in the body."""

    tier: str = ""
    is_fast: bool = False
    is_local: bool = False
    """The request says where it is to be processed."""
    has_audio: bool = False
    is_beyond: bool = False
    calls: Sequence[tuple[Tool, int]] = ()
    searches_once: bool = False
    """The model searches before it answers, and the provider does not tell how often."""


PLAIN = Wants()

_BEYOND = ("previous_response_id", "conversation", "cachedContent", "cached_content", "container")
_WAYS = ("modalities", "generationConfig", "generation_config")
"""Where a request says whether its answer is to be spoken; one that writes it with escapes is taken to say so."""
_USUAL_TIERS = frozenset({"", "auto", "default", "standard", "standard_only", "on_demand", "scale", "reserved"})
_SAME_TIERS = {"fast": "priority"}
_CALLS = 8
"""How often a tool is taken to be called where nothing limits that."""

# The types of tools, by how they begin; dates and versions follow. The first that fits counts.
_TOOLS: Sequence[tuple[str, Tool | None]] = (
    ("web_search", Tool.SEARCH),
    ("x_search", Tool.SEARCH),
    ("live_search", Tool.SEARCH),
    ("openrouter:web_search", Tool.SEARCH),
    ("google_search", Tool.SEARCH),
    ("googlesearch", Tool.SEARCH),
    ("google_maps", Tool.SEARCH),
    ("googlemaps", Tool.SEARCH),
    ("enterprise_web_search", Tool.SEARCH),
    ("file_search", Tool.FILES),
    ("filesearch", Tool.FILES),
    ("collections_search", Tool.FILES),
    ("code_interpreter", Tool.CODE),
    ("code_execution", Tool.CODE),
    ("codeexecution", Tool.CODE),
    ("web_fetch", Tool.READING),
    ("url_context", Tool.READING),
    ("urlcontext", Tool.READING),
    ("mcp", Tool.READING),
    # Run by the client, and billed as the tokens of their calls.
    ("function", None),
    ("custom", None),
    ("namespace", None),
    ("computer", None),
    ("bash", None),
    ("text_editor", None),
    ("memory", None),
    ("local_shell", None),
    ("shell", None),
    ("apply_patch", None),
    ("tool_search", None),
    ("retrieval", None),
)
_GEMINI_FUNCTIONS = frozenset({"functiondeclarations", "function_declarations"})
_FUNCTION = Raw(b'"function"')
_KIND = re.compile(r"[\w:]{1,64}", re.ASCII)
MEMBERS = (
    "service_tier", "speed", "inference_geo", "tools", "web_search_options", "search_parameters", "plugins",
    "max_tool_calls", "mcp_servers", "deferred", *_WAYS, *_BEYOND,
)  # fmt: skip
"""The members of a body that are read here."""

MOST_VALUE_BYTES = 256
"""A longer value is neither a number nor a name, and is not built."""
_MOST_BRACES = 20_000
_MOST_COMMAS = 100_000
_TOOL_LIST = msgspec.json.Decoder(list[Raw])
_TOOL = msgspec.json.Decoder(dict[str, Raw])


def wants_of(asked: Mapping[str, Raw | bytes]) -> tuple[Wants, str]:
    """What a request wants, and the member that cannot be understood ("" where all can)."""
    found = {name: raw for name in MEMBERS if (raw := asked.get(name)) is not None and bytes(raw) != b"null"}
    if not found:
        return PLAIN, ""
    if "deferred" in found and bytes(found["deferred"]) != b"false":
        # The answer is fetched later, by a call that costs nothing itself.
        return PLAIN, "deferred"
    tier, is_text = _word(found.get("service_tier"))
    if not is_text:
        return PLAIN, "service_tier"
    calls, odd = _calls(found)
    ways = b"".join([bytes(found.get(name, b"")) for name in _WAYS]).lower()
    wanted = Wants(
        tier="" if tier in _USUAL_TIERS else _SAME_TIERS.get(tier, tier),
        is_fast=_word(found.get("speed"))[0] not in ("", "standard"),
        is_local=_word(found.get("inference_geo"))[0] not in ("", "global"),
        has_audio=b"audio" in ways or b"\\" in ways,
        is_beyond=any(name in found for name in _BEYOND),
        calls=calls,
        searches_once="web_search_options" in found,
    )
    return wanted, odd


def _calls(found: Mapping[str, Raw | bytes]) -> tuple[Sequence[tuple[Tool, int]], str]:
    """The tools that the provider may call, and the member that cannot be understood."""
    most: dict[Tool, int] = {}
    limit = _positive(found.get("max_tool_calls"))
    if "web_search_options" in found:
        most[Tool.SEARCH] = 1
    if "search_parameters" in found or "plugins" in found:
        most[Tool.SEARCH] = _CALLS
    if "mcp_servers" in found:
        most[Tool.READING] = _CALLS
    for tool in _tools(found.get("tools")):
        if tool is None:
            return (), "tools"
        for kind in _kinds(tool):
            if kind is None:
                return (), "tools"
            calls = _positive(tool.get("max_uses")) or limit or _CALLS
            most[kind] = max(most.get(kind, 0), calls)
    return tuple(most.items()), ""


def _tools(raw: Raw | bytes | None) -> Sequence[Mapping[str, Raw] | None]:
    if raw is None:
        return ()
    text = bytes(raw)
    if text.count(b"{") > _MOST_BRACES or text.count(b",") > _MOST_COMMAS:
        return (None,)
    try:
        return [known_once(one, _TOOL.decode(one)) for one in _TOOL_LIST.decode(text)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return (None,)


def known_once(raw: Raw | bytes, members: Mapping[str, Raw]) -> Mapping[str, Raw] | None:
    """The members of an object; None where a name stands twice, and servers may take another of its values."""
    if len(raw) == 1 + sum([len(name) + len(value) + 4 for name, value in members.items()]):
        return members  # written without spaces, and nothing is left over
    found = scan_members(bytes(raw))
    return members if found is not None and len(found) == len(members) else None


def _kinds(tool: Mapping[str, Raw]) -> Sequence[Tool | None]:
    """What a tool is billed as: nothing, or one kind, or several in Gemini's shape. None for one that is not known."""
    if "type" in tool:
        if tool["type"] == _FUNCTION:  # most are, and a request may have hundreds
            return ()
        kind, is_text = _word(tool["type"])
        return _known(kind) if is_text else (None,)
    # Anthropic's own functions have no type; Gemini's tools are named by their member.
    if "input_schema" in tool or "function" in tool or "name" in tool:
        return ()
    return [kind for name in tool if name.lower() not in _GEMINI_FUNCTIONS for kind in _known(name.lower())]


def _known(kind: str) -> Sequence[Tool | None]:
    if not kind:
        return ()
    for beginning, tool in _TOOLS:
        if kind.startswith(beginning):
            return () if tool is None else (tool,)
    return (None,)


def _word(raw: Raw | bytes | None) -> tuple[str, bool]:
    """A short word in small letters, and whether it is one."""
    if raw is None or bytes(raw) == b"null":
        return "", True
    found = small_value(raw, MOST_VALUE_BYTES)
    if not isinstance(found, str) or not (_KIND.fullmatch(found) or not found):
        return "", False
    return found.lower(), True


def _positive(raw: Raw | bytes | None) -> int | None:
    found = small_value(raw, MOST_VALUE_BYTES) if raw is not None else None
    return found if type(found) is int and found > 0 else None
