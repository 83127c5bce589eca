"""Why an attempt inside LiteLLM goes as it came although it might have been planned: a closed vocabulary."""

from collections.abc import Callable
from typing import Literal

StandDownReason = Literal[
    "settings", "starting", "another-loop", "share-of-time", "unreadable", "nested", "injection-points",
    "semantic-cache", "internal-error",
]  # fmt: skip
"""What each means stands in this package's README."""


StandDownReason = Literal[
    "settings", "starting", "another-loop", "share-of-time", "unreadable", "nested", "injection-points",
    "semantic-cache", "internal-error",
]  # fmt: skip
"""``settings``: the ``stratiform`` section is broken, or what it names cannot be used. ``starting``: planner and store
are still being built. ``another-loop``: they belong to another event loop. ``share-of-time``: planning has had its
share of the process's time. ``unreadable``: the arguments have no form in JSON, or are no chat request. ``nested``:
LiteLLM makes the call within another one that was planned. ``injection-points``: LiteLLM's own markers leave no room.
``semantic-cache``: LiteLLM's response cache compares texts. ``internal-error``: an error of our own was contained."""

StandDown = Callable[[StandDownReason], None]


class StoodDown(Exception):
    """The request goes as it came."""

    def __init__(self, reason: StandDownReason) -> None:
        super().__init__(reason)
        self.reason: StandDownReason = reason
