"""The objects of the provider's account that a body refers to. Pure.

Before anything is parsed, a body is searched for the names of members that refer to objects. Hardly any body has such a
name. If one has, the body is read whole: also members that occur twice, in upper or lower case, and with escapes. So
every reader behind the proxy finds only what was found here. On paths whose form is known, members whose content is the
client's own JSON (schemas of tools, arguments, metadata) are skipped, because for the provider nothing in them is a
reference. So the threads that Codex names in ``client_metadata`` are Codex's own. On other paths nothing is skipped:
the ``parameters`` of Vertex's ``:predict`` say where results are stored.

An address of a store (``gs://bucket/name``, ``s3://...``) is read with the rights of the operator's account, whatever
the name of its member. So it refers to an object in every member that is searched, except the texts that a model reads.
"""

import json
import re
from collections.abc import Iterator

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass

MOST_REFERENCES = 256
_MOST_BYTES = 8 << 20
_MOST_COMMAS = 250_000
# The most escapes of any kind. Each takes a reader as much time as a long text without escapes.
_MOST_ESCAPES = 500_000
MOST_ID_CHARS = 512

# Member -> the family to which it refers, by its name in ``paths``.
_IDS = {
    "previous_response_id": "responses", "response_id": "responses", "response_ids": "responses",
    "conversation_id": "conversations", "completion_id": "chat/completions",
    "file_id": "files", "file_ids": "files", "input_file_id": "files", "input_file_ids": "files",
    "output_file_id": "files", "training_file": "files", "validation_file": "files",
    "vector_store_id": "vector_stores", "vector_store_ids": "vector_stores",
    "container_id": "containers", "batch_id": "batches", "upload_id": "uploads", "video_id": "videos",
    "thread_id": "threads", "assistant_id": "assistants", "run_id": "threads", "message_id": "threads",
    "skill_id": "skills", "prompt_id": "prompts", "voice_id": "voices",
    "cached_content": "cachedcontents", "cachedcontent": "cachedcontents",
    # Stores in which a provider's tools look: https://ai.google.dev/gemini-api/docs/file-search,
    # https://cloud.google.com/vertex-ai/generative-ai/docs/rag-engine/rag-api,
    # https://docs.x.ai/docs/guides/tools/collections-search-tool,
    # https://docs.mistral.ai/agents/tools/built-in/document_library, https://docs.bigmodel.cn/cn/guide/tools/retrieval.
    "file_search_store_names": "filesearchstores", "filesearchstorenames": "filesearchstores",
    "rag_corpus": "ragcorpora", "ragcorpus": "ragcorpora", "rag_corpora": "ragcorpora", "ragcorpora": "ragcorpora",
    "datastore": "datastores", "data_store": "datastores", "collection_ids": "collections",
    "library_ids": "libraries", "knowledge_id": "knowledge",
    "file_uri": "files", "fileuri": "files", "gcs_uri": "files", "gcsuri": "files",
}  # fmt: skip
# Google's addresses of stored files. A ``fileUri`` may also be a page that everybody can read:
# https://ai.google.dev/api/caching#FileData.
_ADDRESSES = frozenset({"file_uri", "fileuri", "gcs_uri", "gcsuri"})
_PUBLIC = re.compile(r"https?://(?![^/]*googleapis\.com)[a-z0-9.-]+(?::\d+)?/", re.ASCII | re.IGNORECASE)
# The schemes of addresses that are read without the rights of an account. Every other scheme is a store's.
_OPEN_SCHEMES = "https?|wss?|file"
_STORE = re.compile(rf"(?!(?:{_OPEN_SCHEMES}):)[a-z][a-z0-9+.-]{{1,15}}://", re.ASCII | re.IGNORECASE)
# The members that a model reads as text, and the proxy's own member, which is not sent.
_TEXTS = frozenset({"content", "instructions", "output", "prompt", "stratiform", "system", "text", "thinking"})
# Members whose value is an id, or an object with an ``id``.
_HOLDERS = {"conversation": "conversations", "container": "containers"}
# Members that refer to something only if their value is an object with an ``id``.
_OBJECTS = {"prompt": "prompts", "audio": "chat/completions", "voice": "voices", "video": "videos"}
_ITEM = "responses"
# Azure's sources of data, each of which brings credentials of the client, or is read with the identity of the
# operator's resource: https://learn.microsoft.com/azure/ai-services/openai/references/on-your-data.
_SOURCES = frozenset({"data_sources", "datasources"})
_SOURCE_FAMILY = "data_sources"
_BROUGHT = frozenset(
    {"api_key", "connection_string", "key_and_key_id", "encoded_api_key", "access_token", "username_and_password"}
)
_NAMED = frozenset(name.encode() for name in (*_IDS, *_HOLDERS, *_SOURCES))
_NAMED_OBJECTS = frozenset(map(str.encode, _OBJECTS))
_NAME = re.compile(rb'"[a-z_]{4,32}+"')
_BEGINS_OBJECT = re.compile(rb'"[ \t\r\n]*+:[ \t\r\n]*+\{')
_MOST_NAMES = 100_000
_ITEM_NEEDLE = b'"id"'
_OPAQUE = frozenset(
    {"parameters", "input_schema", "output_schema", "schema", "json_schema", "metadata", "client_metadata", "arguments"}
)
_TOOL_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_ITEM_LISTS = frozenset({"input", "items"})
# An item of these kinds is looked up by its id, unless it has its own content.
_LOOKED_UP = {"item_reference": "", "reasoning": "encrypted_content", "image_generation_call": "result"}
# The escape of a letter or an underscore: names have no other characters.
_ESCAPE = rb"\\u00(?:5f|[46][1-9a-f]|[57][0-9a])"
# A name in which some letter is escaped. Texts are not searched for escaped letters: only a short string between quotes
# can be a name. Only a client that hides a name escapes letters in JSON.
_ESCAPED_NAME = re.compile(rb'"(?=[a-z_]*+\\)(?:[a-z_]|' + _ESCAPE + rb'){2,32}"')
_ANY_ESCAPE = re.compile(_ESCAPE)
_SLASHES = re.compile(rb":(?:\\?/){2}")
_BEGIN_OF_STORE = re.compile(rb'(?<!\\)"(?!(?:' + _OPEN_SCHEMES.encode() + rb")\Z)[a-z][a-z0-9+.-]{1,15}\Z")
# The longest beginning in front of the slashes: a backslash, the quote and the scheme.
_MOST_BEGIN_BYTES = 18
# The same with at least one escaped character.
_ESCAPED_STORE = re.compile(
    rb'"(?<!\\")(?:[a-z0-9+.-]|' + _ESCAPE + rb"|\\u00(?:3[0-9]|2[bde])){2,16}+(?::|\\u003a)(?:\\?/|\\u002f){2}"
)
_ESCAPED_SIGN = re.compile(rb"\\u00(?:2[bdef]|3[0-9a]|[46][1-9a-f]|[57][0-9a])")
_STEP_BYTES = 256 << 10
# The address to which a request of a batch is sent. Its slash or a letter may be escaped.
_RESPONSES = re.compile(rb"/responses|\\u002f|" + _ESCAPE)
_BLANKS = b" \t\r\n"
# The longest name of a member, with an escape for each of its characters.
_OVERLAP_BYTES = 256


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that a body refers to. ``member`` is the member that refers to it, for the error."""

    id: str
    family: str
    member: str


class _Object(list[tuple[str, object]]):
    """A JSON object with all of its members, also those that occur twice."""


def _object(pairs: list[tuple[str, object]]) -> _Object:
    # This is a Python function, so that other threads get their turn between two objects.
    return _Object(pairs)


def may_refer(body: bytes, *, has_items: bool = False) -> bool:
    """Whether the body may refer to anything. ``has_items``: on this path an item of the input may be given by its id
    alone."""
    return _refers(body.lower(), has_items=has_items)


class LineFile:
    """A file that arrives in pieces and may hold requests, one on each line. ``may_refer``: one of the requests may
    refer to objects, or the file is written in a form in which references cannot be found here. After that, no more of
    the file is read."""

    __slots__ = ("_has_ids", "_has_items", "_tail", "may_refer")

    def __init__(self) -> None:
        self.may_refer = False
        self._tail = b""
        self._has_items = self._has_ids = False

    def feed(self, piece: bytes) -> None:
        """Look at a piece, together with the end of the piece before."""
        if self.may_refer:
            return
        text = self._tail + piece
        small = text.lower()
        self._has_items = self._has_items or _RESPONSES.search(small) is not None
        self._has_ids = self._has_ids or _ITEM_NEEDLE in small or _escapes(small)
        self.may_refer = b"\0" in piece or (self._has_items and self._has_ids) or _refers(small, has_items=False)
        # The end of the piece is kept without the blanks behind its last two tokens, however many blanks there are. A
        # name at the end of a piece is then found together with what follows it.
        end = text.rstrip(_BLANKS)
        if end.endswith(b":"):
            end = end[:-1].rstrip(_BLANKS) + b":"
        self._tail = end[-_OVERLAP_BYTES:]


def _refers(small: bytes, *, has_items: bool) -> bool:
    """Whether a text in small letters may refer to anything."""
    return (has_items and _ITEM_NEEDLE in small) or _is_named(small) or _escapes(small) or _has_store(small)


def _is_named(small: bytes) -> bool:
    """Whether a string between two quotes is the name of a member that refers to an object. Also true if there is too
    much text to look at."""
    for number, found in enumerate(_found(_NAME, small)):
        name = found[0][1:-1]
        if name in _NAMED or number >= _MOST_NAMES:
            return True
        if name in _NAMED_OBJECTS and _BEGINS_OBJECT.match(small, found.end() - 1) is not None:
            return True
    return False


def _escapes(small: bytes) -> bool:
    """Whether a string between two quotes that may be a name has an escaped letter. No writer of JSON escapes letters,
    so a body with such letters is read whole."""
    return _ANY_ESCAPE.search(small) is not None and next(_found(_ESCAPED_NAME, small), None) is not None


def _has_store(small: bytes) -> bool:
    """Whether a string may begin with the address of a store. Also true if there is too much text to look at."""
    has_slashes = b":/" in small or b":\\/" in small  # far cheaper than the search for a pattern
    for number, found in enumerate(_found(_SLASHES, small) if has_slashes else ()):
        begin = small[max(0, found.start() - _MOST_BEGIN_BYTES) : found.start()]
        if number >= _MOST_NAMES or _BEGIN_OF_STORE.search(begin) is not None:
            return True
    return (
        b"\\u00" in small
        and _ESCAPED_SIGN.search(small) is not None
        and any(b"\\u" in found[0] for found in _found(_ESCAPED_STORE, small))
    )


def _found(pattern: re.Pattern[bytes], small: bytes) -> Iterator[re.Match[bytes]]:
    """Where a pattern is found. One piece is searched at a time, so that other threads get their turn."""
    for at in range(0, len(small), _STEP_BYTES):
        yield from pattern.finditer(small, at, at + _STEP_BYTES + _OVERLAP_BYTES)


def references(body: bytes, *, has_items: bool, is_free_form: bool = False) -> list[Reference]:
    """The objects to which a JSON body refers, each once. ``is_free_form``: on this path it is not known which members
    hold the client's own JSON. Raises InvalidRequest for a body that cannot be read or is too large."""
    if not may_refer(body, has_items=has_items):
        return []
    if len(body) > _MOST_BYTES or body.count(b",") > _MOST_COMMAS or body.count(b"\\") > _MOST_ESCAPES:
        most = f"{_MOST_BYTES >> 20} MiB, {_MOST_COMMAS} commas and {_MOST_ESCAPES} backslashes"
        raise InvalidRequest(f"a body that refers to stored objects may have {most}")
    try:
        parsed = json.loads(body.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            "the body seems to refer to stored objects and cannot be read: send plain JSON", code="invalid_json"
        ) from error
    found = dict.fromkeys(_walk(parsed, has_items, frozenset() if is_free_form else _OPAQUE))
    if len(found) > MOST_REFERENCES:
        raise InvalidRequest(f"the body refers to more than {MOST_REFERENCES} stored objects")
    return list(found)


def family_of(member: str) -> str | None:
    """The family to which a member of this name refers, for parameters of a query and fields of a form."""
    name = member.partition("[")[0].strip().lower()
    return _IDS.get(name) or _HOLDERS.get(name)


def _walk(root: object, has_items: bool, opaque: frozenset[str]) -> Iterator[Reference]:
    """Every reference in the value, outside of opaque members. The search has a stack of its own, so that depth causes
    no recursion."""
    stack: list[tuple[object, bool]] = [(root, False)]
    while stack:
        value, is_item = stack.pop()
        if isinstance(value, _Object):
            if is_item:
                yield from _item(value)
            is_tool_use = any(
                name.lower() == "type" and isinstance(kind, str) and kind in _TOOL_USES for name, kind in value
            )
            for name, inner in value:
                plain = name.lower()
                yield from _member(plain, inner, value)
                if plain not in _TEXTS and plain not in _IDS:
                    yield from _addresses(plain, inner)
                if plain in opaque or (opaque and is_tool_use and plain == "input"):
                    continue
                if isinstance(inner, list):
                    stack.append((inner, has_items and plain in _ITEM_LISTS and not isinstance(inner, _Object)))
        elif isinstance(value, list):
            stack += [(inner, is_item) for inner in value if isinstance(inner, list)]


def _member(name: str, value: object, holder: _Object) -> Iterator[Reference]:
    if (family := _IDS.get(name)) is not None:
        if name == "skill_id" and any(key.lower() == "type" and kind == "anthropic" for key, kind in holder):
            return  # the provider's own
        for one in _ids(name, value, family):
            if name not in _ADDRESSES or _PUBLIC.match(one.id) is None:
                yield one
        return
    if name in _SOURCES:
        yield from _sources(name, value)
        return
    family = _HOLDERS.get(name) or _OBJECTS.get(name)
    if family is None:
        return
    if isinstance(value, _Object):
        for key, inner in value:
            if key.lower() == "id":
                yield from _ids(name, inner, family)
    elif name in _HOLDERS:
        yield from _ids(name, value, family)


def _sources(name: str, value: object) -> Iterator[Reference]:
    """The sources of data for which the request does not bring credentials."""
    for source in value if isinstance(value, list) and not isinstance(value, _Object) else (value,):
        ways = [
            way
            for parameters in _values(source, "parameters")
            for authentication in _values(parameters, "authentication")
            for way in _values(authentication, "type")
        ]
        if source is not None and not all(isinstance(way, str) and way in _BROUGHT for way in ways):
            kind = next((kind for kind in _values(source, "type") if isinstance(kind, str)), _SOURCE_FAMILY)
            yield Reference(kind[:MOST_ID_CHARS], _SOURCE_FAMILY, name)


def _values(holder: object, name: str) -> list[object]:
    """All values that an object has for a name; one None if there are none."""
    return [value for key, value in holder if key.lower() == name] or [None] if isinstance(holder, _Object) else [None]


def _addresses(name: str, value: object) -> Iterator[Reference]:
    """The addresses of stores in the member: its text, or the texts of its list."""
    for one in value if isinstance(value, list) and not isinstance(value, _Object) else (value,):
        if isinstance(one, str) and _STORE.match(one) is not None:
            yield Reference(one[:MOST_ID_CHARS], "files", name)


def _ids(name: str, value: object, family: str) -> Iterator[Reference]:
    if value is None or isinstance(value, _Object):
        return  # the members of an object are looked at by themselves
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, str) and one:
            yield Reference(one[:MOST_ID_CHARS], family, name)
        elif one is not None and not isinstance(one, _Object):
            raise InvalidRequest(f"'{name}' must hold the ids of objects", param=name)


def _item(item: _Object) -> Iterator[Reference]:
    """The reference of an input item that stands for a stored item."""
    members = {name.lower(): value for name, value in item}
    for kind in [value for name, value in item if name.lower() == "type"] or [None]:
        content = _LOOKED_UP.get(kind) if isinstance(kind, str) else ""
        if content is None or (kind is None and members.get("content") is not None):
            continue
        if content and (members.get(content) or members.get("content")):
            continue
        for name, value in item:
            if name.lower() == "id":
                yield from _ids("id", value, _ITEM)
