"""Hypothesis strategies for requests with panels and a described history. See live_chats.py."""

import copy
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from . import live_words as words
from .live_chats import NOW_S, Body, LiveChat, LivePanel, Stretch, cuts, places, spoken
from .live_frozen import frozen_text
from .live_history import Message, role_of
from .strategies import contents, parameters, prose, systems, user_contents

_HEADERS = ("", "Tasks", "File: a b.py", "======= [todo] =======", "Ünïcödé ☃")
_OWN_LOOKALIKES = (
    {"role": "user", "content": "Current datetime: 1999-12-31T23:59:59Z"},
    {"role": "user", "content": "[History Summary] is what I want to read."},
    {"role": "user", "content": words.REPEAT},
    {"role": "user", "content": "======= [todo] Tasks =======\n- write"},
)
_EMPTY: tuple[Message, ...] = (
    {"role": "user", "content": ""},
    {"role": "user", "content": []},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": "", "tool_calls": []},
    {"role": "assistant", "content": [{"type": "text", "text": ""}], "refusal": None},
)


def call(call_id: str, arguments: str = '{"path": "a.py"}', name: str = "read") -> Body:
    """A call of some tool of the client's."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str, content: Any = None) -> Message:
    """A message that calls them."""
    return {"role": "assistant", "content": content, "tool_calls": [call(each) for each in ids]}


def result(call_id: str, content: Any) -> Message:
    """What a call gave."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _user(draw: st.DrawFn) -> Message:
    said = draw(st.one_of(prose(), prose(), user_contents()).filter(bool))
    return draw(st.sampled_from([{"role": "user", "content": said}] * 6 + list(_OWN_LOOKALIKES)))


def _answer(draw: st.DrawFn) -> Message:
    more = draw(st.sampled_from([{}, {}, {"reasoning_content": "hm"}, {"refusal": None}]))
    return {"role": "assistant", "content": draw(prose()), **more}


@cache
@st.composite
def exchanges(draw: st.DrawFn, number: int) -> Stretch:
    """A question and its answer, with calls of tools between them."""
    user, answer = _user(draw), _answer(draw)
    between: list[Message] = []
    for step in range(draw(st.integers(0, 2))):
        ids = [f"c{number}_{step}_{n}" for n in range(draw(st.integers(1, 2)))]
        between.append(calling(*ids, content=draw(st.sampled_from([None, "", "Let me look."]))))
        between += [result(each, draw(st.one_of(contents(), prose()))) for each in ids]
    messages = (user, *between, answer)
    return Stretch(messages, messages)


@cache
@st.composite
def described(draw: st.DrawFn, number: int) -> Stretch:
    """A question and its answer of which the client says something."""
    user, answer = _user(draw), _answer(draw)
    status = draw(st.sampled_from(["active", "summarized", "deleted", "detached"]))
    at = draw(st.integers(0, 1))
    short = draw(prose().filter(str.strip))
    one = (user, answer)[at]
    kept = {"active": (one,), "summarized": ({**one, "content": short},)}.get(status, ())
    leaves = (*kept, answer) if at == 0 else (user, *kept)
    return Stretch((user, answer), leaves, ((at, status, short),))


@cache
@st.composite
def repaired(draw: st.DrawFn, number: int) -> Stretch:
    """A question and its answer with something between them that a provider would refuse, or that says nothing."""
    user, answer = _user(draw), _answer(draw)
    one, other = f"c{number}_a", f"c{number}_b"
    text = draw(prose())
    missing = words.result_message(other, words.PLACEHOLDER)
    joined = calling(one, other, content="Look.\nAnd here.")
    empty = draw(st.sampled_from(_EMPTY))
    both = [result(one, text), result(other, "")]
    sends, leaves = draw(st.sampled_from([
        ([empty], []),
        ([calling(one)], []),
        ([calling(one, content=text)], [{"role": "assistant", "content": text}]),
        ([result(one, text)], []),
        ([calling(one), result(other, text)], []),
        ([calling(one, other), result(one, text)], [calling(one, other), result(one, text), missing]),
        ([calling(one, content="Look."), calling(other, content="And here."), *both], [joined, *both]),
        ([calling(one), calling(other, content=text), *both], [calling(one, other, content=text), *both]),
    ]))  # fmt: skip
    return Stretch((user, *sends, answer), (user, *leaves, answer))


@cache
@st.composite
def interrupted(draw: st.DrawFn, number: int) -> Stretch:
    """A system message within the conversation, and an exchange."""
    system = {"role": draw(st.sampled_from(["system", "developer"])), "content": draw(prose())}
    messages = (system, _user(draw), _answer(draw))
    return Stretch(messages, messages)


@cache
@st.composite
def prompts(draw: st.DrawFn, number: int) -> Stretch:
    """The last user message, and perhaps calls with their results."""
    user = _user(draw)
    messages: list[Message] = [user]
    for step in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        ids = [f"c{number}_{step}_{n}" for n in range(draw(st.integers(1, 2)))]
        messages += [calling(*ids), *(result(each, draw(prose())) for each in ids)]
    return Stretch(tuple(messages), tuple(messages))


@cache
@st.composite
def stretches(draw: st.DrawFn, least: int = 0, most: int = 5, *, is_whole: bool = False) -> tuple[Stretch, ...]:
    """A conversation that ends with a prompt. ``is_whole``: every message of it is sent as it came."""
    found = []
    for number in range(draw(st.integers(least, most))):
        kinds = [exchanges(number), exchanges(number)]
        kinds += [] if is_whole else [described(number), repaired(number)]
        found.append(draw(st.one_of(kinds if number == 0 else [*kinds, interrupted(number)])))
    return (*found, draw(prompts(99)))


@cache
@st.composite
def panels(draw: st.DrawFn, allowed: tuple[int, ...]) -> tuple[LivePanel, ...]:
    """Panels in front of the conversation, and at some of the allowed places."""
    ids = draw(st.lists(st.sampled_from(["todo", "P1", "tree", "git-status", "a_b"]), max_size=4, unique=True))
    found = []
    for panel_id in ids:
        stamp_s = draw(st.sampled_from([0.0, NOW_S, NOW_S - 1, NOW_S - 3_600.5, NOW_S - 86_400]))
        place = draw(st.sampled_from([None, None, *allowed]))
        content = draw(contents().filter(bool))
        found.append(LivePanel(panel_id, draw(st.sampled_from(_HEADERS)), content, stamp_s, place))
    return tuple(found)


@cache
@st.composite
def live_chats(
    draw: st.DrawFn, *, is_long: bool = False, is_whole: bool = False, has_summaries: bool = True
) -> LiveChat:
    """A request with any of it. ``is_long``: there is something to freeze or to leave out. ``is_whole``: all messages
    are sent as they came, but for that. Not ``has_summaries``: no text in it is the proxy's own, so that every change
    of it can be seen."""
    talk = draw(stretches(4, 7, is_whole=is_whole) if is_long else stretches(is_whole=is_whole))
    leaves = [message for stretch in talk for message in stretch.leaves]
    more = draw(parameters())
    is_chronological = draw(st.booleans())
    has_summary, compacted, frozen = draw(_shortened(leaves, has_summaries)) if is_long else (False, 0, ())
    section: Body = {"compaction": True} if compacted else {}
    if frozen:
        behind = len(spoken(leaves[compacted:])) + 2 * has_summary - sum(frozen)
        section["detach"] = {"chunk_messages": min(frozen), "keep_messages": behind, "keep_tokens": 1}
        section["detach"]["chunk_tokens"] = 1
    shown = draw(panels(tuple(places(leaves)) if is_chronological else ()))
    users = [at for at, message in enumerate(leaves) if role_of(message) == "user"]
    has_panels = bool(shown or frozen)
    known = [at for at in users if has_panels and (at == users[-1] or draw(st.booleans()))]
    hidden = draw(st.sampled_from([(), ({"id": "chat", "content": "x"},), ({"id": "none", "content": ""},)]))
    return copy.deepcopy(
        LiveChat(
            systems=tuple(draw(systems())),
            stretches=talk,
            panels=shown,
            asked=tuple((at, NOW_S - 60.0 * (len(leaves) - at - 1)) for at in known),
            frozen=frozen,
            compacted=compacted,
            summary=draw(prose()) if has_summary else "",
            hidden=hidden,
            more=more,
            section=section,
        )
    )


@st.composite
def _shortened(draw: st.DrawFn, leaves: list[Message], has_summaries: bool) -> tuple[bool, int, tuple[int, ...]]:
    """Whether there is a summary, how many messages are left out, and the lengths of the frozen parts."""
    ends = cuts(leaves)
    how = draw(st.sampled_from(["frozen", "frozen", "truncated", *(["summary", "both"] if has_summaries else [])]))
    compacted = 0
    if how != "frozen":
        compacted = draw(st.sampled_from(ends[:-1])) if ends[:-1] else 0
    has_summary = bool(compacted) and how in ("summary", "both")
    if how not in ("frozen", "both") or (how == "both" and not compacted):
        return has_summary, compacted, ()
    free = [at for at in ends if spoken(leaves[compacted:at]) and frozen_text(spoken(leaves[compacted:at])) is not None]
    chosen = sorted(draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True))) if free else []
    parts = [len(spoken(leaves[start:end])) for start, end in pairwise([compacted, *chosen])]
    if parts and has_summary:
        parts[0] += 2
    return has_summary, compacted, tuple(parts)


@cache
@st.composite
def live_sessions(draw: st.DrawFn, most: int = 8, *, is_rewritten: bool = False) -> list[Body]:
    """The bodies of one session, as a client sends them one after another: the conversation grows, panels change, come
    and go, and a request is sometimes sent again. ``is_rewritten``: earlier parts of the conversation change, too."""
    talk = draw(stretches(1, 5))
    leading = draw(systems())
    more = draw(parameters())
    section = draw(_wishes())
    shown: dict[str, str] = {}
    session: list[Body] = []
    for number in range(len(talk)):
        if is_rewritten and number and draw(st.booleans()):
            at = draw(st.integers(0, number - 1))
            others = draw(st.sampled_from([(), (draw(exchanges(50 + number)),), (talk[at], talk[at])]))
            earlier = (*talk[:at], *others, *talk[at + 1 : number])
        else:
            earlier = talk[:number]
        whole = LiveChat(tuple(leading), earlier).original()
        for end in _requests(talk[number]):
            if len(session) == most or draw(st.integers(0, 5)) == 0:
                continue
            _change(draw, shown)
            listed = [{"id": each, "header": f"The {each}", "content": text} for each, text in shown.items()]
            metas = whole["stratiform"].get("messages_meta", [])
            body = {
                "model": "m",
                "messages": [*whole["messages"], *talk[number].sends[:end]],
                "stratiform": {"session": "s", "panels": listed, "messages_meta": metas, **section},
                **more,
            }
            session += [copy.deepcopy(body)] * draw(st.sampled_from([1, 1, 1, 2]))
    return session


def _requests(stretch: Stretch) -> list[int]:
    """After how many of the messages of a stretch a client asks: behind a user's message, and behind results."""
    roles = [*map(role_of, stretch.sends), ""]
    return [
        at + 1
        for at, (one, other) in enumerate(pairwise(roles))
        if (one == "user" and other != "user") or (one == "tool" and other != "tool")
    ]


@st.composite
def _wishes(draw: st.DrawFn) -> Body:
    """What a session says in each request."""
    small = {"chunk_messages": draw(st.integers(1, 3)), "keep_messages": 2, "chunk_tokens": 1, "keep_tokens": 1}
    found: Body = draw(st.sampled_from([{}, {"detach": False}, {"detach": small}, {"compaction": True}]))
    if draw(st.integers(0, 3)) == 0:
        found = {**found, "files": [{"path": "a.py", "content": "x = 1\n", "selected": True}], "tree": True}
    return {**found, **draw(st.sampled_from([{}, {}, {"assembly": "flat"}]))}


def _change(draw: st.DrawFn, shown: dict[str, str]) -> None:
    """Some panels come, change, or go; most stay as they are."""
    for panel_id in ("todo", "tree", "git", "P1", "chat"):
        what = draw(st.sampled_from(["stay", "stay", "stay", "set", "set", "drop"]))
        if what == "set":
            shown[panel_id] = draw(st.sampled_from(["one", "two", "three\nlines\n", ""]))
        elif what == "drop":
            shown.pop(panel_id, None)
