"""Real requests: untouched they pass, re-laid they pass, and what is done to them otherwise is caught."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from tests.examples import in_turn, sampled
from tests.growth import assert_linear

from . import words
from .chats import EDITABLE_OPENING, SHOWN_OPENING, said
from .checker import Rule, check, replay_check
from .recorded import requests_of, some_of, trace_files

TRACES = trace_files()
AIDER = [path for path in TRACES if path.name.startswith("aider")]
CLOCKS = [path for path in TRACES if "clock" in path.name]
Body = dict[str, Any]

each_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
# Every sixth session in the fast run, every session in the long one.
each_of_some = pytest.mark.parametrize(
    "path", sampled(TRACES, 6), ids=[path.name.removesuffix(".jsonl.xz") for path in TRACES]
)
each_aider = pytest.mark.parametrize("path", sampled(AIDER, 3), ids=lambda path: path.name.removesuffix(".jsonl.xz"))
pytestmark = pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")


def faults(original: Body, sent: Body, **terms: Any) -> set[Rule]:
    found = check(original, sent, **{"mode": "tier", "profile": "anthropic", **terms})
    return {violation.rule for violation in found}


def chat_files(body: Body) -> tuple[int, str, list[str]] | None:
    """Index, opening and files of aider's message of chat files, read in a way of this test's own: by its one fence."""
    for index, message in enumerate(body["messages"][:-2]):
        text = message["content"]
        for opening in (EDITABLE_OPENING, SHOWN_OPENING):
            if message["role"] == "user" and isinstance(text, str) and text.startswith(opening):
                fence = text.removeprefix(opening).split("\n")[2]
                borders = rf"(?<={re.escape(fence)}\n)\n(?=[^\n]+\n{re.escape(fence)}\n)"
                files = re.split(borders, text.removeprefix(opening))
                return index, opening, [file.strip("\n") for file in files if file.strip("\n")]
    return None


def taken_apart(body: Body, header: str | None = None) -> Body | None:
    """Every second file in a part of its own behind the system message, the others with the opening where they were."""
    found = chat_files(body)
    if found is None or len(found[2]) < 2:
        return None
    index, opening, files = found
    header = header or (words.EDITABLE if opening == EDITABLE_OPENING else words.SHOWN)
    parts = [m for file in files[1::2] for m in (said("user", header + file + "\n"), said("assistant", "Ok."))]
    active = opening + "".join(f"\n{file}\n" for file in files[::2])
    messages = [*body["messages"][:index], said("user", active), *body["messages"][index + 1 :]]
    return {**body, "messages": [messages[0], *parts, *messages[1:]]}


@each_of_some
def test_untouched_requests_pass(path: Path) -> None:
    for body in some_of(path):
        for mode in ("observe", "mark", "tier"):
            assert not faults(body, copy.deepcopy(body), mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "profile"), in_turn(TRACES, ["anthropic", "openai"]))
def test_all_untouched_requests_pass(path: Path, profile: str) -> None:
    pairs = ((body, copy.deepcopy(body)) for body in requests_of(path))
    assert replay_check(pairs, mode="tier", profile=profile) == []


@pytest.mark.slow
@each_trace
def test_one_request_is_not_another(path: Path) -> None:
    bodies = some_of(path)
    for original, sent in zip(bodies, bodies[1:], strict=False):
        assert original == sent or faults(original, sent)


@each_of_some
def test_spoilt_requests_are_caught(path: Path) -> None:
    body = some_of(path)[-1]
    messages = body["messages"]
    for at in (0, len(messages) // 2, len(messages) - 1):
        assert faults(body, {**body, "messages": messages[:at] + messages[at + 1 :]})
        assert faults(body, {**body, "messages": messages[: at + 1] + messages[at:]})
        assert faults(body, {**body, "messages": [*messages[:at], said("user", "hm"), *messages[at:]]})
    if len(messages) > 3:
        assert faults(body, {**body, "messages": [*messages[1:], messages[0]]})
    assert faults(body, {**body, "temperature": 0.5})


@each_aider
def test_chat_files_may_be_taken_apart(path: Path) -> None:
    sent = [(body, taken_apart(body)) for body in requests_of(path)[::3]]
    laid = [(body, other) for body, other in sent if other is not None]
    assert laid
    assert replay_check(laid, mode="tier", profile="anthropic") == []


@each_aider
def test_chat_files_taken_apart_wrongly_are_caught(path: Path) -> None:
    body = next(body for body in reversed(requests_of(path)) if taken_apart(body) is not None)
    for header in (words.READ_ONLY, words.MAP, words.DOCUMENT):
        wrong = taken_apart(body, header)
        assert wrong is not None
        assert faults(body, wrong) == {Rule.CLAIM}
    good = taken_apart(body)
    assert good is not None
    messages = good["messages"]
    assert faults(body, {**good, "messages": [messages[0], *messages[3:]]}) == {Rule.LOST}
    assert faults(body, {**good, "messages": [*messages[:3], *messages[1:]]}) == {Rule.ADDED}
    assert faults(body, {**good, "messages": [*messages[:2], *messages[3:]]}) == {Rule.ACKNOWLEDGEMENT}
    text = messages[1]["content"]
    for at in (len(words.SHOWN) + 40, len(text) // 2, len(text) - 8):
        byte_less = {**messages[1], "content": text[:at].removesuffix("\n") + text[at + 1 :]}
        assert faults(body, {**good, "messages": [messages[0], byte_less, *messages[2:]]})


@pytest.mark.parametrize("path", CLOCKS, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_a_clock_may_be_relocated(path: Path) -> None:
    for body in some_of(path, 8):
        first, *rest = body["messages"]
        line, _, left = first["content"].partition("\n")
        tag = said("user", f"<stratiform-context>\n{line}\n</stratiform-context>")
        last = max(i for i, message in enumerate(rest) if message["role"] == "user")
        before = [{**first, "content": left}, *rest[:last], tag, *rest[last:]]
        assert not faults(body, {**body, "messages": before})
        behind = [{**first, "content": left}, *rest, tag]
        assert faults(body, {**body, "messages": behind}) == (set() if rest[-1]["role"] == "tool" else {Rule.TAG})
        assert faults(body, {**body, "messages": before[:-1] + [tag, before[-1]]})


@pytest.mark.slow
def test_a_large_request_is_checked_in_linear_time() -> None:
    first = max(requests_of(TRACES[0]), key=lambda body: len(str(body["messages"])))

    def grown(chars: int) -> Body:
        messages = [*first["messages"]]
        while len(str(messages)) < chars:
            messages[1:1] = [said("user", f"turn {len(messages)}\n" + "x = 1\n" * 2000), said("assistant", "done")]
        return {**first, "messages": messages}

    bodies = {size: grown(size) for size in (400_000, 1_600_000)}
    sent = {size: taken_apart(body) or copy.deepcopy(body) for size, body in bodies.items()}
    assert_linear(
        lambda sizes: check(bodies[len(sizes)], sent[len(sizes)], mode="tier", profile="anthropic"), range, 400_000
    )
