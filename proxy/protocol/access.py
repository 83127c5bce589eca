"""Finds out which models a request can reach, for chats, raw paths, forms and compressed bodies. Pure.

The path, the headers and the body of a request come in. Every model that the request names goes out, or a refusal if
two servers could read the request differently. This grants nothing: ``proxy.engine.intake`` compares the answer
with the rights of the key.

A request names its model in the body, in the path or in the query, and it may name more models: fallbacks of a gateway
(``models`` and ``route`` of OpenRouter, https://openrouter.ai/docs/guides/routing/model-fallbacks; ``fallbacks`` of
LiteLLM, https://docs.litellm.ai/docs/proxy/client_side_fallbacks, and of Anthropic), presets
(https://openrouter.ai/docs/features/presets), the model of a tool, of a session, of a transcription. All of them are
checked against a key's models and its budgets. A member that may choose a model and is not in the table here counts as
not understood.

Every server must find in a request what was found here. If a name occurs twice, servers differ in which value counts
(most take the last one, as the proxy does). Some servers also read ``Model`` as ``model``. Then one value would be
checked against a key's models and budgets, and the other one would be served. So each name goes out whether or
not the proxy can take the body apart.

The rights of a key are lists of models. Names have stars in model lists and allow-lists: ``openai/*`` stands for every
name that begins with ``openai/``.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Raw

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass, field, replace
from proxy.protocol.account import ASKING_PATHS, VERBS, Path, is_body_path, percent_decoded
from proxy.protocol.request import HEAD_NAMES, UTF8_MARK, RequestFields, head_of
from proxy.protocol.request.demand import small_object
from proxy.protocol.wire.json_body import Unreadable, elements, folded, join_members, scan_members, text_value

# Servers cut names at a zero byte, trim them, or build a path or a query from them. So the names "gpt-4o?-mini" and
# "gpt-4o\0-mini" do not count as names that end in "-mini".
_ORDINARY = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\\%?#<>\"'`&;|^{}\u200b-\u200f\u2028-\u202e\ufeff\ud800-\udfff]*+")


def allows(lists: Iterable[Sequence[str]], names: Sequence[str], groups: Collection[str] = ()) -> bool:
    """Whether every list allows a model that has any of these names, or is in any of these groups. An empty list allows
    all models. A group is listed by its whole name: patterns apply to names of models only.

    A team's list and a key's list must both allow the model, so the narrower list always wins. A name that servers may
    read in different ways is allowed only if it is listed exactly as it is, or if all names are allowed.
    """
    return all(
        any(
            pattern in groups
            or any(
                pattern == name or _is_all(pattern) or (matches(pattern, name) and is_ordinary(name)) for name in names
            )
            for pattern in patterns
        )
        for patterns in lists
        if patterns
    )


def allows_all(lists: Iterable[Sequence[str]]) -> bool:
    """Whether every list allows every model."""
    return all(any(_is_all(pattern) for pattern in patterns) for patterns in lists if patterns)


def is_ordinary(name: str) -> bool:
    """Whether every server reads the name alike, wherever the server uses it."""
    return _ORDINARY.fullmatch(name) is not None and "/../" not in f"/{name}/"


def captured(pattern: str, name: str) -> tuple[str, ...] | None:
    """The part of the name that each star of the pattern stands for; None if the name does not match the pattern.

    If there are several ways to match, the first star takes as much as it can, then the second star, and so on.
    ``(.*)`` of a regular expression does the same; but here the time grows with the lengths only, whatever the number
    of stars.
    """
    first, *others = pattern.split("*")
    if not others:
        return () if pattern == name else None
    last = others.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return None
    end = len(name) - len(last)
    found: list[str] = []
    for part in reversed(others):
        at = name.rfind(part, len(first), end)
        if at < 0:
            return None
        found.append(name[at + len(part) : end])
        end = at
    found.append(name[len(first) : end])
    return tuple(reversed(found))


def matches(pattern: str, name: str) -> bool:
    """Whether the name matches the pattern. The time grows with their lengths, not with the number of stars."""
    return captured(pattern, name) is not None


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Whether the name matches any of the patterns."""
    return any(matches(pattern, name) for pattern in patterns)


def fitting(patterns: Collection[str], names: Sequence[str]) -> list[str]:
    """The patterns that match one of a model's names, the most general one first. Patterns with stars come first, those
    with the fewest fixed characters in front; then come whole names in the order of ``names``."""
    wide = [one for one in patterns if "*" in one and any(matches(one, name) for name in names)]
    whole = dict.fromkeys(name for name in names if "*" not in name and name in patterns)
    return [*sorted(wide, key=lambda one: (len(one.replace("*", "")), one)), *whole]


def _is_all(pattern: str) -> bool:
    return pattern != "" and pattern.strip("*") == ""


_WORDS = ("model", "fallback", "preset")
# A member or a parameter of the whole request may also choose what stands for a model: a deployment (Azure, LiteLLM's
# ``deployment_id``), an engine, an adapter of its weights (https://huggingface.co/docs/text-generation-inference), a
# variant (https://www.tensorzero.com/docs), an agent of Mistral's.
_CHOICE = re.compile(
    "|".join(_WORDS)
    + r"|(?:^|(?<!user)[_.:-])(?:engine|deployment|adapter|lora|variant|llm)s?(?:[_-]?(?:id|name)s?)?$|^agent[_-]?id$"
)
_BYTES = (*(word.encode() for word in _WORDS), b"\\u")
# Members that a client defines for the model to fill in, and that say how it is called: a function may well have a
# parameter named "model".
_FUNCTION_MEMBERS = frozenset(
    {
        "type", "function", "name", "description", "input_schema", "parameters", "strict", "cache_control",
        "functionDeclarations", "function_declarations", "allowed_callers", "defer_loading", "eager_input_streaming",
        "format", "input_examples", "output_schema",
    }
)  # fmt: skip
# A group of functions, as Codex sends it: https://platform.openai.com/docs/api-reference/responses/create.
_GROUP = b'"namespace"'
_GROUP_MEMBERS = frozenset({"type", "name", "description", "tools"})
_FUNCTION = Raw(b'"function"')
_FUNCTIONS = (b'"function"', b'"custom"')
_MOST_NAMES_BYTES = 64 << 10


def speaks_of_models(name: str) -> bool:
    """Whether a member, a parameter or a header of that name may choose a model for the whole request."""
    return _CHOICE.search(folded(name)) is not None


def may_choose(raw: bytes) -> bool:
    """Whether any member within could choose a model. This is quick, because it looks only at the bytes."""
    small = raw.lower()
    return any(word in small for word in _BYTES) or not raw.isascii()


def chooses(raw: bytes) -> bool:
    """Whether some member within may choose a model: its name speaks of a model, and its value is no number and no
    flag. Also true for bytes that cannot be read."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
        found.extend(name for name, value in pairs if value and isinstance(value, str | list))
        return pairs

    try:
        json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=look)
    except (ValueError, RecursionError):
        return True
    return any(word in folded(name) for name in found for word in _WORDS)


def names_of(raw: bytes) -> Sequence[str]:
    """The names that a member chooses whose value is a list of names or of objects. A key of an object may also be a
    name: LiteLLM writes ``{"fallbacks": [{"this": ["that"]}]}``. Raises Unreadable."""

    def parts(pairs: list[tuple[str, object]]) -> list[object]:
        return [part for name, value in pairs for part in ((value,) if speaks_of_models(name) else (name, value))]

    try:
        left = [json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=parts)]
    except (ValueError, RecursionError) as error:
        raise Unreadable("it cannot be read") from error
    names = []
    while left:
        one = left.pop()
        if isinstance(one, str):
            names.append(one)
        elif isinstance(one, list):
            left += reversed(one)
    return names


def is_plain_function(tool: Raw) -> bool:
    """Whether the tool is only a function in one of the usual forms, or a group of such functions, so that it need not
    be read. Raises Unreadable."""
    if (members := small_object(tool)) is None or bytes(members.get("type", _FUNCTION)) != _GROUP:
        return _is_function(members)
    return members.keys() <= _GROUP_MEMBERS and all(
        _is_function(small_object(inner)) for inner in elements(members.get("tools", b"[]"))
    )


def _is_function(members: Mapping[str, Raw] | None) -> bool:
    if members is None or not members.keys() <= _FUNCTION_MEMBERS:
        return False
    return bytes(members.get("type", _FUNCTION)) in _FUNCTIONS


Headers = Sequence[tuple[str, str]]
Values = Mapping[str, Raw | bytes]

_READS = ("GET", "HEAD")
# Members whose values are names of models.
_NAMING = frozenset({"model", "models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks"})
# Members whose content a model reads or fills in, and which never choose the model.
_CONTENT = frozenset(
    {
        "messages", "input", "prompt", "suffix", "system", "instructions", "contents", "content", "systemInstruction",
        "system_instruction", "query", "documents", "texts", "file", "image", "mask", "metadata", "stop", "logit_bias",
        "response_format", "text", "output_config", "output_format", "functions", "function_call", "tool_choice",
        "structured_outputs", "guided_json", "guided_choice", "chat_template_kwargs", "prediction", "stratiform",
        "user", "stream_options", "generationConfig", "generation_config", "thinking", "reasoning", "litellm_metadata",
    }
)  # fmt: skip
# A server that follows another charset may find other members in the same bytes (UTF-7 writes a quote as "+ACI-").
_CHARSET = re.compile(r"charset\b[\s*]*+=\s*+[\"']?+([^\s;\"',]*+)")
_PLAIN_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", ""})
_PRESET = "@preset/"
# Headers that make another request of it, or that choose the provider at Portkey's gateway.
_CHANGING = re.compile("override|^x-http-method$|^x-portkey-(?:config|provider|virtual-key)$")
_OWN_HEADERS = "x-stratiform-"
MODEL_HEADER = "x-stratiform-model"
"""The header with the model whose deployment serves a request that names no model, such as one for a file."""
# With this beta of Anthropic's a message may define a tool. Other changes of tools name those of the request.
_INLINE_TOOLS = "inline-tools"
_MOST_MODELS = 32
_MOST_BYTES = 1 << 20
_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """The place where a path names a model: the number of the segment in the path as it was sent, and what follows the
    name within that segment."""

    name: str
    number: int
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a request can reach. ``models`` are all models that it names. The first one decides where the request goes.

    ``unread`` says which part is not understood, so that neither its models nor its price are known; empty: all parts
    are understood. ``is_foreign``: it is unknown what the path reaches. ``is_listing``: the request only asks which
    models there are. ``place`` is where the path names a model. ``chosen`` is the model whose deployment shall serve a
    request that names no model. It gives no right to that model.
    """

    models: tuple[str, ...] = ()
    unread: str = ""
    is_foreign: bool = False
    is_listing: bool = False
    place: ModelPlace | None = None
    chosen: str = ""


@dataclass(slots=True)
class _Found:
    models: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    left: int = _MOST_BYTES

    def is_chosen_by(self, raw: bytes) -> bool:
        """Whether a value may choose a model. The search over all values together has a bound."""
        self.left -= len(raw)
        return self.left < 0 or chooses(raw)

    def add(self, names: Sequence[str]) -> None:
        for name in names:
            if _PRESET in name.lower():
                self.unread.append("a preset of the provider's account may choose any model")
            if name not in self.models:
                self.models.append(name)
            if len(self.models) > _MOST_MODELS:
                self.unread.append(f"it names more than {_MOST_MODELS} models")
                return


def reach_of(
    method: str,
    path: Path,
    query: str = "",
    headers: Headers = (),
    members: Values | None = None,
    form_model: str | None = None,
    *,
    has_body: bool = True,
) -> Reach:
    """All models that the request can reach. ``members`` are those of its JSON body; None: it has no JSON body that was
    understood. ``form_model`` is the model of a form; None: the body is no form."""
    chosen = next((value for name, value in headers if name == MODEL_HEADER), "")
    if method in _READS and path.words[:1] == ("models",) and not has_body and not chosen:
        return Reach(is_listing=True)
    row = ASKING_PATHS.get(path.text)
    is_named_in_body = row is not None or is_body_path(path.text)
    place, by_body = None if is_named_in_body else place_of(path), method == "POST" and is_named_in_body
    needs_model = by_body and not (row is not None and row.is_free)
    found = _Found()
    if members is not None:
        _read_members(members, found)
    elif form_model is not None:
        found.add([form_model] if form_model else [])
    elif has_body and (by_body or place is not None):
        found.unread.append("its body is no JSON object that could be read here")
    if place is not None:
        found.add([place.name])
    if query:
        _read_query(query, found)
    _read_headers(headers, found)
    if not found.models and needs_model:
        found.unread.append("it names no model")
    if has_body and method != "POST" and (place is not None or is_named_in_body):
        found.unread.append("only POST is understood there")
    is_foreign = not by_body and (place is None or method != "POST")
    if found.models or place is not None or needs_model:
        chosen = ""
    return Reach(tuple(found.models), next(iter(found.unread), ""), is_foreign, place=place, chosen=chosen)


def place_of(path: Path) -> ModelPlace | None:
    """The place where a path names its model: /engines/X/completions, /openai/deployments/X/chat/completions,
    /models/X:generateContent."""
    segments, words = path.segments, path.words
    if len(words) > 2 and words[0] in ("engines", "deployments"):
        behind = ASKING_PATHS.get("/" + "/".join(words[2:]))
        return ModelPlace(segments[1], path.skipped + 1) if behind is not None and behind.behind_name else None
    if len(words) == 2 and words[0] == "models":
        name, colon, verb = segments[1].rpartition(":")
        return ModelPlace(name, path.skipped + 1, colon + verb) if name and verb.lower() in VERBS else None
    return None


def _read_members(members: Values, found: _Found) -> None:
    first = ["model"] if "model" in members else []
    for name in (*first, *(name for name in members if name not in ("model", *_CONTENT))):
        raw = bytes(members[name])
        if raw[:1] not in (b'"', b"[", b"{"):
            continue  # a number or a flag chooses nothing
        try:
            if name in _NAMING and len(raw) > _MOST_NAMES_BYTES:
                found.unread.append("a member that names models is too long")
            elif name in _NAMING:
                found.add([str(text_value(raw))] if raw.startswith(b'"') else names_of(raw))
            elif _may_choose(name, raw, members, found):
                found.unread.append(f"its member '{ascii(name)[1:-1][:_SHOWN_CHARS]}' may choose a model")
        except Unreadable as error:
            found.unread.append(str(error))


def _may_choose(name: str, raw: bytes, members: Values, found: _Found) -> bool:
    """Whether a member of another name may choose a model. Raises Unreadable."""
    if name == "route":  # OpenRouter chooses a fallback itself if no models are named
        return raw != b'"fallback"' or "models" not in members
    if speaks_of_models(name):
        return True
    if raw.startswith(b'"') or not may_choose(raw):
        return False  # for most members, one look at the bytes is enough
    if name == "tools":
        tools = (tool for tool in elements(raw) if not is_plain_function(tool))
        return any(may_choose(bytes(tool)) and found.is_chosen_by(bytes(tool)) for tool in tools)
    return found.is_chosen_by(raw)


def _read_query(query: str, found: _Found) -> None:
    for part in query.replace(";", "&").split("&"):
        name, _, value = part.partition("=")
        plain, text = _decoded(name), _decoded(value)
        if plain is None or text is None:
            found.unread.append("its query is not UTF-8")
            continue
        word = folded(plain).partition("[")[0]
        if "%" in plain:
            found.unread.append("its query is encoded twice")
        elif word == "_method":
            found.unread.append("its query names another method")
        elif speaks_of_models(word):
            found.add([text])


def _read_headers(headers: Headers, found: _Found) -> None:
    kinds = set[str]()
    for name, value in ((name.replace("_", "-"), value) for name, value in headers):
        if name == "content-type":
            kinds.add(value)
            if not _PLAIN_CHARSETS.issuperset(_CHARSET.findall(value.lower())):
                found.unread.append("its content type names a character set other than UTF-8")
        elif not name.startswith(_OWN_HEADERS) and (speaks_of_models(name) or _CHANGING.search(name)):
            found.unread.append(f"the header '{name}' may choose a model, or another method")
        elif name == "anthropic-beta" and _INLINE_TOOLS in value.lower():
            found.unread.append("tools that are defined within the messages are not read")
    if len(kinds) > 1:
        found.unread.append("it has several content types")


def _decoded(text: str) -> str | None:
    try:
        return percent_decoded(text.replace("+", " ").encode("latin-1"))
    except UnicodeError:
        return None


_SHOWN_NAME_CHARS = 128
# The member that describes structured context. Only the proxy reads it. Under another name it would be sent to the
# provider.
_SECTION = "stratiform"


def unambiguous(head: RequestFields) -> RequestFields:
    """The head of the request with every name once, and its members. Raises InvalidRequest for a name that only some
    servers read as one of those names that decide where a request goes and what it may cost."""
    if head.parsed is None and head.body.startswith(UTF8_MARK):
        # Not every server skips this mark, and the proxy does not take apart a body that begins with it.
        head = head_of(head.body.removeprefix(UTF8_MARK))
    if (parsed := head.parsed) is not None:
        check_names(parsed.members)
        return head if parsed.spans() is not None else head_of(join_members(parsed.members, {}))
    if (scanned := scan_members(head.body)) is None:
        return head
    check_names(member.name for member in scanned)
    found = {member.name: member.value for member in scanned}
    return replace(head if len(found) == len(scanned) else head_of(join_members(found, {})), members=found)


def check_names(names: Iterable[str]) -> None:
    """Raises InvalidRequest for a name that only some servers read as one of the head's names, and for a name that only
    resembles that of structured context."""
    for name in names:
        if name not in _EXACT and (meant := _FOLDED.get(folded(name))):
            what = f"write '{meant}' exactly so: servers differ in what they make of it in another form"
            raise InvalidRequest(what, param=ascii(name)[1:-1][:_SHOWN_NAME_CHARS])


_EXACT = frozenset({*HEAD_NAMES, _SECTION})
_FOLDED: Mapping[str, str] = {folded(name): name for name in _EXACT}
