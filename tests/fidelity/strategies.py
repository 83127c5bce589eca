"""Hypothesis strategies for chat bodies as real clients send them, odd ones included. Small, so that they are quick.

``bodies()`` draws from all of them. ``aider_chats()`` keeps the structure (see chats.py), for tests that need to know
where a file begins; ``sessions()`` draws requests of one conversation that grow, as a proxy sees them one by one.
"""

import copy
import json
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from .chats import AIDER_FENCES, AiderChat, File, Message, said

Body = dict[str, Any]

# Lines that a parser may trip over: fences of any length and indentation, path-like lines, our own words, odd newlines.
_ODD_LINES = (
    "", "", "    ```", "```", "```python", "````", "`````", "x = '```'", "~~~", "<source>", "</source>", "<code>",
    "a.py", "src/app.py:", '<document source="x">', "</document>", '<file path="a.py">', "</file>", "</pre>", "\ttab",
    "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "Ok.", "⋮", "│def f():", "# Ünïcödé ☃ 漢字 🎉", "trailing  ",
    "These files are provided READ ONLY for reference. Do not edit them.",
    "<stratiform-context>", "</stratiform-context>", "I have *added these files to the chat*", "\u2028", "\x0c", "\\n",
)  # fmt: skip
_PLAIN_LINES = (
    "def f(x):", "    return x + 1", "import os", "class A:", "    pass", "print('hello')", "x = 1", "value: 2",
)  # fmt: skip
_VOLATILE_LINES = (
    "The current date and time is Saturday, 21 November 2026, 20:53:07.",
    "Current date: 2026-11-21",
    "Working directory: /home/dev/work",
    "Git status:\n## main\n M src/app.py",
    "Today's date is 2026-11-21.",
)
_WORDS = ("fix", "add", "the", "test", "for", "parser", "why", "is", "this", "slow", "please", "rename", "run", "again")


@cache
def prose(minimum: int = 1) -> st.SearchStrategy[str]:
    """A short sentence, sometimes of odd characters."""
    sentence = st.lists(st.sampled_from(_WORDS), min_size=minimum, max_size=8).map(" ".join)
    odd = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=minimum, max_size=20)
    return st.one_of(sentence, sentence, sentence, odd, st.sampled_from(_ODD_LINES).filter(lambda t: len(t) >= minimum))


@cache
def contents() -> st.SearchStrategy[str]:
    """The text of a file: empty, with and without a last newline, with CRLF, with fences in it."""
    line = st.one_of(st.sampled_from(_PLAIN_LINES), st.sampled_from(_PLAIN_LINES), st.sampled_from(_ODD_LINES))
    plain = st.lists(st.sampled_from(_PLAIN_LINES), max_size=6)
    lines = st.one_of(plain, st.lists(line, max_size=6))
    newline = st.sampled_from(["\n", "\n", "\n", "\r\n"])
    ending = st.sampled_from(["\n", "\n", "\n", "", "\n\n"])
    return st.builds(lambda ls, nl, end: nl.join(ls) + end if ls else "", lines, newline, ending)


@cache
def files(least: int = 0, most: int = 4) -> st.SearchStrategy[tuple[File, ...]]:
    """Files of different paths."""
    names = st.sampled_from(
        ["a.py", "src/app.py", "tests/test_app.py", "README.md", "docs/a b.md", "ü/ñ.txt", "Makefile"]
    )
    paths = st.lists(names, min_size=least, max_size=most, unique=True)
    return paths.flatmap(lambda ps: st.tuples(*(st.builds(File, st.just(p), contents()) for p in ps)))


@cache
def outlines() -> st.SearchStrategy[tuple[str, ...]]:
    """Entries of a repository map: a path alone, or a path and an outline."""
    tree = st.lists(st.sampled_from(["⋮", "│def f(x):", "│class A:", "│    x = 1", "│"]), min_size=1, max_size=3)
    entry = st.builds(
        lambda name, t: "\n".join([f"{name}:", *t, "⋮"]) if t else name, _names(), st.one_of(tree, st.just([]))
    )
    return st.lists(entry, max_size=4, unique=True).map(tuple)


@cache
def _names() -> st.SearchStrategy[str]:
    return st.builds("{}/{}.py".format, st.sampled_from(["src", "lib", "tests"]), st.sampled_from("abcdef"))


@cache
def parameters() -> st.SearchStrategy[Body]:
    """Parameters, unknown fields, and values that a careless round trip changes (1.0, -0.0, large integers, null)."""
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"b": 1, "a": [1.0, None, True]}}}
    return st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.sampled_from([0, 0.0, 1, 1.0, 0.7, -0.0]),
            "top_p": st.sampled_from([1, 1.0, 0.95]),
            "max_tokens": st.sampled_from([1, 4096, 2**53 + 1]),
            "stop": st.sampled_from([None, "END", ["a", "b"]]),
            "seed": st.integers(-5, 2**40),
            "response_format": st.just(schema),
            "metadata": st.dictionaries(st.sampled_from(["session_id", "k"]), prose(), max_size=2),
            "x_unknown": st.sampled_from([{"z": 1, "a": {"deep": [1, 1.0, "1"]}}, [], {}, False]),
            "user": prose(),
        },
    )


def _frame(messages: list[Message], more: Body) -> Body:
    return {"model": "gpt-4o", "messages": messages, **more}


@cache
def system_contents(volatile: bool = True) -> st.SearchStrategy[Any]:
    """A system text, or a list of text parts; some with lines that change between requests."""
    lines = st.sampled_from(_VOLATILE_LINES) if volatile else prose()
    line = st.one_of(
        st.sampled_from(["You are a careful engineer.", "Answer briefly.", "", "# Rules", "- be kind"]), lines
    )
    text = st.builds(
        lambda ls, end: "\n".join(ls) + end, st.lists(line, min_size=1, max_size=6), st.sampled_from(["", "\n"])
    )
    texts = text.filter(lambda t: bool(t.strip()))
    parts = st.lists(texts.map(lambda t: {"type": "text", "text": t}), min_size=1, max_size=3)
    return st.one_of(texts, texts, parts)


@cache
def systems() -> st.SearchStrategy[list[Message]]:
    """No, one or several leading system messages."""
    role = st.sampled_from(["system", "system", "system", "developer"])
    message = st.builds(lambda r, c: {"role": r, "content": c}, role, system_contents())
    return st.one_of(message.map(lambda m: [m]), st.lists(message, max_size=3))


@cache
def user_contents(rich: bool = True) -> st.SearchStrategy[Any]:
    """A string, or parts: text, images, audio, files, and kinds that nobody knows."""
    text_part = prose().map(lambda t: {"type": "text", "text": t})
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    other = st.sampled_from([image, audio, {"type": "file", "file": {"file_id": "f1"}}, {"type": "later", "x": [1.0]}])
    kinds = st.one_of(text_part, text_part, other) if rich else text_part
    parts = st.lists(kinds.map(copy.deepcopy), min_size=1, max_size=3)
    return st.one_of(prose(), prose(), parts)


@cache
def plain_chats(rich: bool = True) -> st.SearchStrategy[Body]:
    """Turns of user and assistant; names, thinking blocks and unknown keys on some."""
    extra = st.sampled_from([{}, {}, {}, {"name": "ann"}, {"x_key": {"b": 1, "a": 2}}])
    user = st.builds(lambda c, e: {"role": "user", "content": c, **e}, user_contents(rich), extra)
    thinking = {
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s=="}],
        "reasoning_content": "hm",
    }
    own = st.sampled_from([{}, {}, {}, thinking, {"refusal": None}])
    answer = st.builds(lambda t, e: {"role": "assistant", "content": t, **e}, prose(), own)
    turns = st.lists(st.tuples(user, answer).map(list), max_size=4)
    later_system = st.sampled_from([[], [], [], [said("system", "Reply in English.\n")]])
    return st.builds(
        lambda s, t, u, end, more: _frame(s + [m for turn in t for m in turn] + [u] + end, more),
        systems(), turns, user, later_system, parameters(),
    ).map(copy.deepcopy)  # fmt: skip


@cache
def tools() -> st.SearchStrategy[list[Body]]:
    """Tool definitions of different names."""

    def tool(name: str) -> Body:
        schema = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "number", "default": 1.0}}}
        return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}

    return st.lists(st.sampled_from(["read", "write", "bash", "grep"]), min_size=1, max_size=4, unique=True).map(
        lambda names: [tool(name) for name in names]
    )


@cache
@st.composite
def tool_rounds(draw: st.DrawFn, number: int) -> list[Message]:
    """An assistant turn with one or several parallel calls, and their results."""
    count = draw(st.integers(1, 3))
    arguments = st.sampled_from(['{"path": "a.py"}', '{"path":"a.py"}', "{}", '{"n": 1.0}', "not json"])
    calls = [
        {"id": f"call_{number}_{i}", "type": "function", "function": {"name": "read", "arguments": draw(arguments)}}
        for i in range(count)
    ]
    content = draw(st.sampled_from([None, "", "Let me look."]))
    messages: list[Message] = [{"role": "assistant", "content": content, "tool_calls": calls}]
    for call in calls:
        text = draw(st.one_of(contents(), prose()))
        result: Any = draw(st.sampled_from([text, text, [{"type": "text", "text": text}]]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


@cache
@st.composite
def tool_loops(draw: st.DrawFn) -> Body:
    """An agent's request: it ends in tool results or in a user message."""
    messages = draw(systems())
    number = 0
    for _ in range(draw(st.integers(1, 2))):
        messages.append({"role": "user", "content": draw(user_contents())})
        for _ in range(draw(st.integers(1, 3))):
            messages += draw(tool_rounds(number))
            number += 1
        messages.append(said("assistant", draw(prose())))
    if draw(st.booleans()):
        messages.append(said("user", draw(prose())))
        messages += draw(st.one_of(st.just([]), tool_rounds(number)))
    else:
        messages.pop()
    more = draw(parameters())
    return copy.deepcopy(_frame(messages, {"tools": draw(tools()), "tool_choice": "auto", "stream": True, **more}))


@cache
@st.composite
def aider_chats(draw: st.DrawFn, free_fence: bool = False, least_files: int = 0) -> AiderChat:
    """aider's layout with any files; ``free_fence``: only chats in which a fence is left that no file uses."""
    turn = st.tuples(prose(), prose())
    chat = AiderChat(
        system="Act as an expert software developer.\n"
        + draw(st.sampled_from(["", "- Current date: 2026-11-21\n", "Etc."])),
        examples=draw(st.booleans()),
        read_only=draw(st.one_of(st.just(()), files(1, 2))),
        outline=draw(outlines()),
        history=tuple(draw(st.lists(turn, max_size=3))),
        files=draw(files(least_files)),
        asks=draw(st.booleans()),
        reflections=tuple(draw(st.lists(turn, max_size=1))),
        prompt=draw(prose()),
        reminder=draw(st.sampled_from(["", "# *SEARCH/REPLACE block* Rules:\n\nBe exact.\n"])),
        reminder_role=draw(st.sampled_from(["system", "user"])),
        parameters=draw(st.sampled_from([{}, {"max_tokens": 4096}, {"temperature": 1.0}])),
    )
    if free_fence and not chat.is_fence_free:
        return replace(chat, files=tuple(map(_without_fences, chat.files)), read_only=())
    return chat


def _without_fences(file: File) -> File:
    openers = tuple(mark for fence in AIDER_FENCES for mark in fence)
    kept = [line for line in file.content.splitlines(keepends=True) if not line.startswith(openers)]
    return replace(file, content="".join(kept))


def _fence_for(content: str) -> str:
    fence = "```"
    while fence in content:
        fence += "`"
    return fence


@cache
@st.composite
def fenced_contexts(draw: st.DrawFn) -> list[Message]:
    """A context message of some other client: an opening and fenced or tagged files, then an acknowledgement."""
    opening = draw(st.sampled_from([
        "Here are the files you asked about:", "These files are read-only, do not edit them.",
        "You may edit these files.", "Use these documents.",
    ]))  # fmt: skip
    chosen = draw(files(1, 3))
    style = draw(st.sampled_from(["fence", "info", "tag"]))
    rendered = []
    for file in chosen:
        content = file.content if file.content.endswith("\n") or not file.content else file.content + "\n"
        fence = _fence_for(content)
        if style == "tag":
            rendered.append(f'<document path="{file.path}">\n{content}</document>')
        elif style == "info":
            rendered.append(f"src/{file.path}\n{fence}python\n{content}{fence}")
        else:
            rendered.append(f"src/{file.path}\n{fence}\n{content}{fence}")
    answer = draw(st.sampled_from(["Ok.", "Understood.", "Got it, I will use these files.", "Thanks, noted."]))
    return [said("user", opening + "\n\n" + "\n\n".join(rendered) + "\n"), said("assistant", answer)]


@cache
@st.composite
def fenced_chats(draw: st.DrawFn) -> Body:
    """A plain chat with such a context message somewhere before the last user message."""
    body = draw(plain_chats(rich=False))
    messages = body["messages"]
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    at = draw(st.sampled_from(users))
    return {**body, "messages": messages[:at] + draw(fenced_contexts()) + messages[at:]}


@st.composite
def marked(draw: st.DrawFn, source: st.SearchStrategy[Body]) -> Body:
    """The same bodies with cache markers of the client's own, in the places where clients put them."""
    body = copy.deepcopy(draw(source))
    life = draw(st.sampled_from([{"type": "ephemeral"}, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}]))
    holders: list[Body] = []
    for message in body["messages"]:
        content = message["content"]
        texts = (
            [p for p in content if p.get("type") == "text" and p["text"].strip()] if isinstance(content, list) else []
        )
        holders += texts if message["role"] != "tool" else []
        if isinstance(content, str) and content.strip():
            holders.append(message)
        holders += message.get("tool_calls", [])
    holders += body.get("tools", [])[-1:]
    indexes = draw(st.lists(st.integers(0, max(len(holders) - 1, 0)), max_size=4, unique=True))
    for index in indexes if holders else []:
        holders[index]["cache_control"] = dict(life)
    return body


@cache
def bodies() -> st.SearchStrategy[Body]:
    """Any of these: plain chats, tool loops, aider, other clients' files; with and without markers of the client's."""
    kinds = st.one_of(plain_chats(), tool_loops(), aider_chats().map(AiderChat.body), fenced_chats())
    return st.one_of(kinds, kinds, marked(kinds))


@cache
@st.composite
def aider_sessions(draw: st.DrawFn, most: int = 4) -> list[AiderChat]:
    """One session: each request adds a turn; sometimes a file was edited, added or dropped in between."""
    chat = draw(aider_chats(least_files=1))
    session = [chat]
    for _ in range(draw(st.integers(0, most - 1))):
        answered = (*chat.reflections, (chat.prompt, draw(prose())))
        chat = replace(chat, history=(*chat.history, *answered), reflections=(), prompt=draw(prose()))
        change = draw(st.sampled_from(["none", "edit", "edit", "add", "drop"]))
        kept = list(chat.files)
        if change == "edit" and kept:
            at = draw(st.integers(0, len(kept) - 1))
            kept[at] = replace(kept[at], content=draw(contents()))
        elif change == "add":
            kept.append(File(f"new_{len(session)}.py", draw(contents())))
        elif change == "drop" and kept:
            kept.pop()
        chat = replace(chat, files=tuple(kept))
        session.append(chat)
    return session


@cache
@st.composite
def growing_sessions(draw: st.DrawFn, most: int = 4) -> list[Body]:
    """An append-only session of an agent or a plain chat."""
    body = draw(st.one_of(plain_chats(), tool_loops()))
    session = [body]
    for number in range(draw(st.integers(0, most - 1))):
        more = [said("assistant", draw(prose())), {"role": "user", "content": draw(user_contents())}]
        if body.get("tools") and draw(st.booleans()):
            more = draw(tool_rounds(100 + number))
        elif body["messages"][-1]["role"] == "system":
            more = [said("assistant", "ok"), said("user", draw(prose()))]
        body = {**body, "messages": body["messages"] + more}
        session.append(copy.deepcopy(body))
    return session


@cache
def sessions() -> st.SearchStrategy[list[Body]]:
    """Requests of one conversation in order."""
    return st.one_of(growing_sessions(), aider_sessions().map(lambda chats: [chat.body() for chat in chats]))


def as_json(body: Body) -> bytes:
    """The bytes of a body as a client may post it."""
    return json.dumps(body, ensure_ascii=False).encode()
