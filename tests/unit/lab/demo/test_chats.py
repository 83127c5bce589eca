"""The sample sessions are what they claim to be."""

import ast
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from plugins.aider import AiderRecogniser
from proxy.lab.demo import Message, Sample
from proxy.lab.demo.chats import (
    EDITS,
    changed,
    chat_files,
    document,
    editor_chat,
    repository_map,
    samples,
    shown,
    support_chat,
)
from proxy.lab.demo.tool_agent import clock_agent, tool_agent
from proxy.protocol.recognition import MessageKind, recognise_text
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import bytes_over_four

MAKERS = (editor_chat, tool_agent, clock_agent, support_chat)


def messages(sample: Sample) -> list[list[Message]]:
    return [request.body["messages"] for request in sample.requests]


def is_prefix(one: list[Any], other: list[Any]) -> bool:
    return other[: len(one)] == one


@pytest.mark.parametrize("make", MAKERS)
def test_samples_are_the_same_on_every_run_and_in_the_order_of_time(make: Callable[[], Sample]) -> None:
    assert make() == make()
    times = [request.at for request in make().requests]
    assert times == sorted(set(times))
    for step in make().trace().steps:
        assert parse_body(step.body).chat().model == "claude-sonnet-4-5"


def test_there_is_one_of_each_kind() -> None:
    assert [sample.name for sample in samples()] == ["editor", "agent", "clock", "support"]
    assert len({sample.client for sample in samples()}) == 4


# The editing chat


@pytest.mark.slow
def test_the_files_are_python_of_a_realistic_size() -> None:
    files = chat_files()
    for edit in EDITS:
        files = [changed(file, edit) if file.path == edit.path else file for file in files]
        for file in files:
            ast.parse(file.text)
            assert 1_500 < bytes_over_four(file.text) < 10_000
            names = [function.name for function in file.functions]
            assert len(names) == len(set(names))
    assert len(files) == 5


def test_every_turn_edits_one_file_and_is_followed_by_a_commit_message_call() -> None:
    sample = editor_chat()
    turns, commits = sample.requests[::2], sample.requests[1::2]
    assert len(turns) == len(commits) == len(EDITS) == 12
    shown = [request.body["messages"][-3]["content"] for request in turns]
    for before, after, edit in zip(shown, shown[1:], EDITS, strict=False):
        differing = [
            (one, other)
            for one, other in zip(before.split("\n```\n\n"), after.split("\n```\n\n"), strict=True)
            if one != other
        ]
        assert len(differing) == 1
        assert edit.path in differing[0][1]
    for request, edit in zip(commits, EDITS, strict=True):
        system, user = request.body["messages"]
        assert system["content"].startswith("You are an expert software engineer that generates concise, one-line Git")
        assert f"--- a/{edit.path}" in user["content"]
        assert "stream" not in request.body


def test_the_map_changes_in_most_turns_and_not_in_all() -> None:
    maps = [repository_map(turn) for turn in range(12)]
    changes = sum(one != other for one, other in zip(maps, maps[1:], strict=False))
    assert 6 <= changes < 11


def test_the_messages_are_those_that_the_recogniser_knows() -> None:
    texts = [(message["role"], message["content"]) for message in editor_chat().requests[-2].body["messages"]]
    recognised = [recognise_text([AiderRecogniser()], role, text) for role, text in texts]
    found = [(known.name, known.form, len(known.cuts)) for known in recognised if known is not None]
    assert found == [("aider:map", MessageKind.CONTEXT, 2), ("aider:files", MessageKind.CONTEXT, 6)]


def test_the_conversation_behind_the_map_only_grows() -> None:
    bodies = [request.body["messages"] for request in editor_chat().requests[::2]]
    done = [body[3:-3] for body in bodies]
    assert all(is_prefix(one, other) for one, other in zip(done, done[1:], strict=False))
    assert len(done[-1]) == 4 * 11


# The agents


def test_the_tool_agent_only_appends() -> None:
    found = messages(tool_agent())
    assert len(found) == 25
    assert all(is_prefix(one, other) and one != other for one, other in zip(found, found[1:], strict=False))
    assert len({json.dumps(request.body["tools"]) for request in tool_agent().requests}) == 1


@pytest.mark.parametrize("make", [tool_agent, clock_agent])
def test_every_call_is_answered_right_behind_it(make: Callable[[], Sample]) -> None:
    last = messages(make())[-1]
    for index, message in enumerate(last):
        ids = [call["id"] for call in message.get("tool_calls", ())]
        answers = [other.get("tool_call_id") for other in last[index + 1 : index + 1 + len(ids)]]
        assert answers == ids
    every = [call["id"] for message in last for call in message.get("tool_calls", ())]
    assert len(every) == len(set(every)) > 10


def test_the_clock_is_right_in_every_request_and_all_else_only_grows() -> None:
    sample = clock_agent()
    for request in sample.requests:
        first = request.body["messages"][0]["content"].partition("\n")[0]
        assert first == f"Current date and time: {datetime.fromtimestamp(request.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    rest = [found[1:] for found in messages(sample)]
    assert all(is_prefix(one, other) for one, other in zip(rest, rest[1:], strict=False))
    assert len({found[0]["content"].partition("\n")[2] for found in messages(sample)}) == 1


# The support chat


def test_documents_come_and_go_between_the_fixed_texts() -> None:
    prompts = [found[0]["content"] for found in messages(support_chat())]
    heads, tails = ({p.partition("<document")[0] for p in prompts}, {p.rpartition("</document>")[2] for p in prompts})
    assert len(heads) == len(tails) == 1
    assert len(set(prompts)) == len(prompts) == 14
    assert bytes_over_four(tails.pop()) > 1024
    assert len({document(number) for number in range(20)}) == 20
    history = [found[1:] for found in messages(support_chat())]
    assert all(is_prefix(one, other) for one, other in zip(history, history[1:], strict=False))


def test_a_fence_is_one_that_begins_no_line_of_any_file() -> None:
    assert shown({"a.md": "text"}).endswith("\na.md\n```\ntext\n```\n")
    assert shown({"a.md": "```\ncode\n```\n"}).endswith("\na.md\n````\n```\ncode\n```\n````\n")
    longer = "```\n````\n"
    assert shown({"a.md": longer}).endswith(f"\na.md\n<source>\n{longer}</source>\n")
    every = "````\n<source>\n<code>\n<pre>\n<codeblock>\n<sourcecode>\n"
    assert shown({"a.md": every}).endswith(f"\na.md\n```\n{every}```\n")
