"""The check of what reached the provider finds what is missing."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from proxy.demo.panels.fidelity import live_messages, losses
from proxy.demo.panels.forms import Form, Sending, sendings
from proxy.demo.panels.session import Pace, turns

Change = Callable[[list[Any]], object]


def pair(name: str, content: str) -> list[dict[str, Any]]:
    call = {"id": f"panel_{name}", "type": "function", "function": {"name": "dynamic_panel", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "Shown.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"panel_{name}", "content": f"= {name} =\n{content}"},
    ]


@pytest.fixture(scope="module", params=[Pace(4), Pace(2, has_calls=True)], ids=["chat", "loops"])
def sending(request: pytest.FixtureRequest) -> Sending:
    return list(sendings(Form.PANELS, list(turns(request.param)), "s"))[-1]


def sent(sending: Sending, change: Change = lambda messages: None) -> bytes:
    """As the proxy would send it: the system prompt, the panels, the conversation."""
    system, *talk = orjson.loads(orjson.dumps(sending.request.body["messages"]))
    panels = [message for panel in sending.turn.panels for message in pair(panel.id, panel.content)]
    messages = [system, *panels, *talk]
    change(messages)
    return orjson.dumps({"messages": messages})


def test_a_request_with_all_its_panels_lacks_nothing(sending: Sending) -> None:
    assert losses(sending, sent(sending)) == []


def test_panels_may_stand_between_the_turns_and_texts_in_parts(sending: Sending) -> None:
    def change(messages: list[Any]) -> None:
        messages[-1:-1] = [messages.pop(1), messages.pop(1)]
        text = messages[-1]["content"]
        messages[-1]["content"] = [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]

    assert losses(sending, sent(sending, change)) == []


def _twice(messages: list[Any]) -> None:
    messages[1:1] = messages[1:3]


def _reworded(messages: list[Any]) -> None:
    messages[-1]["content"] += " "


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_twice, "panel tree stands there 2 times"),
        (lambda messages: messages.pop(2), "panel tree stands there 0 times"),
        (lambda messages: messages.pop(2), "panel_tree and its result are parted"),
        (lambda messages: messages.insert(2, messages.pop()), "panel_tree and its result are parted"),
        (_reworded, "is missing, or out of order"),
        (lambda messages: messages.pop(17), "message 1 of the conversation is missing"),
        (lambda messages: messages.append(messages.pop(17)), "is missing, or out of order"),
    ],
)
def test_what_is_wrong_is_found(change: Change, words: str, sending: Sending) -> None:
    assert any(words in text for text in losses(sending, sent(sending, change)))


class TestFreezing:
    @pytest.fixture
    def sending(self) -> Sending:
        return list(sendings(Form.FREEZING, list(turns(Pace(5))), "s"))[-1]

    def frozen(self, sending: Sending, count: int) -> bytes:
        def change(messages: list[Any]) -> None:
            old = messages[17 : 17 + count]
            del messages[17 : 17 + count]
            messages[1:1] = pair("history_1", "\n".join(f"[{m['role']}]: {m['content']}" for m in old))

        return sent(sending, change)

    @pytest.mark.parametrize("count", [0, 2, 4])
    def test_messages_may_stand_in_a_frozen_part(self, sending: Sending, count: int) -> None:
        assert losses(sending, self.frozen(sending, count)) == []
        assert live_messages(sending, self.frozen(sending, count)) == 9 - count

    def test_a_message_that_stands_nowhere_is_missing(self, sending: Sending) -> None:
        text = orjson.dumps(sending.turn.done[2]["content"])
        assert losses(sending, self.frozen(sending, 4).replace(text[1:-1], b"")) == [
            "message 3 of the conversation is missing, or out of order"
        ]
