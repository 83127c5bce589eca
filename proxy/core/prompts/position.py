"""Where a prompt stands."""

from enum import StrEnum


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
        """Whether the prompt is part of the system text."""
        return self in SYSTEM_POSITIONS


SYSTEM_POSITIONS = tuple(Position)[:9]
BEFORE_USER = (Position.USER_PREFIX, Position.USER)
"""In front of the client's own text, in this order."""
AFTER_USER = (Position.USER_SUFFIX, Position.LAST_USER)
"""Behind the client's own text, in this order."""
