"""The values of the registry: a prompt with its position, conditions and variables, and the errors about it.

No error message has a text of a prompt or a value of the context.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from proxy.core.value import dataclass, field


class Position(StrEnum):
    """The positions, in the order in which they are composed. ``LAST_USER`` is the very end of the newest user
    message."""

    SYSTEM_PREFIX = "system_prefix"
    SYSTEM = "system"
    SYSTEM_SUFFIX = "system_suffix"
    CONTEXT = "context"
    TOOLS = "tools"
    PLUGINS = "plugins"
    AGENTS = "agents"
    CONSTRAINTS = "constraints"
    EXAMPLES = "examples"
    USER_PREFIX = "user_prefix"
    USER = "user"
    USER_SUFFIX = "user_suffix"
    LAST_USER = "last_user"

    @property
    def is_system(self) -> bool:
        return self in SYSTEM_POSITIONS


SYSTEM_POSITIONS = tuple(Position)[:9]
BEFORE_USER = (Position.USER_PREFIX, Position.USER)
"""In front of the client's own text, in this order."""
AFTER_USER = (Position.USER_SUFFIX, Position.LAST_USER)
"""After the client's own text, in this order."""


ROOTS = ("mission", "target", "agent", "memory", "variables", "custom")
"""The roots of the context that conditions and templates see. Time is none of them."""

MOST_PRIORITY = 1_000_000
"""The highest priority of a prompt. Its negative is the lowest."""

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
ID_RULE = "1 to 128 letters, digits and . _ : / -, and begin with a letter or a digit"
"""``ID_PATTERN`` in words that follow "must be"."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A value of the context."""
PromptContext = Mapping[str, Mapping[str, Json]]
"""The context, with an object for each root. Every root is present."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that must hold for a prompt to be composed. ``field`` is a path with dots that begins with a root;
    ``operator`` is one of ``proxy.core.prompts.conditions.OPERATORS``."""

    field: str
    operator: str
    value: Json = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that the prompt's template may use. Its value is that of ``source``, which is a path as in a condition, or
    else the ``default``. A prompt never sees what another prompt resolves."""

    name: str
    source: str = ""
    required: bool = False
    default: Json = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is registered. ``text`` is the template; if it ``is_literal``, it is sent unchanged. The prompt is
    composed only in the capability profile ``profile`` ("": in each). For messages, ``origin`` says where the prompt
    comes from, and ``first_line`` where its text begins in a file."""

    id: str
    position: Position
    text: str = field(repr=False)
    priority: int = 0
    conditions: tuple[Condition, ...] = ()
    variables: tuple[Variable, ...] = ()
    profile: str = ""
    description: str = ""
    is_literal: bool = False
    origin: str = ""
    first_line: int = field(default=1, compare=False)


class ConditionError(Exception):
    """A condition cannot be evaluated. ``code`` is one of ``invalid_operator``, ``invalid_path``, ``invalid_pattern``,
    ``invalid_type`` and ``too_long``. The error's text says why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class RenderError(Exception):
    """A template cannot be rendered with this context, or a variable that the prompt requires has no value in it. The
    error's text says why."""


class PromptFailure(Exception):
    """In strict mode: a prompt cannot be composed. ``is_client`` says whether the prompt came with the request, so that
    the mistake is the client's and not the operator's. ``why`` says what is wrong."""

    def __init__(self, prompt_id: str, *, is_client: bool, why: str) -> None:
        super().__init__(f"the prompt '{prompt_id}' cannot be composed: {why}")
        self.prompt_id = prompt_id
        self.is_client = is_client
        self.why = why
