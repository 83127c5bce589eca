"""The notation of scenarios: a head line, then requests, one line a message. README.md describes it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from proxy.kit.modes import Mode
from proxy.protocol.providers import PROFILES, CacheProfile
from tests.fidelity import chats
from tests.talk import Body, assistant, calling, chat, file_text, lines, result, said, system, text_part, tool, user

_REQUEST = re.compile(r"request(?: ([a-z]\w*))?(?: \+(\d+)s)?$")
_SIZED = re.compile(r"(?P<words>.+?) x(?P<count>\d+)(?: @(?P<edition>\w+))?$")
_MARK = re.compile(r" \[(5m|1h)\]$")
_CONTEXTS = {
    "files": (chats.EDITABLE_OPENING, chats.EDITABLE_ACK),
    "shown": (chats.SHOWN_OPENING, chats.SHOWN_ACK),
    "readonly": (chats.READ_ONLY_OPENING, chats.READ_ONLY_ACK),
    "map": (chats.MAP_OPENING, chats.MAP_ACK),
}
_CLEARED = "[Old tool result content cleared]"
_DEFAULT_GAP_S = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request and the seconds since the one before it."""

    title: str
    after_s: float
    body: Body


@dataclass(frozen=True, slots=True)
class Scenario:
    """Requests of one client, or of several that share a key, to one upstream."""

    profile: CacheProfile
    mode: Mode
    policy: str
    requests: tuple[Request, ...]


@dataclass(slots=True)
class _Conversation:
    """One conversation: its turns so far, and how many answers it had."""

    turns: list[Body] = field(default_factory=list)
    answers: int = 0


def parse_scenario(text: str) -> Scenario:
    """Read a scenario; ValueError names the line that is none."""
    # A line that is indented goes on with the message above it.
    entries = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    entries = "\n".join(entries).replace("\n ", "\0").split("\n")
    head = dict(re.findall(r"(profile|mode|policy|minimum) ([\w-]+)", entries[0]))
    profile = PROFILES[head["profile"]]
    if "minimum" in head:
        profile = replace(profile, min_tokens=int(head["minimum"]))
    blocks: list[tuple[re.Match[str], list[str]]] = []
    for entry in entries[1:]:
        if found := _REQUEST.match(entry):
            blocks.append((found, []))
        else:
            blocks[-1][1].append(entry)
    conversations: dict[str, _Conversation] = {}
    requests = tuple(_request(opening, rest, conversations) for opening, rest in blocks)
    return Scenario(profile, Mode.parse(head.get("mode", "tier")), head.get("policy", "economic"), requests)


def _request(opening: re.Match[str], entries: list[str], conversations: dict[str, _Conversation]) -> Request:
    conversation = conversations.setdefault(opening[1] or "", _Conversation())
    messages: list[Body] = []
    turns: list[Body] = []
    tools: list[Body] = []
    for number, entry in enumerate(entries):
        word, _, rest = entry.partition(" ")
        if word == "tools":
            tools = [tool(name) for name in rest.split()]
        elif word == "history":
            follows = entries[number + 1].partition(" ")[0] if number + 1 < len(entries) else ""
            past = _history(conversation, rest.split()[1:], is_answered=follows != "call")
            turns += past
            messages += past
        elif word in _CONTEXTS:
            messages += _context(word, rest)
        else:
            one = _message(word, rest.strip())
            messages.append(one)
            turns += [one] if word != "system" else []
    conversation.turns = turns
    gap = float(opening[2]) if opening[2] else _DEFAULT_GAP_S
    return Request(opening[0], gap, chat(*messages, **({"tools": tools} if tools else {})))


def _history(conversation: _Conversation, cleared: list[str], *, is_answered: bool) -> list[Body]:
    """The turns of the request before, and its answer; the results of ``cleared`` calls emptied."""
    if is_answered:
        conversation.answers += 1
        conversation.turns.append(assistant(lines(3, f"answer {conversation.answers}")))
    bare = [_unmarked(turn) for turn in conversation.turns]
    return [{**t, "content": _CLEARED} if t.get("tool_call_id") in cleared else t for t in bare]


def _unmarked(turn: Body) -> Body:
    """A client's own markers stand on its newest messages only."""
    content = turn.get("content")
    return {**turn, "content": content[0]["text"]} if isinstance(content, list) else turn


def _context(word: str, rest: str) -> Iterator[Body]:
    opening, acknowledgement = _CONTEXTS[word]
    if word == "map":
        text = f"{opening}\n{_text(rest)}"
    else:
        text = file_text([_file(one) for one in rest.strip().split(", ")], opening)
    yield user(text)
    yield assistant(acknowledgement)


def _file(notation: str) -> chats.File:
    sized = _SIZED.match(notation)
    if sized is None:
        raise ValueError(f"not a file: {notation}")
    return chats.File(sized["words"], _lines(sized))


def _message(word: str, rest: str) -> Body:
    marker = _MARK.search(rest)
    text = _text(_MARK.sub("", rest))
    life = {"type": "ephemeral", **({"ttl": "1h"} if marker and marker[1] == "1h" else {})}
    content = [text_part(text, cache_control=life)] if marker else text
    match word:
        case "system":
            return system(content)
        case "user" | "assistant":
            return said(word, content)
        case "call":
            return calling(*rest.split())
        case "result":
            call, _, words = rest.partition(" ")
            return result(call, _text(words))
        case _:
            raise ValueError(f"not a message: {word} {rest}")


def _text(notation: str) -> str:
    return "\n".join(_line(each.strip()) for each in notation.split("\0"))


def _line(notation: str) -> str:
    sized = _SIZED.match(notation)
    if not sized:
        return notation
    if sized["words"].startswith("doc "):
        name = sized["words"].removeprefix("doc ")
        return f'<document id="{name}">\n{lines(int(sized["count"]), name)}</document>'
    return _lines(sized)


def _lines(sized: re.Match[str]) -> str:
    """So many lines; an edition is another last line."""
    label = sized["words"].rpartition("/")[2].partition(".")[0]
    return lines(int(sized["count"]), label) + (f"edition {sized['edition']}\n" if sized["edition"] else "")
