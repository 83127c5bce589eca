"""The product's own check: quiet about everything that the planner may do, loud about every kind of harm."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import orjson
import pytest

from proxy.lab import Step
from proxy.lab.demo import Sample
from proxy.lab.demo.chats import editor_chat, support_chat
from proxy.lab.demo.tool_agent import clock_agent
from proxy.lab.replay import replay
from proxy.lab.replay.fidelity import tools_of, violations
from proxy.planner.plan import Plan
from proxy.protocol.recognition import CLAIM_HEADERS, TAG_CLOSE, TAG_OPEN, FileClaim
from tests.examples import for_every, sampled
from tests.talk import as_parts
from tests.unit.lab.replay.sessions import MARK, RECOGNISERS, body, say, setting

Request = dict[str, Any]
Harm = Callable[[Request], object]


def check(original: Request | bytes, sent: Request | bytes, max_marks: int = 4) -> list[str]:
    before, after = (r if isinstance(r, bytes) else orjson.dumps(r) for r in (original, sent))
    return violations(before, after, RECOGNISERS, max_marks)


@cache
def planned(make: Callable[[], Sample]) -> list[tuple[bytes, bytes]]:
    """What the planner made of a sample session: each request as it came and as it was sent."""
    pairs: list[tuple[bytes, bytes]] = []

    def note(step: Step, plan: Plan) -> None:
        pairs.append((step.body, plan.body))

    replay(make().trace(), setting(on_sent=note))
    return pairs


def latest(make: Callable[[], Sample], words: bytes) -> tuple[Request, Request]:
    """The newest pair whose sent request holds some words that the client's does not."""
    original, sent = [pair for pair in planned(make) if words in pair[1] and words not in pair[0]][-1]
    return orjson.loads(original), orjson.loads(sent)


def relaid() -> tuple[Request, Request]:
    return latest(editor_chat, orjson.dumps(CLAIM_HEADERS["editable"])[1:-1])


def relocated() -> tuple[Request, Request]:
    return latest(clock_agent, orjson.dumps(TAG_OPEN)[1:-1])


def test_results_in_users_messages_belong_to_their_calls() -> None:
    original, sent = ({**one, "messages": as_parts(*one["messages"])} for one in relocated())
    assert check(original, sent) == []
    *others, results, tag = sent["messages"]
    assert results["content"][0]["type"] == "tool_result"
    assert check(original, {**sent, "messages": [*others, tag, results]}) == ["the tag stands in a wrong place"]


@pytest.mark.parametrize("make", sampled([editor_chat, clock_agent, support_chat], 3))
def test_nothing_is_wrong_with_what_the_planner_does(make: Callable[[], Sample]) -> None:
    pairs = planned(make)
    assert sum(original != sent for original, sent in pairs) > len(pairs) // 3
    assert [check(original, sent) for original, sent in pairs] == [[]] * len(pairs)


def at(request: Request, words: str) -> int:
    """The first message whose text holds some words."""
    return next(i for i, m in enumerate(request["messages"]) if words in orjson.dumps(m["content"]).decode())


def part_at(request: Request) -> int:
    return at(request, "may be edited")


def altered(request: Request, index: int, old: str, new: str) -> None:
    raw = orjson.dumps(request["messages"][index]).decode()
    assert old in raw
    request["messages"][index] = orjson.loads(raw.replace(old, new, 1))


def swapped(request: Request, one: int, other: int) -> None:
    found = request["messages"]
    found[one], found[other] = found[other], found[one]


HARM_TO_FILES: dict[str, Harm] = {
    "a changed file": lambda r: altered(r, part_at(r), "log.debug", "log.error"),
    "a lost part": lambda r: r["messages"].__delitem__(slice(part_at(r), part_at(r) + 2)),
    "a part twice": lambda r: r["messages"].__setitem__(
        slice(part_at(r), part_at(r)), r["messages"][part_at(r) : part_at(r) + 2]
    ),
    "a part without its acknowledgement": lambda r: r["messages"].pop(part_at(r) + 1),
    "words of our own": lambda r: altered(r, part_at(r), "true contents.", "true contents, at 12:03."),
    "the opening lost": lambda r: r["messages"].__delitem__(
        slice(at(r, "*added these files"), at(r, "*added these files") + 2)
    ),
    "context behind the prompt": lambda r: r["messages"].extend(
        [r["messages"].pop(part_at(r)), r["messages"].pop(part_at(r) + 1)]
    ),
    "a turn lost": lambda r: r["messages"].pop(at(r, "I committed the changes")),
    "a turn changed": lambda r: altered(r, at(r, "I committed the changes"), "commit msg", "comit msg"),
    "turns in another order": lambda r: swapped(r, at(r, "I committed the changes"), at(r, "I committed") - 2),
    "a role changed": lambda r: altered(r, at(r, "I committed the changes"), '"role":"user"', '"role":"system"'),
    "the prompt changed": lambda r: altered(r, len(r["messages"]) - 1, " the ", " a "),
    "the prompt not last": lambda r: swapped(r, len(r["messages"]) - 1, len(r["messages"]) - 3),
    "a message added": lambda r: r["messages"].insert(2, say("user", "Be quick.")),
    "the system prompt changed": lambda r: altered(r, 0, "best practices", "good practices"),
}


@for_every(HARM_TO_FILES)
def test_harm_to_files_and_turns_is_found(name: str) -> None:
    original, sent = relaid()
    assert check(original, sent) == []
    HARM_TO_FILES[name](sent)
    assert check(original, sent)


HARM_TO_A_CLOCK: dict[str, Harm] = {
    "the tag lost": lambda r: r["messages"].pop(at(r, TAG_OPEN.strip())),
    "another time": lambda r: altered(r, at(r, TAG_OPEN.strip()), "2026-", "2025-"),
    "a line more": lambda r: altered(r, at(r, TAG_OPEN.strip()), "UTC", "UTC\\nBe quick."),
    "the tag in front": lambda r: r["messages"].insert(0, r["messages"].pop(at(r, TAG_OPEN.strip()))),
    "a rule lost as well": lambda r: altered(r, 0, "- Before anything is deleted", ""),
    "the line in both places": lambda r: altered(r, 0, "You keep the shop", "Current date and time: now. You keep the"),
    "tools changed": lambda r: r["tools"].pop(),
    "tools in another order": lambda r: r["tools"].reverse(),
    "a result lost": lambda r: r["messages"].pop(at(r, "replacement")),
    "a call's arguments changed": lambda r: next(m for m in r["messages"] if "tool_calls" in m)["tool_calls"][0][
        "function"
    ].update(arguments="{}"),
}


@for_every(HARM_TO_A_CLOCK)
def test_harm_to_relocated_lines_and_tools_is_found(name: str) -> None:
    original, sent = relocated()
    assert check(original, sent) == []
    HARM_TO_A_CLOCK[name](sent)
    assert check(original, sent)


def test_the_time_and_the_rules_stand_apart_in_what_is_sent() -> None:
    _, sent = relocated()
    tag = sent["messages"][at(sent, TAG_OPEN.strip())]["content"]
    assert tag.startswith(TAG_OPEN + "Current date and time: 2026-")
    assert tag.endswith(TAG_CLOSE)
    assert "2026-" not in str(sent["messages"][0])


MOVED = TAG_OPEN + "<env>\n\nBranch: main\n\n</env>\nNow: 10:04" + TAG_CLOSE
ENV = "<env>\n\nBranch: main\n\n</env>\n"


@for_every(
    [
        (["A.\n" + ENV + "B.\nNow: 10:04\n"], ["A.\nB.\n"], True),
        (["A.\n" + ENV + "B.\nNow: 10:04\n"], ["A.\n"], False),
        ([["A.", ENV, "B.\nNow: 10:04\n"]], [["A.", "B.\n"]], True),
        ([["A.", ENV + "B.", "Now: 10:04"]], [["A.", "B."]], True),
        ([["A.", ENV, "B.", "Now: 10:04"]], [["B.", "A."]], False),
        ([["A.", ENV, "B.", "Now: 10:04"]], [["A.B."]], False),
        (["A.\n" + ENV, "Now: 10:04"], ["A.\n"], True),
        (["A.\n" + ENV, "Now: 10:04", "B."], ["A.\n", "B."], True),
        (["A.\n" + ENV, "Now: 10:05"], ["A.\n"], False),
    ]
)
def test_what_stands_in_the_tag_is_gone_from_the_system_messages_and_nothing_else(
    system: list[str | list[str]], sent: list[str | list[str]], is_right: bool
) -> None:
    def messages(texts: list[str | list[str]]) -> list[Request]:
        made = (t if isinstance(t, str) else [{"type": "text", "text": part} for part in t] for t in texts)
        return [{"role": "system", "content": content} for content in made]

    user = {"role": "user", "content": "go"}
    before = {"messages": [*messages(system), user]}
    after = {"messages": [*messages(sent), {"role": "user", "content": MOVED}, user]}
    assert (check(before, after) == []) is is_right, check(before, after)


def test_documents_in_a_system_prompt_may_change_their_order_and_nothing_else() -> None:
    original, sent = [(orjson.loads(a), orjson.loads(b)) for a, b in planned(support_chat) if a != b][-1]
    assert check(original, sent) == []
    for harm in (
        lambda r: altered(r, 0, "To begin, open", "To end, close"),
        lambda r: r["messages"][0]["content"].pop(),
        lambda r: r["messages"][0]["content"].append(r["messages"][0]["content"][-1]),
    ):
        worse = deepcopy(sent)
        harm(worse)
        assert check(original, worse)


CHAT: Request = {"model": "m", "temperature": 0.5, "stream": True, "messages": [say("system", "s"), say("user", "u")]}


@pytest.mark.parametrize(
    "changes",
    [
        {"stream_options": {"include_usage": True}},
        {"messages": [say("system", [{"type": "text", "text": "s", "cache_control": MARK}]), say("user", "u")]},
        {"messages": [say("system", "s"), say("user", [{"type": "text", "text": "u"}])]},
    ],
)
def test_what_every_mode_may_do(changes: Request) -> None:
    assert check(CHAT, {**CHAT, **changes}) == []
    assert check({**CHAT, "stratiform": {}}, {**CHAT, **changes}) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": 0.6}, "parameter 'temperature' was changed"),
        ({"model": "n"}, "parameter 'model' was changed"),
        ({"top_p": 1}, "parameter 'top_p' was changed"),
        ({"stream_options": {"include_usage": False}}, "parameter 'stream_options' was changed"),
        ({"tools": [{"type": "function"}]}, "the tools were changed"),
        ({"messages": [say("system", "s")]}, "1 messages are missing, the first a user message"),
    ],
)
def test_what_none_may_do(changes: Request, said: str) -> None:
    assert said in check(CHAT, {**CHAT, **changes})


def test_markers_are_counted_on_parts_messages_calls_and_tools() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"cache_control": 1}'}}
    original = body(
        say("user", "u"), say("assistant", None, tool_calls=[call]), say("tool", "t", tool_call_id="1"),
        tools=[{"type": "function", "function": {"name": "f"}}],
    )  # fmt: skip
    sent = body(
        say("user", [{"type": "text", "text": "u", "cache_control": MARK}]),
        say("assistant", None, tool_calls=[{**call, "cache_control": MARK}]),
        say("tool", "t", tool_call_id="1", cache_control=MARK),
        tools=[{"type": "function", "function": {"name": "f"}, "cache_control": MARK}],
    )
    assert check(original, sent) == []
    assert check(original, sent, max_marks=3) == ["4 markers, 3 are allowed"]


def test_a_request_that_goes_out_as_it_came_is_the_clients_own_affair() -> None:
    marked = body(*(say("user", "u", cache_control=MARK) for _ in range(9)))
    assert check(marked, marked) == []


def test_images_and_thinking_pass_as_they_are() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    original = body(say("user", [image, {"type": "text", "text": "what?"}]))
    assert check(original, body(say("user", [image, {"type": "text", "text": "what?", "cache_control": MARK}]))) == []
    other = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AB"}}
    assert check(original, body(say("user", [other, {"type": "text", "text": "what?"}])))
    assert check(original, body(say("user", [{"type": "text", "text": "what?"}, image])))


def test_tools_may_go_as_they_came_before() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "abc"]
    now, sent, other = (
        orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": given})
        for given in (tools[1::-1], tools[:2], tools[1:])
    )
    assert check(now, sent) == ["the tools were changed"]
    assert violations(now, sent, RECOGNISERS, 4, [tools_of(sent)]) == []
    assert violations(now, other, RECOGNISERS, 4, [tools_of(other)]) == ["the tools were changed"]


CLOCK, STATUS = "The current time is 2026-11-21 10:03.", "Git status:\n## main\n\n M src/a.py"


def instructed(*texts: str) -> Request:
    turns = [say("user", "hello"), say("assistant", "yes?"), say("user", "q")]
    return {"model": "m", "messages": [*(say("system", text) for text in texts), *turns]}


def tagged(request: Request, *lines: str) -> Request:
    found = request["messages"]
    return {**request, "messages": [*found[:-1], say("user", TAG_OPEN + "\n".join(lines) + TAG_CLOSE), found[-1]]}


def test_system_messages_may_move_whole() -> None:
    original = instructed("Be kind.", CLOCK, STATUS)
    assert check(original, tagged(instructed("Be kind."), CLOCK, STATUS)) == []
    assert check(original, tagged(instructed("Be kind.", STATUS), CLOCK)) == []
    assert check(original, tagged(instructed("Be kind.", CLOCK), STATUS)) == []
    assert check(instructed(CLOCK, "Be kind.", CLOCK), tagged(instructed("Be kind.", CLOCK), CLOCK)) == []


@pytest.mark.parametrize(
    "sent",
    [
        tagged(instructed("Be kind."), STATUS, CLOCK),
        tagged(instructed("Be kind."), CLOCK),
        tagged(instructed("Be kind."), CLOCK, "Git status:", "## main"),
        tagged(instructed("Be kind."), CLOCK, STATUS, "Be quick."),
        tagged(instructed("Be kind.", CLOCK), CLOCK, STATUS),
        tagged(instructed(), "Be kind.", STATUS, CLOCK),
        instructed("Be kind.", STATUS),
    ],
)
def test_harm_to_system_messages_that_moved_is_found(sent: Request) -> None:
    assert check(instructed("Be kind.", CLOCK, STATUS), sent)


OPENING = "I have *added these files to the chat* so you can go ahead and edit them.\n"
ACK = "Ok, any changes I propose will be to those files."
FILES = {name: f"\n{name[0]}.py\n```\n{name}\n```\n" for name in ("a", "a2", "b", "c")}


def added(*names: str) -> list[Request]:
    return [say("user", OPENING + "".join(FILES[name] for name in names)), say("assistant", ACK)]


def part(name: str, claim: str = "editable") -> list[Request]:
    return [say("user", CLAIM_HEADERS[FileClaim(claim)] + FILES[name]), say("assistant", "Ok.")]


def talk(*context: list[Request]) -> Request:
    first = say("system", "s")
    return {"model": "m", "messages": [first, *(m for messages in context for m in messages), say("user", "q")]}


SEVERAL = talk(added("a", "b", "c"), added("a2", "b", "c"))


@pytest.mark.parametrize(
    "sent",
    [
        [part("b"), part("c"), part("b"), part("c"), added("a"), added("a2")],
        [part("b"), part("c"), added("a"), part("b"), part("c"), added("a2")],
        [part("b"), part("b"), part("a"), part("a2"), added("c"), added("c")],
        [part("a2"), part("b"), added("c"), part("a"), part("b"), added("c")],
        [added("a2", "b", "c"), part("a"), part("c"), added("b")],
    ],
)
def test_messages_under_one_opening_that_hold_the_same_files_may_interleave(sent: list[list[Request]]) -> None:
    assert check(SEVERAL, talk(*sent)) == []


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([part("b"), part("c"), part("b"), added("a"), added("a2")], "the parts of a context message are not its text"),
        ([part("b"), part("c"), part("b"), part("c"), added("a")], "a context message is missing, or its opening"),
        ([part("a"), part("b"), added("c"), part("a2"), added("c"), part("b")], "a part of a context message behind"),
        (
            [part("b"), part("c"), added("a"), part("b"), part("c"), added("a")],
            "the parts of a context message are not its text",
        ),
        ([part("b", "shown"), part("c"), added("a"), added("a2", "b", "c")], "a user message that the client did not"),
        ([part("b"), part("b"), added("a", "c"), added("a2", "c")], "a user message that the client did not send here"),
    ],
)
def test_harm_to_messages_under_one_opening_is_found(sent: list[list[Request]], said: str) -> None:
    assert any(said in found for found in check(SEVERAL, talk(*sent)))


def test_a_part_stands_in_front_of_the_opening_of_its_own_message() -> None:
    original = talk(added("a", "b"), added("a2", "c"))
    assert check(original, talk(part("b"), added("a"), part("c"), added("a2"))) == []
    for sent in ([added("a"), part("b"), part("c"), added("a2")], [part("a"), part("b"), added("a2"), added("c")]):
        assert any("a part of a context message behind" in found for found in check(original, talk(*sent)))


def test_many_equal_messages_are_told_apart_in_time() -> None:
    original = talk(*(added("a", "b", "c") for _ in range(60)))
    sent = talk(*(messages for _ in range(60) for messages in (part("a"), part("b"), added("c"))))
    assert check(original, sent) == []
    sent["messages"] += [sent["messages"].pop(1), sent["messages"].pop(1)]
    assert check(original, sent)


def test_context_may_stay_where_the_client_put_it() -> None:
    files = [say("user", "Mine:\n\nz.py\n```\nz\n```\n"), say("assistant", "Ok.")]
    hello, more, prompt = say("user", "hello"), say("assistant", "And?"), say("user", "q")
    rules, clock = say("system", "Be kind."), say("system", CLOCK)
    original = {"model": "m", "messages": [rules, clock, hello, *files, more, prompt]}
    assert check(original, tagged({"model": "m", "messages": [rules, hello, *files, more, prompt]}, CLOCK)) == []
    assert check(original, tagged({"model": "m", "messages": [rules, hello, more, *files, prompt]}, CLOCK)) == []
