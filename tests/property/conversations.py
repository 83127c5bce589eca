"""Strategies for whole conversations as a proxy sees them: growing, edited, retried, branched, with pauses.

Each is a list of steps: seconds since the request before, and the body.
"""

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.fidelity.strategies import bodies, contents, prose, sessions, tool_rounds, tools

Body = dict[str, Any]

_GAPS = st.sampled_from([5.0, 5.0, 20.0, 200.0, 700.0, 5000.0])
_LIVES = st.sampled_from([{"type": "ephemeral"}, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}])


@dataclass(frozen=True, slots=True)
class Step:
    """One request, so many seconds after the one before it."""

    after_s: float
    body: Body


@cache
@st.composite
def clock_agents(draw: st.DrawFn) -> list[Body]:
    """An agent in a tool loop whose instructions tell the time, in one of several places and forms."""
    before, behind = draw(st.sampled_from(["", "You are kind.\n", "# Rules\nBe exact.\n"])), draw(prose()) + "\n"
    form = draw(st.sampled_from(["string", "part", "two messages", "developer"]))
    definitions = draw(tools())
    turns: list[Body] = [{"role": "user", "content": draw(prose())}]
    session = []
    for number in range(draw(st.integers(2, 5))):
        minute = draw(st.sampled_from([number, number, 0]))
        text = f"{before}Current date and time: Saturday, 21 November 2026, 20:{minute:02}:07\n{behind}"
        if form == "two messages":
            head = [
                {"role": "system", "content": text},
                {"role": "system", "content": f"It is 09:{minute:02} now.\nGo.\n"},
            ]
        else:
            content: Any = [{"type": "text", "text": text}] if form == "part" else text
            head = [{"role": "developer" if form == "developer" else "system", "content": content}]
        session.append({"model": "m", "messages": copy.deepcopy(head + turns), "tools": definitions})
        if draw(st.integers(0, 3)):
            turns += draw(tool_rounds(number))
        else:
            turns += [{"role": "assistant", "content": draw(prose())}, {"role": "user", "content": draw(prose())}]
    return session


@cache
@st.composite
def retrievals(draw: st.DrawFn) -> list[Body]:
    """An application that puts the documents of the moment, and perhaps the time, into its system prompt."""
    pool = draw(st.lists(st.tuples(st.sampled_from("abcdef"), contents()), min_size=1, max_size=5))
    shape = draw(st.sampled_from(['<document id="{}">\n{}\n</document>\n', '<doc source="{}">{}</doc>\n\n']))
    wrapper = draw(st.sampled_from(["{}", "# Context\n{}# Answer briefly\n", "<documents>\n{}</documents>\n"]))
    as_part = draw(st.booleans())
    second = draw(st.sampled_from([[], [], [{"role": "system", "content": "Reply in English."}]]))
    turns: list[Body] = []
    session = []
    for number in range(draw(st.integers(2, 4))):
        chosen = draw(st.lists(st.sampled_from(pool), max_size=4))
        documents = "".join(shape.format(name, text) for name, text in chosen)
        clock = draw(st.sampled_from(["", f"The current date and time is 2026-11-21 20:{number:02}.\n"]))
        text = f"You are the support assistant.\n{clock}{wrapper.format(documents)}"
        content: Any = [{"type": "text", "text": text}] if as_part else text
        question = {"role": "user", "content": draw(prose())}
        head = [{"role": "system", "content": content}, *second]
        session.append({"model": "m", "messages": copy.deepcopy([*head, *turns, question])})
        turns += [question, {"role": "assistant", "content": draw(prose())}]
    return session


@cache
@st.composite
def drifting_systems(draw: st.DrawFn) -> list[Body]:
    """A system prompt in which something changes that nobody knows the name of: lines come, go and change in one place
    or two, blank ones among them."""
    line = st.sampled_from(
        ["Be exact.", "- run tests", "", "# Rules", "Name: x", "```", "<env>", "</env>", "Status:", "  a"]
    )
    fixed = draw(st.lists(st.lists(line, min_size=1, max_size=4), min_size=1, max_size=3))
    moving = st.lists(st.sampled_from(["M a.py", "M b.py", "", "3 open", "## main", "x: 1", "M a.py\r"]), max_size=4)
    form = draw(st.sampled_from(["string", "string", "part", "part with more", "two messages", "named"]))
    edges = draw(st.booleans())
    turns: list[Body] = []
    session = []
    for number in range(draw(st.integers(3, 5))):
        blocks = [draw(moving)] if edges else []
        for block in fixed:
            blocks += [[*block, f"section {len(blocks)}"], draw(moving)]
        text = "\n".join(each for block in blocks for each in block) + draw(st.sampled_from(["", "\n"]))
        text = text if text.strip() else "Be kind."
        content: Any = text
        if form.startswith("part"):
            content = [{"type": "text", "text": text, **({"annotations": []} if form == "part with more" else {})}]
        head: list[Body] = [{"role": "system", "content": content, **({"name": "n"} if form == "named" else {})}]
        if form == "two messages":
            head = [{"role": "system", "content": "You are kind."}, *head]
        question = {"role": "user", "content": f"{number} {draw(prose())}"}
        session.append({"model": "m", "messages": copy.deepcopy([*head, *turns, question])})
        turns += [question, {"role": "assistant", "content": draw(prose())}]
    return session


@cache
@st.composite
def clearing_agents(draw: st.DrawFn) -> list[Body]:
    """An agent whose framework clears old tool results on the way."""
    rounds = [draw(tool_rounds(number)) for number in range(draw(st.integers(2, 4)))]
    head = [{"role": "system", "content": "You are kind."}, {"role": "user", "content": draw(prose())}]
    definitions = draw(tools())
    session = []
    for count in range(len(rounds) + 1):
        shown = copy.deepcopy(rounds[:count])
        for old in shown[:-1]:
            for message in old[1:]:
                message["content"] = "[cleared]"
        session.append({"model": "m", "messages": [*head, *(m for r in shown for m in r)], "tools": definitions})
    return session


@cache
@st.composite
def fenced_sessions(draw: st.DrawFn) -> list[Body]:
    """A client of no known kind that shows its files anew in each request, in front of the conversation."""
    shown = {
        path: draw(contents())
        for path in draw(st.sampled_from([("a.py",), ("a.py", "b.md"), ("a.py", "b.py", "c.py")]))
    }
    turns: list[Body] = []
    session = []
    for number in range(draw(st.integers(2, 4))):
        text = "Here are the files:\n\n" + "\n\n".join(f"{p}\n~~~~\n{c}\n~~~~" for p, c in shown.items()) + "\n"
        question = {"role": "user", "content": f"{number} {draw(prose())}"}
        context = [{"role": "user", "content": text}, {"role": "assistant", "content": "Ok."}]
        session.append(
            {"model": "m", "messages": [{"role": "system", "content": "Be kind."}, *context, *turns, question]}
        )
        turns += [question, {"role": "assistant", "content": draw(prose())}]
        edited = draw(st.sampled_from([None, *shown]))
        if edited is not None:
            shown[edited] = draw(contents())
    return session


@st.composite
def _marked(draw: st.DrawFn, body: Body) -> Body:
    """The request with markers of the client's own, in the places where clients put them."""
    body = copy.deepcopy(body)
    # On a tool or on its function, never on both: which of two lives counts then, nobody says.
    holders: list[Body] = body.get("tools", [])[-1:] + [t["function"] for t in body.get("tools", [])[:-1]]
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list) and message["role"] != "tool":
            holders += [p for p in content if p.get("type") == "text" and p["text"].strip()]
        elif isinstance(content, str) and content.strip():
            holders.append(message)
        holders += message.get("tool_calls") or []
    for index in draw(st.lists(st.integers(0, len(holders) - 1), max_size=4, unique=True)) if holders else []:
        holders[index]["cache_control"] = dict(draw(_LIVES))
    return body


@cache
@st.composite
def conversations(draw: st.DrawFn, least: int = 1) -> list[Step]:
    """Requests of one client, one after another: some retried, some branched, some with the client's own markers."""
    session = draw(
        st.one_of(
            sessions(), sessions(), clock_agents(), retrievals(), clearing_agents(), fenced_sessions(),
            drifting_systems(), drifting_systems(),
            bodies().map(lambda body: [body]),
        ).filter(lambda found: len(found) >= least)
    )  # fmt: skip
    marks = draw(st.sampled_from([False, False, True]))
    steps = []
    for body in session:
        steps.append(Step(draw(_GAPS), draw(_marked(body)) if marks else body))
        fate = draw(st.sampled_from(["once", "once", "once", "retry", "branch"]))
        if fate == "retry":
            steps.append(Step(2.0, copy.deepcopy(steps[-1].body)))
        elif fate == "branch" and body["messages"][-1]["role"] == "user":
            other = copy.deepcopy(steps[-1].body)
            other["messages"][-1] = {"role": "user", "content": draw(prose())}
            steps.append(Step(9.0, other))
    return steps
