"""Context messages: which messages of a request are movable, and what the client claims about them.

Two kinds are recognised, each with the assistant message behind it in which the client acknowledges it: those of
clients whose words are known (aider's, assemblies by tiers), by their opening, and any user message that is an opening
and files and nothing else, followed by a short acknowledgement. Only messages before the last user message count.

Of any other opening nobody knows what it claims. Such a message is taken apart only where the opening says
no more than that here are files, and where it is the only message of files, so that the header can only mean it.
"""

import re
from collections.abc import Container
from dataclasses import dataclass, field, replace

from . import words
from .files import Entries, blocks, fenced, fenced_or_tagged
from .view import View

LONGEST_ACKNOWLEDGEMENT = 200
_ACKNOWLEDGES = re.compile(
    r"(?:ok|okay|understood|got it|thanks|thank you|sure|noted|acknowledged|will do|alright|all right"
    r"|received|done|yes|great|right|perfect|i (?:will|have|see|understand)|i'll|i've|i’ll|i’ve)\b",
    re.IGNORECASE,
)
# An opening with one of these says more than that files follow: what may be done with them, which of them, in which
# order, whether they are to be believed. Nobody but the client can say that again of some of them.
_CLAIMS = re.compile(
    r"\b(?:read[- _]?only|not|never|\w+n['’]t|only|ignore|avoid|without|except|but|edit\w*|modif\w+|chang\w+|updat\w+"
    r"|touch\w*|writ\w+|repl\w+|return\w*|us(?:e|ed|ing)|trust\w*|true|truth|old\w*|outdated|stale|new\w*|former\w*"
    r"|before|after|first|second|third|last|next|other\w*|rest|each|order\w*|sorted|ranked|prior\w*|most|least"
    r"|number\w*|\d+|one|two|three|four|five|may|might|can|could|must|should|shall|will|would|please|if|unless"
    r"|reference|review|apply|run)\b",
    re.IGNORECASE,
)

# Assemblies by tiers: headers of files, and those of messages that are no files, or begin with something else.
_REFERENCE = tuple(
    f"# Reference Files{tier}\n\nThese files are included for reference:\n\n"
    for tier in ("", " (Stable)", " (L2)", " (L3)")
)
_MAP = (
    "# Repository Structure\n\nBelow is a map of the repository showing classes, functions, and their relationships.\n"
    "Use this to understand the codebase structure and find relevant code.\n\n"
)


def _whole(text: str) -> None:
    """Nothing that may be taken apart."""


def _below_map(text: str) -> Entries | None:
    """Reference files behind a part of the repository map, which is a part of the opening then."""
    places = [at + 1 for header in _REFERENCE if (at := text.find("\n" + header)) >= 0]
    found = fenced(text[places[0] :]) if len(places) == 1 else None
    return found and replace(found, opening=text[: places[0]] + found.opening)


# aider 0.86 and others: opening words, how to take the message apart, the header that keeps the claim.
_KNOWN = (
    ("I have *added these files to the chat* so you can go ahead and edit them.", fenced, "editable"),
    ("I have *added these files to the chat* so you see all of their contents.", fenced, "shown"),
    ("Here are some READ ONLY files, provided for your reference.", fenced, "read-only"),
    ("Here are summaries of some files present in my git repo", blocks, "map"),
    (
        "I am working with you on code in a git repository.\nHere are summaries of some files present in my git repo",
        blocks,
        "map",
    ),
    # Assemblies by tiers have one header for working files, and one for the files of each tier.
    ("# Working Files\n\nHere are the files:\n\n", fenced, "working"),
    *((header, fenced, "reference") for header in _REFERENCE),
    ("# Repository Structure (continued)\n\n", _below_map, "reference"),
    (_MAP, _below_map, "reference"),
    ("# Repository Files\n\nComplete list of files in the repository:\n\n", _whole, ""),
    ("# URL Context\n\nThe following content was fetched from URLs mentioned in the conversation:\n\n", _whole, ""),
    ("# Code Review Context\n\n", _whole, ""),
)


@dataclass(slots=True)
class Group:
    """One context message of the client with its acknowledgement, and how much of it has been met in the sent body."""

    message: View
    acknowledgement: View
    claims: frozenset[str]
    entries: Entries | None
    remaining: set[int] = field(default_factory=set)
    by_first_line: dict[str, list[int]] = field(default_factory=dict)
    met: bool = False
    met_at: int = -1
    parts: int = 0

    def __post_init__(self) -> None:
        cores = self.entries.cores if self.entries else ()
        self.remaining = set(range(len(cores)))
        for index in sorted(range(len(cores)), key=lambda i: -len(cores[i])):
            self.by_first_line.setdefault(cores[index].partition("\n")[0], []).append(index)

    @property
    def path(self) -> str:
        return "original " + self.message.path

    def wants(self, entries: list[int]) -> bool:
        """Whether none of these was met yet."""
        return self.remaining.issuperset(entries)

    def tile(self, text: str, at: int, after_opening: bool) -> list[int] | None:
        """The entries that make up ``text`` from ``at`` on, or None if it is not whole entries, each at most once.

        Between entries stands one of the client's own gaps. At either edge of a part the blank line may be missing
        (the header ends in one) or stay.
        """
        assert self.entries is not None
        found: dict[int, None] = {}
        most = max(len(gap) for gap in self.entries.gaps)
        while True:
            start = at
            while at < len(text) and text[at] == "\n":
                at += 1
            inner = bool(found) or after_opening
            if at == len(text):
                return list(found) if at - start <= most else None
            if inner and text[start:at] not in self.entries.gaps or at - start > most:
                return None
            index = self._entry_at(text, at, found)
            if index is None:
                return None
            found[index] = None
            at += len(self.entries.cores[index])

    def _entry_at(self, text: str, at: int, taken: Container[int]) -> int | None:
        assert self.entries is not None
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        again = None
        for index in self.by_first_line.get(line, ()):
            core = self.entries.cores[index]
            stop = at + len(core)
            if index in taken or not text.startswith(core, at) or (stop != len(text) and text[stop] != "\n"):
                continue
            if index in self.remaining:
                return index
            again = index if again is None else again
        return again


def _short_acknowledgement(message: View) -> bool:
    if message.role != "assistant" or message.rest != "{}" or message.texts is None:
        return False
    return 0 < len(message.joined) <= LONGEST_ACKNOWLEDGEMENT


def _acknowledges(message: View) -> bool:
    text = message.joined.strip()
    return "\n" not in text and "?" not in text and _ACKNOWLEDGES.match(text) is not None


def _group(message: View, acknowledgement: View, alone: bool) -> Group | None:
    plain = message.role == "user" and message.texts is not None
    if not plain or not _short_acknowledgement(acknowledgement):
        return None
    # Only a message that is one text and nothing else may be taken apart; any other moves whole.
    divisible = message.rest == "{}" and len(message.texts or ()) == 1
    for opening, take_apart, claim in _KNOWN:
        if message.joined.startswith(opening):
            entries = take_apart(message.joined) if divisible else None
            return Group(message, acknowledgement, frozenset([claim]), entries)
    if not _acknowledges(acknowledgement):
        return None
    entries = fenced_or_tagged(message.joined)
    if entries is None:
        return None
    divisible = divisible and alone and _CLAIMS.search(entries.opening) is None
    return Group(message, acknowledgement, frozenset(["as-said"]), entries if divisible else None)


def _shows_files(message: View) -> bool:
    """Whether the header that speaks of a later message of files might mean this one."""
    if message.role != "user" or message.texts is None:
        return False
    return any(message.joined.startswith(opening) for opening, *_ in _KNOWN) or bool(fenced_or_tagged(message.joined))


def context_groups(messages: list[View], last_user: int) -> list[Group]:
    """The context messages before the last user message, in the client's order."""
    groups: list[Group] = []
    alone = sum(map(_shows_files, messages)) == 1
    index = 0
    while index + 1 < last_user:
        group = _group(messages[index], messages[index + 1], alone)
        if group is None:
            index += 1
        else:
            groups.append(group)
            index += 2
    return groups


def header_of(text: str) -> str | None:
    """The name of the documented header that the text begins with."""
    return next((name for name, header in words.HEADERS.items() if text.startswith(header)), None)
