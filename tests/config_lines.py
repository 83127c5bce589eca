"""Messages about a configuration, without the lines at which they point."""

import re
from collections.abc import Iterable

_LINE = re.compile(r" \(line [0-9]+\)$")


def bare(messages: Iterable[str]) -> list[str]:
    """The messages as the settings make them."""
    return [_LINE.sub("", message) for message in messages]
