"""The check of what reached the provider finds what is missing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.demo.structured.fidelity import losses
from proxy.demo.structured.forms import Form, Sending, sendings
from proxy.demo.structured.history import Commit, History
from proxy.demo.structured.package import PACKAGE, busy, installed_files
from proxy.demo.structured.session import turns

Change = Callable[[list[Any]], object]


@pytest.fixture(scope="module")
def sending() -> Sending:
    steps = list(turns(busy(PACKAGE, installed_files(PACKAGE), 6)))
    return list(sendings(Form.EDITOR_SELECTED, steps, "s"))[-1]


def body(sending: Sending, change: Change = lambda messages: None) -> bytes:
    messages = orjson.loads(orjson.dumps(sending.request.body["messages"]))
    change(messages)
    return orjson.dumps({"messages": messages})


def test_a_request_as_it_was_sent_lacks_nothing(sending: Sending) -> None:
    assert losses(sending, body(sending)) == []


def test_texts_may_stand_in_parts_and_files_in_front_of_the_history(sending: Sending) -> None:
    def change(messages: list[Any]) -> None:
        files = messages[-3:-1]
        del messages[-3:-1]
        messages[1:1] = files
        text = files[0]["content"]
        files[0]["content"] = [{"type": "text", "text": text[:900]}, {"type": "text", "text": text[900:]}]

    assert losses(sending, body(sending, change)) == []


def _twice(messages: list[Any]) -> None:
    messages[1:1] = [messages[-3]]


def _shortened(messages: list[Any]) -> None:
    messages[-3]["content"] = messages[-3]["content"][:-500]


def _reworded(messages: list[Any]) -> None:
    messages[2]["content"] += " "


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_shortened, "is missing"),
        (_twice, "stands there 2 times"),
        (_reworded, "message 2 of the conversation is missing"),
        (lambda messages: messages.pop(1), "message 1 of the conversation is missing"),
        (lambda messages: messages.pop(), "of the conversation is missing"),
        (lambda messages: messages.insert(3, messages.pop(1)), "out of order"),
        (lambda messages: messages.append({"role": "user", "content": "Go."}), "behind the prompt"),
        (lambda messages: messages.extend([{"role": "user", "content": "Go."}, messages[-1]]), "behind the prompt"),
    ],
)
def test_what_is_wrong_is_found(change: Change, words: str, sending: Sending) -> None:
    assert any(words in text for text in losses(sending, body(sending, change)))


def test_a_file_that_is_not_selected_must_not_be_there(sending: Sending) -> None:
    (path, text), *_ = [(p, t) for p, t in sending.turn.files.items() if p not in sending.full and len(t) > 500]

    def change(messages: list[Any]) -> None:
        messages[-3]["content"] += text

    assert losses(sending, body(sending, change)) == [f"{path} is not selected, and stands there in full"]


def test_files_that_are_equal_stand_there_as_often_as_there_are_of_them() -> None:
    licence = "Anyone may use this. " * 20
    files = {"a/LICENSE": licence, "b/LICENSE": licence, "c/LICENSE": licence, "d.py": "d = 1\n"}
    history = History("h", "made here", files, (Commit("Say more", {"a/LICENSE": f"{licence}!", "b/LICENSE": ""}),))
    (one,) = sendings(Form.EDITOR_SELECTED, [replace(turn, files=files) for turn in turns(history)], "s")
    assert set(one.full) == {"a/LICENSE", "b/LICENSE"}
    assert losses(one, body(one)) == []
    assert losses(one, body(one, _twice)) == [f"{path} stands there 4 times" for path in one.full]
