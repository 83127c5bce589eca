"""Messages about a configuration, without the lines to which they point."""

import re
from collections.abc import Iterable

_LINE = re.compile(r" \(line [0-9]+\)$")


def bare(messages: Iterable[str]) -> list[str]:
    """The messages in the form that the settings give them."""
    return [_LINE.sub("", message) for message in messages]
