"""The error of an upstream, made short enough to be looked through for keys.

To look for a key in all the ways in which it can be quoted takes about a second for a megabyte. An error that says more
than a client shows to anybody is cut: each of its long strings keeps its beginning, so that JSON stays JSON.
"""

import re

MOST_BYTES = 64 << 10
"""What is looked through of an error: some hundredths of a second of work."""
_MOST_STRINGS = 10_000
_MOST_STRING_CHARS = 4096
_NOTE = " [cut by the proxy]"
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Half a character would make the string one that some readers refuse.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BEGINNING = re.compile(
    rf'"(?:[^"\\]|{_PAIR}|\\u[0-9a-fA-F]{{4}}|\\[^u]){{0,{_MOST_STRING_CHARS}}}+', re.DOTALL | re.ASCII
)


def excerpt(error: bytes) -> bytes | None:
    """The error whole where it is short, else with its long strings cut; None where it is too long all the same."""
    if len(error) <= MOST_BYTES:
        return error
    text = error.decode("utf-8", "surrogateescape")
    parts, done = list[str](), 0
    for number, found in enumerate(_STRING.finditer(text)):
        if number >= _MOST_STRINGS:
            return None
        if found.end() - found.start() > _MOST_STRING_CHARS:
            beginning = _BEGINNING.match(text, found.start(), found.end() - 1)
            assert beginning is not None
            parts += (text[done : found.start()], beginning[0], _NOTE, '"')
            done = found.end()
    short = "".join((*parts, text[done:])).encode("utf-8", "surrogateescape")
    return short if len(short) <= MOST_BYTES else None
