"""The check of what reached the provider finds what is missing, doubled, or out of order."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.lab.demo import Message, Wanted, assistant, system, user

Change = Callable[[list[Any]], object]

TREE, TODO, LICENCE, HIDDEN = (f"{word} " * 60 for word in ("tree", "todo", "licence", "hidden"))
CALL = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
DONE = [user("first"), assistant("one"), user("second"), {**assistant("two"), "tool_calls": [CALL]}]
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "ran"}
WANTED = Wanted([*DONE, RESULT, user("prompt")], {"panel tree": TREE, "panel todo": TODO}, {"d.py": HIDDEN * 2})


def shown(name: str, content: str) -> list[Message]:
    """A panel as the proxy shows it: a call and its result."""
    call = {"id": f"panel_{name}", "type": "function", "function": {"name": "dynamic_panel", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": f"panel_{name}", "content": f"= {name} =\n{content}"}
    return [{**assistant("Shown."), "tool_calls": [call]}, result]


def sent(wanted: Wanted = WANTED, change: Change = lambda messages: None) -> bytes:
    """As the proxy would send it: the system prompt, the contents, the conversation."""
    panels = [message for name, text in wanted.contents.items() for message in shown(name, text)]
    messages = orjson.loads(orjson.dumps([system("s"), *panels, *wanted.conversation]))
    change(messages)
    return orjson.dumps({"messages": messages})


def _in_between(messages: list[Any]) -> None:
    messages[-1:-1] = [messages.pop(1), messages.pop(1)]
    messages[-1]["content"] = [{"type": "text", "text": "pro"}, {"type": "text", "text": "mpt"}]


def test_contents_may_stand_between_the_turns_and_texts_in_parts() -> None:
    assert WANTED.losses(sent()) == []
    assert WANTED.losses(sent(WANTED, _in_between)) == []


def _twice(messages: list[Any]) -> None:
    messages[1:1] = [messages[2]] * 2


def _reworded(messages: list[Any]) -> None:
    messages[-1]["content"] += " "


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_twice, "panel tree stands there 3 times"),
        (lambda messages: messages.pop(2), "panel tree is missing"),
        (lambda messages: messages.pop(2), "panel_panel tree and its result are parted"),
        (lambda messages: messages.insert(2, messages.pop()), "panel_panel tree and its result are parted"),
        (_reworded, "message 6 of the conversation is missing"),
        (lambda messages: messages.pop(5), "message 1 of the conversation is missing"),
        (lambda messages: messages.append(messages.pop(5)), "is missing, or out of order"),
        (lambda messages: messages.insert(7, messages.pop(5)), "message 2 of the conversation is missing, or out of"),
        (lambda messages: messages.append(user("Go.")), "something stands behind the prompt"),
        (lambda messages: messages.extend([user("Go."), messages[-1]]), "something stands behind the prompt"),
        (lambda messages: messages.insert(1, user(HIDDEN * 2)), "d.py is not selected, and stands there in full"),
    ],
)
def test_what_is_wrong_is_found(change: Change, words: str) -> None:
    assert any(words in text for text in WANTED.losses(sent(WANTED, change)))


def test_behind_the_results_of_a_loop_contents_may_stand() -> None:
    loop = replace(WANTED, conversation=WANTED.conversation[:-1])
    assert loop.losses(sent(loop, lambda messages: messages.extend([messages.pop(1), messages.pop(1)]))) == []


def test_contents_that_are_equal_stand_there_as_often_as_there_are_of_them() -> None:
    several = Wanted([user("q")], {"a": LICENCE, "b": LICENCE, "empty.py": ""}, {"c": LICENCE})
    files = user("".join(f"\n{name}\n{text}\n" for name, text in several.contents.items()))

    def body(*messages: Message) -> bytes:
        return orjson.dumps({"messages": [*messages, user("q")]})

    assert several.losses(body(files)) == []
    assert several.losses(body(files, files)) == [f"{name} stands there 4 times" for name in "ab"]
    assert several.losses(body(user(f"{LICENCE * 2}"))) == ["empty.py is missing"]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_messages_may_stand_in_a_frozen_part(count: int) -> None:
    frozen = replace(WANTED, is_frozen=True)

    def freeze(messages: list[Any]) -> None:
        old = messages[5 : 5 + count]
        del messages[5 : 5 + count]
        messages[1:1] = shown("history_1", "\n".join(f"[{m['role']}]: {m['content']}" for m in old))

    body = sent(frozen, freeze)
    assert frozen.losses(body) == []
    assert frozen.live_messages(body) == len(frozen.conversation) - count
    assert frozen.losses(body.replace(b"second", b"")) == ["message 3 of the conversation is missing, or out of order"]
