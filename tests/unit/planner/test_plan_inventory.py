"""What a request without structured context holds, and that each of its tokens is listed once."""

from proxy.lab.demo.chats import document
from proxy.planner.plan import inventory_of
from tests.fidelity.chats import File
from tests.talk import Talk, assistant, chat, lines, shown, system, tool, user


def test_each_token_of_a_request_is_listed_once() -> None:
    retrieved = "\n\n".join(map(document, range(3)))
    files = shown(File("a.py", lines(20, "a")), File("b.py", lines(20, "b")))
    turns = [user("one"), assistant("two"), user("three")]
    head = [system(lines(30)), system(f"{lines(40, 'rule')}\n\n{retrieved}\n\nBe brief.")]
    plan = Talk().send(chat(*head, *files, *turns, tools=[tool("run")]))
    sections = inventory_of(plan.in_flight).sections
    tokens = {item.key: item.tokens for section in sections for item in section.items}
    assert sum(tokens.values()) + sum(one.words for one in sections) == plan.in_flight.analysis.own.natural.total
    assert min(tokens.values()) > 0
    assert {one.kind for one in sections if one.words} == {"files"}
    assert {"system:tools", "system:0", "system:1", "history", "prompt"} <= tokens.keys()
    assert [one.kind for one in sections][-2:] == ["history", "prompt"]
    assert sum("document" in key for key in tokens) == 3
