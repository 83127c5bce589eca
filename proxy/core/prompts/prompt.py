"""One prompt of the registry."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.prompts.position import Position

ROOTS = ("mission", "target", "agent", "memory", "variables", "custom")
"""The roots of the context that conditions and templates see. Time is none of them."""

MOST_PRIORITY = 1_000_000
"""Of a prompt, upwards and downwards."""

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
ID_RULE = "1 to 128 letters, digits and . _ : / -, and begin with a letter or a digit"
"""What ``ID_PATTERN`` says, in words behind "must be"."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A value of the context."""
PromptContext = Mapping[str, Mapping[str, Json]]
"""The context: for each root an object. Every root is present."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a prompt to be composed. ``field`` is a path with dots that begins with a root; ``operator``
    is one of ``proxy.core.prompts.conditions.OPERATORS``."""

    field: str
    operator: str
    value: Json = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that the prompt's template may use. Its value is that of ``source``, a path as a condition's, or else the
    ``default``. Nothing that a prompt resolves is seen by another prompt."""

    name: str
    source: str = ""
    required: bool = False
    default: Json = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is registered. ``text`` is the template; where ``is_literal`` it is sent as it stands. ``profile``
    is the capability profile in which alone the prompt is composed ("": in each). ``origin`` says where the prompt
    comes from, and ``first_line`` where in a file its text begins, for messages."""

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
