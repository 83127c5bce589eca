"""The paths that make, list, read and change objects of the provider's account. Pure.

Requests of several teams reach the provider with one key of the operator. For the provider, all objects of that key's
account belong to one customer. This table says what each path does, so that a team reaches only its own objects.
A path that is not in the table may reach anything: it is off for teams, unless a team's ``paths`` allow it.

Sources: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/overview.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from proxy.core.account.paths import UNKEPT, VERBS
from proxy.core.value import dataclass

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
class Family:
    """One kind of object. ``below`` are the paths below an object, with their methods. ``makes`` are those of these
    paths that make another object. ``fixed`` are words in the place of an id that ask nothing and make nothing.
    ``is_passing``: the provider keeps these objects for about a month."""

    path: tuple[str, ...]
    below: Mapping[str, frozenset[str]]
    lists: bool = True
    makes: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    is_passing: bool = False

    @property
    def name(self) -> str:
        """The name of the family in ``paths``."""
        return "/".join(self.path)


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


RESPONSES, COMPLETIONS, BATCHES = "responses", "chat/completions", "batches"

FAMILIES = (
    Family(
        ("responses",), {"cancel": _POST, "input_items": _GET}, lists=False,
        fixed=frozenset({"compact", "input_tokens"}), is_passing=True,
    ),
    Family(("chat", "completions"), {"messages": _GET}, is_passing=True),
    Family(("files",), {"content": _GET}),
    Family(
        ("uploads",), {"parts": _POST, "complete": _POST, "cancel": _POST}, lists=False, makes=frozenset({"complete"})
    ),
    Family(("batches",), {"cancel": _POST}),
    Family(("vector_stores",), {"files": _ANY, "file_batches": _ANY, "search": _POST}),
    Family(("conversations",), {"items": _ANY}, lists=False),
    Family(("containers",), {"files": _ANY}),
    Family(("messages", "batches"), {"cancel": _POST, "results": _GET}, is_passing=True),
    Family(("videos",), {"content": _GET, "remix": _POST}, makes=frozenset({"remix"})),
)  # fmt: skip

# The path of Anthropic's batches is below the path of its messages.
_LONGEST_FIRST = sorted(FAMILIES, key=lambda one: -len(one.path))

# Verbs after a model's name that ask the model.
_ASKING_VERBS = tuple(f":{verb}" for verb in (*VERBS, "predict"))
# The parts in front of a deployment's name and its operation, in Azure and in the first version of OpenAI's API.
_PREFIXES = (("openai", "deployments"), ("deployments",), ("engines",))


def operation_of(method: str, segments: Segments) -> Operation:
    """The operation of a request with this method and path."""
    words = tuple(segment.lower() for segment in segments)
    for prefix in _PREFIXES:
        if words[: len(prefix)] == prefix and len(words) > len(prefix) + 1:
            inner = operation_of(method, segments[len(prefix) + 1 :])
            return inner if inner.act in (Act.ASK, Act.CREATE) else Operation(Act.UNKNOWN, bills=method == "POST")
    if method == "POST" and words in UNKEPT:
        return Operation(Act.ASK, words[0])
    if words[:1] in (("models",), ("engines",)):
        return _of_models(method, words)
    for family in _LONGEST_FIRST:
        size = len(family.path)
        if words[:size] == family.path:
            return _within(family, method, segments[size:])
    return Operation(Act.UNKNOWN, bills=method not in _GET and method != "DELETE")


def is_allowed(paths: Sequence[str], segments: Segments) -> bool:
    """Whether a team's ``paths`` allow this path. An entry stands for its path and all paths below it, and ``*`` for
    every path."""
    words = [segment.lower() for segment in segments]
    allowed = ([word for word in entry.lower().split("/") if word] for entry in paths)
    return "*" in paths or any(own and words[: len(own)] == own for own in allowed)


def _of_models(method: str, words: tuple[str, ...]) -> Operation:
    if method in _GET:
        return Operation(Act.ASK, bills=False)
    is_asking = method == "POST" and len(words) > 1 and words[-1].endswith(_ASKING_VERBS)
    return Operation(Act.ASK if is_asking else Act.UNKNOWN, bills=method == "POST")


def _within(family: Family, method: str, rest: Segments) -> Operation:
    name, passing = family.name, family.is_passing
    if not rest:
        if method == "POST":
            return Operation(Act.CREATE, name, makes=True, is_passing=passing)
        if method in _GET and family.lists:
            return Operation(Act.LIST, name, bills=False)
        return Operation(Act.UNKNOWN, name, bills=False)
    below = rest[1].lower() if len(rest) > 1 else ""
    allowed = family.below.get(below, frozenset()) if below else _ANY
    if rest[0].lower() in family.fixed or method not in allowed:
        return Operation(Act.UNKNOWN, name, bills=False)
    makes = below in family.makes and method == "POST"
    return Operation(Act.TOUCH, name, rest[0], below, makes=makes, is_passing=passing, bills=makes)
