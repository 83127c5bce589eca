"""Recognises aider's context messages (read-only files, repository map, chat files) and its reminder.

aider (seen with 0.86) renders these messages anew for every request, so that each shows the present state. Its own
words say so: "*Trust this message as the true contents of these files!* Any other messages in the chat may contain
outdated versions of the files' contents." Each is followed by an assistant message in which the client acknowledges it.

A file is its path on one line, a fence, the content and the closing fence. aider picks a fence that begins no line of
any of the files, so one message uses one fence.
"""

import re
from collections.abc import Iterator
from itertools import islice

from proxy.hookspecs import hookimpl
from proxy.protocol.recognition import (
    MOST_PIECES,
    Bound,
    Cut,
    FileClaim,
    KnownTexts,
    MessageKind,
    PieceKind,
    Recognition,
    TooMuch,
)

# aider's fences, opening and closing.
_FENCES = {
    "<source>": "</source>",
    "<code>": "</code>",
    "<pre>": "</pre>",
    "<codeblock>": "</codeblock>",
    "<sourcecode>": "</sourcecode>",
}
_FIRST_FILE = re.compile(r"\n([^\n]++)\n(`{3,64}+|<(?:source|code|pre|codeblock|sourcecode)>)\n")
_TAG_LINES = {fence: re.compile("\n</?" + fence[1:]) for fence in _FENCES}
# How many fences are examined in one message: more than any two thousand files have.
_MOST_FENCES = 20_000
_REMINDERS = (
    "\n\n# *SEARCH/REPLACE block* Rules:",
    "\n\n# File editing rules:",
    "\n\n# *file listing* rules:",
)


# How each kind of context message begins, its name, what it claims, and how the client acknowledges it.
_OPENINGS = (
    (
        "I have *added these files to the chat* so you can go ahead and edit them.",
        "aider:files",
        FileClaim.EDITABLE,
        "Ok, any changes I propose will be to those files.",
    ),
    (
        "I have *added these files to the chat* so you see all of their contents.",
        "aider:files",
        FileClaim.SHOWN,
        "Ok, I will use that as the true, current contents of the files.",
    ),
    (
        "Here are some READ ONLY files, provided for your reference.",
        "aider:read-only",
        FileClaim.READ_ONLY,
        "Ok, I will use these files as references.",
    ),
    (
        "Here are summaries of some files present in my git repo",
        "aider:map",
        FileClaim.MAP,
        "Ok, I won't try and edit those files without asking first.",
    ),
    (
        "I am working with you on code in a git repository.\nHere are summaries of some files present in my git repo",
        "aider:map",
        FileClaim.MAP,
        "Ok, I won't try and edit those files without asking first.",
    ),
)


class AiderRecogniser:
    """Finds aider's context messages by their opening words."""

    name = "aider"
    priority = 50
    texts = KnownTexts(roles="user", openings=[begins for begins, *_ in _OPENINGS], words=_REMINDERS)

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The files, the map or the reminder in one of aider's user messages. Raises TooMuch."""
        for begins, name, claim, acknowledgement in _OPENINGS:
            if text.startswith(begins):
                cuts = _map_cuts(text) if claim is FileClaim.MAP else file_cuts(text)
                if cuts is None:
                    return None
                return Recognition(name, MessageKind.CONTEXT, cuts, claim, (acknowledgement,))
        return _prompt(text)


def _map_cuts(text: str) -> tuple[Cut, ...]:
    """The map is one piece: its entries change together, and a part of a map says less than the whole."""
    start = text.find("\n\n")
    if start < 0 or start + 2 >= len(text):
        return (Cut("map", PieceKind.SYMBOL, 0, len(text)),)
    return (Cut("opening", PieceKind.OPENING, 0, start + 2), Cut("map", PieceKind.SYMBOL, start + 2, len(text)))


def file_cuts(text: str) -> tuple[Cut, ...] | None:
    """The opening and the files; None if the text holds anything else. Raises TooMuch."""
    first = _FIRST_FILE.search(text)
    if first is None:
        return None
    fence = first.group(2)
    close = _FENCES.get(fence, fence)
    if not text.endswith(close + "\n") and not text.endswith(close):
        return None
    opened, closed = _line_fences(text, fence, close)
    starts = [(first.start(), first.group(1)), *_following_files(text, first.end(), opened, fence, close)]
    if len(starts) >= MOST_PIECES:
        raise TooMuch(Bound.PIECES)
    if not _are_borders(text, [start for start, _ in starts], len(opened), len(closed), close):
        return (Cut("files", PieceKind.FILE, 0, len(text)),)
    cuts = [Cut("opening", PieceKind.OPENING, 0, starts[0][0])] if starts[0][0] else []
    ends = [start for start, _ in starts[1:]] + [len(text)]
    cuts += [Cut(f"file:{p}", PieceKind.FILE, s, e) for (s, p), e in zip(starts, ends, strict=True)]
    return tuple(cuts)


def _line_fences(text: str, fence: str, close: str) -> tuple[list[int], list[int]]:
    """The line ends after which a line begins with the opening fence, and those after which a line begins with the
    closing fence. Both are found in one pass, which is most of the work for a long message. Raises TooMuch."""
    is_tag = fence != close
    found = (at.start() for at in _TAG_LINES[fence].finditer(text)) if is_tag else _places(text, "\n" + fence)
    both = list(islice(found, _MOST_FENCES + 1))
    if len(both) > _MOST_FENCES:
        raise TooMuch(Bound.MATCHES)
    return [at for at in both if text[at + 2] != "/"], [at for at in both if text[at + 2] == "/" or not is_tag]


def _places(text: str, words: str) -> Iterator[int]:
    at = text.find(words)
    while at >= 0:
        yield at
        at = text.find(words, at + len(words))


def _are_borders(text: str, starts: list[int], opened: int, closed: int, close: str) -> bool:
    """Whether no line but the files' own borders begins with a fence. If every fence begins a line of some file, aider
    falls back to the first fence. Then borders cannot be told from content, and the message stays in one piece."""
    closings = [start - len(close) - 1 for start in starts[1:]] + [text.rindex(close)]
    own = sum(1 for at in closings if text[at - 1] == "\n")
    return opened == len(starts) + own if close[0] == "`" else (opened, closed) == (len(starts), own)


def _following_files(text: str, position: int, opened: list[int], fence: str, close: str) -> Iterator[tuple[int, str]]:
    """The start of each further file (the blank line in front of its path), and its path.

    A file starts after the closing fence of the file before it: one line is alone there, and then comes the opening
    fence. All of that is behind ``position``.
    """
    before, after = close + "\n", "\n" + fence + "\n"
    for line_end in opened:
        start = text.rfind("\n", position, line_end)
        behind = start - len(before)
        if start + 1 == line_end or behind < position or not text.startswith(before, behind):
            continue
        if text.startswith(after, line_end):
            yield start, text[start + 1 : line_end]
            position = line_end + len(after)


def _prompt(text: str) -> Recognition | None:
    """A user's turn to which the edit format's reminder was appended."""
    found = min((at for words in _REMINDERS if (at := text.find(words)) >= 0), default=-1)
    if found < 0:
        return None
    start = found - 1 if text[found - 1 : found] == "\n" else found
    if start <= 0:
        return None
    cuts = (Cut("prompt", PieceKind.PROMPT, 0, start), Cut("reminder", PieceKind.REMINDER, start, len(text)))
    return Recognition("aider:prompt", MessageKind.PROMPT, cuts)


@hookimpl
def register_recognisers() -> list[AiderRecogniser]:
    """The one recogniser of this plugin."""
    return [AiderRecogniser()]
