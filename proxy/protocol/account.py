"""Reads which objects of the provider's account a call touches: the paths that ask models, and those that make, list,
read and change objects. (``references`` reads bodies and answers.) The owner of each object is kept elsewhere
(``proxy.engine.custody``). Pure.

A request's path is read in one way that all checks share. Servers differ in how they read a path: some decode it twice,
cut a segment off at a semicolon, take a backslash or a full-width slash for a slash, drop empty segments, or stop at a
zero byte. A path that two servers could read differently is refused for everybody, so that every accepted path has one
reading. The path is sent on as the client wrote it.

The paths on which a request asks a model are in one table, for rights, prices, retries and the account's objects.

Requests of several teams reach the provider with one key of the operator. For the provider, all objects of that key's
account belong to one customer. A second table says what each path does to them, so that a team reaches only its own
objects. A path that is not in the table may reach anything: it is off for teams, unless a team's ``paths`` allow it.

Sources: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/overview,
https://ai.google.dev/api/generate-content.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from itertools import takewhile

from proxy.kit.errors import NotFound
from proxy.kit.value import dataclass

INVALID_PATH = "invalid_path"
MOST_PATH_CHARS = 2048
# A model's name may have a slash, which clients encode: the official SDK asks for /models/org%2Fname.
NAME_MODELS = frozenset({"models", "model", "engines", "deployments"})
# Segments that gateways and providers put in front of the paths that they share.
_FRONTS = frozenset({"v1", "v1beta", "v1beta1", "v2", "api", "openai", "beta"})
_RAW = re.compile(r"(?:/(?:[!$&-.0-\[\]^_`a-z{|}~]|%[0-9A-Fa-f]{2})*+)++")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
# Delimiters of paths, queries and fragments, and characters that some servers read as one of them.
_DELIMITERS = frozenset("\\%;?#")


@dataclass(frozen=True, slots=True)
class Path:
    """The part of a path after ``/v1``, as it was read. ``segments`` are decoded and otherwise as the client wrote
    them. ``words`` are the same in small letters. Both leave out segments in front of the paths that all providers
    share, such as a further ``v1``; ``skipped`` counts the segments that are left out. An encoded slash of a model's
    name stays within its segment. ``text`` is the path in small letters as the most lenient server reads it, without a
    slash at its end."""

    segments: tuple[str, ...]
    words: tuple[str, ...]
    text: str
    skipped: int


def read_path(raw: str) -> Path:
    """The reading of the part of a path after ``/v1``, which is percent-encoded as it came. Raises NotFound if there is
    more than one reading."""
    if len(raw) > MOST_PATH_CHARS:
        raise _invalid(f"it is longer than {MOST_PATH_CHARS} characters")
    if _RAW.fullmatch(raw) is None:
        raise _invalid("it has characters that a path must percent-encode, or a percent sign that encodes nothing")
    try:
        segments = [percent_decoded(segment.encode("ascii")) for segment in raw[1:].split("/")]
    except UnicodeDecodeError as error:
        raise _invalid("it is not UTF-8") from error
    if segments[-1] == "":
        segments.pop()
    skipped = len(list(takewhile(lambda segment: segment.lower() in _FRONTS, segments)))
    for number, segment in enumerate(segments):
        names_model = number > 0 and any(word.lower() in NAME_MODELS for word in segments[:number])
        for part in segment.split("/") if names_model else (segment,):
            _check(part)
    kept = tuple(segments[skipped:])
    words = tuple(segment.lower() for segment in kept)
    return Path(kept, words, "".join(f"/{word}" for word in words), skipped)


def percent_decoded(text: bytes) -> str:
    """The text with every escape replaced by its byte. Raises UnicodeDecodeError."""
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text).decode()


def _check(part: str) -> None:
    if part == "":
        raise _invalid("it has an empty segment")
    if part.endswith(".") or part.strip() != part:
        raise _invalid("a segment ends in a dot, or begins or ends with a space")
    if "/" in part or not _DELIMITERS.isdisjoint(part):
        raise _invalid("a segment holds an encoded slash, or one of the characters \\ % ; ? #")
    if not part.isprintable():
        raise _invalid("it has a control character")
    # Full-width and similar forms: some servers turn them into the ASCII characters that they resemble.
    letters = [letter for letter in part if not letter.isascii()]
    forms = (form for one in letters for form in (one.upper(), one.lower(), unicodedata.normalize("NFKC", one)))
    if any(character.isascii() for form in forms for character in form):
        raise _invalid("it has characters that some servers replace by others")


def _invalid(why: str) -> NotFound:
    return NotFound(f"the path cannot be read in one way only: {why}", code=INVALID_PATH)


@dataclass(frozen=True, slots=True)
class AskingPath:
    """A path on which only the body of a POST names the model.

    ``keeps``: according to the path, what is made there may be kept as an object of the account. ``by_tokens``: a
    request changes nothing, so that it may be sent again, and is billed by tokens. This also holds with anything in
    front of the path. ``behind_name``: the path may follow the name of an engine or a deployment. ``is_free``: it costs
    nothing, and the body may leave out the model.
    """

    text: str
    keeps: bool = False
    by_tokens: bool = False
    behind_name: bool = False
    is_free: bool = False


_PATHS = (
    AskingPath("/chat/completions", keeps=True, by_tokens=True, behind_name=True),
    AskingPath("/completions", by_tokens=True, behind_name=True),
    AskingPath("/fim/completions", by_tokens=True),
    AskingPath("/complete", keeps=True),
    AskingPath("/responses", keeps=True, by_tokens=True, behind_name=True),
    AskingPath("/responses/compact", by_tokens=True),
    AskingPath("/responses/input_tokens"),
    AskingPath("/messages", by_tokens=True),
    AskingPath("/messages/count_tokens"),
    AskingPath("/embeddings", by_tokens=True, behind_name=True),
    AskingPath("/moderations", is_free=True),
    AskingPath("/rerank", behind_name=True),
    AskingPath("/score"),
    AskingPath("/classify"),
    AskingPath("/pooling"),
    AskingPath("/tokenize"),
    AskingPath("/detokenize"),
    AskingPath("/ocr"),
    AskingPath("/edits"),
    AskingPath("/images/generations", behind_name=True),
    AskingPath("/images/edits", behind_name=True),
    AskingPath("/images/variations", behind_name=True),
    AskingPath("/audio/speech", behind_name=True),
    AskingPath("/audio/transcriptions", behind_name=True),
    AskingPath("/audio/translations", behind_name=True),
    AskingPath("/videos", keeps=True),
    AskingPath("/realtime/sessions", keeps=True),
    AskingPath("/realtime/client_secrets", keeps=True),
    AskingPath("/realtime/transcription_sessions", keeps=True),
    AskingPath("/assistants", keeps=True),
    AskingPath("/threads/runs", keeps=True),
)
ASKING_PATHS: Mapping[str, AskingPath] = {one.text: one for one in _PATHS}
"""The rows by ``Path.text``."""
UNKEPT = frozenset(tuple(one.text[1:].split("/")) for one in _PATHS if not one.keeps)
"""The words of the paths on which no object is made that could be kept."""
_RUNS = re.compile(r"/threads/[^/]+/runs")
VERBS = frozenset({"generatecontent", "streamgeneratecontent", "counttokens", "embedcontent"})
"""The words that may follow a model's name and a colon, in small letters."""
_GENERATING = (
    *(one.text for one in _PATHS if one.by_tokens), ":generatecontent", ":streamgeneratecontent", ":embedcontent",
)  # fmt: skip


def is_body_path(text: str) -> bool:
    """Whether only the body of a POST on this path (``Path.text``) names the model."""
    return text in ASKING_PATHS or _RUNS.fullmatch(text) is not None


def takes_prompt(path: Path) -> bool:
    """Whether a request's ``prompt`` and ``suffix`` are all that a model reads, however its path is written."""
    return path.text.endswith("/completions") and not path.text.endswith("/chat/completions")


def asks_model(method: str, path: Path) -> bool:
    """Whether a request asks a model, changes nothing and is billed by tokens, however its path is written."""
    # The messages of a thread are stored, and no model is asked.
    return method == "POST" and path.text.endswith(_GENERATING) and "/threads/" not in path.text


Segments = Sequence[str]
"""A path behind ``/v1``, decoded once and cut at its slashes, without empty parts."""

_GET = frozenset({"GET", "HEAD"})
_ANY = frozenset({"GET", "HEAD", "POST", "DELETE"})
_POST = frozenset({"POST"})


class Act(Enum):
    """The effect of a request on the objects of the account."""

    ASK = auto()
    """It reaches no object, except those to which its body refers."""
    CREATE = auto()
    """It makes an object."""
    LIST = auto()
    """It lists the objects of a family."""
    TOUCH = auto()
    """It reads, changes or deletes one object, or something below it."""
    UNKNOWN = auto()
    """It is not in the table."""


@dataclass(frozen=True, slots=True)
class ObjectFamily:
    """One kind of object. ``below`` are the paths below an object, with their methods. ``makes`` are those of these
    paths that make another object. ``fixed`` are words in the place of an id that ask nothing and make nothing.
    ``is_passing``: the provider keeps these objects for about a month."""

    path: tuple[str, ...]
    below: Mapping[str, frozenset[str]]
    lists: bool = True
    makes: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    is_passing: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of a request. ``object_id`` is the object that its path names, and ``below`` is the rest of the
    path after it."""

    act: Act
    family: str = ""
    object_id: str = ""
    below: str = ""
    makes: bool = False
    is_passing: bool = False
    bills: bool = True
    """The usage in the answer belongs to this request."""
    is_free_form: bool = False
    """It is not known which members of the body hold the client's own JSON."""


RESPONSES, COMPLETIONS, BATCHES = "responses", "chat/completions", "batches"

FAMILIES = (
    ObjectFamily(
        ("responses",), {"cancel": _POST, "input_items": _GET}, lists=False,
        fixed=frozenset({"compact", "input_tokens"}), is_passing=True,
    ),
    ObjectFamily(("chat", "completions"), {"messages": _GET}, is_passing=True),
    ObjectFamily(("files",), {"content": _GET}),
    ObjectFamily(
        ("uploads",), {"parts": _POST, "complete": _POST, "cancel": _POST}, lists=False, makes=frozenset({"complete"})
    ),
    ObjectFamily(("batches",), {"cancel": _POST}),
    ObjectFamily(("vector_stores",), {"files": _ANY, "file_batches": _ANY, "search": _POST}),
    ObjectFamily(("conversations",), {"items": _ANY}, lists=False),
    ObjectFamily(("containers",), {"files": _ANY}),
    ObjectFamily(("messages", "batches"), {"cancel": _POST, "results": _GET}, is_passing=True),
    ObjectFamily(("videos",), {"content": _GET, "remix": _POST}, makes=frozenset({"remix"})),
)  # fmt: skip

# The path of Anthropic's batches is below the path of its messages.
_LONGEST_FIRST = sorted(FAMILIES, key=lambda one: -len(one.path))

# Verbs after a model's name that ask the model, in a form that is known.
_ASKING_VERBS = tuple(f":{verb}" for verb in VERBS)
# The parts in front of a deployment's name and its operation, in Azure and in the first version of OpenAI's API.
_PREFIXES = (("openai", "deployments"), ("deployments",), ("engines",))


def operation_of(method: str, segments: Segments) -> Operation:
    """The operation of a request with this method and path."""
    words = tuple(segment.lower() for segment in segments)
    for prefix in _PREFIXES:
        if words[: len(prefix)] == prefix and len(words) > len(prefix) + 1:
            inner = operation_of(method, segments[len(prefix) + 1 :])
            if inner.act in (Act.ASK, Act.CREATE):
                return inner
            return Operation(Act.UNKNOWN, bills=method == "POST", is_free_form=True)
    if method == "POST" and words in UNKEPT:
        return Operation(Act.ASK, words[0])
    if words[:1] in (("models",), ("engines",)):
        if method in _GET:
            return Operation(Act.ASK, bills=False)
        asked = words[-1] if method == "POST" and len(words) > 1 else ""
        is_known = asked.endswith(_ASKING_VERBS)
        act = Act.ASK if is_known or asked.endswith(":predict") else Act.UNKNOWN
        return Operation(act, bills=method == "POST", is_free_form=not is_known)
    family = next((one for one in _LONGEST_FIRST if words[: len(one.path)] == one.path), None)
    if family is None:
        return Operation(Act.UNKNOWN, bills=method not in _GET and method != "DELETE", is_free_form=True)
    rest, name, passing = segments[len(family.path) :], "/".join(family.path), family.is_passing
    if not rest:
        if method == "POST":
            return Operation(Act.CREATE, name, makes=True, is_passing=passing)
        return Operation(Act.LIST if method in _GET and family.lists else Act.UNKNOWN, name, bills=False)
    below = rest[1].lower() if len(rest) > 1 else ""
    allowed = family.below.get(below, frozenset()) if below else _ANY
    if rest[0].lower() in family.fixed or method not in allowed:
        return Operation(Act.UNKNOWN, name, bills=False)
    makes = below in family.makes and method == "POST"
    return Operation(Act.TOUCH, name, rest[0], below, makes=makes, is_passing=passing, bills=makes)


def is_allowed(paths: Sequence[str], segments: Segments) -> bool:
    """Whether a team's ``paths`` allow this path. An entry stands for its path and all paths below it, and ``*`` for
    every path."""
    words = [segment.lower() for segment in segments]
    allowed = ([word for word in entry.lower().split("/") if word] for entry in paths)
    return "*" in paths or any(own and words[: len(own)] == own for own in allowed)
