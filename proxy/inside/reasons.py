"""Why an attempt inside LiteLLM goes as it came although it might have been planned: a closed vocabulary."""

from collections.abc import Callable
from typing import Literal

StandDownReason = Literal[
    "settings", "starting", "another-loop", "share-of-time", "unreadable", "nested", "injection-points",
    "semantic-cache", "internal-error",
]  # fmt: skip
"""What each means stands in this package's README."""

StandDown = Callable[[StandDownReason], None]


class StoodDown(Exception):
    """The request goes as it came."""

    def __init__(self, reason: StandDownReason) -> None:
        super().__init__(reason)
        self.reason: StandDownReason = reason
