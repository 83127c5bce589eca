"""The operator's system text in front of the client's, and conversations without their oldest messages."""

from itertools import product
from typing import Any

import pytest

from tests.examples import for_every

from .cases import Body, aider, edited, parts, rules, run, with_messages
from .chats import said
from .violations import Rule

MODES = ("passthrough", "observe", "mark", "tier")
TEXT = "Follow the rules."


def calling(*ids: str) -> Body:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str) -> Body:
    return {"role": "tool", "tool_call_id": name, "content": f"result {name}"}


def talk() -> Body:
    """0 system, 1-2 a turn, 3-6 one with a tool group and an answer, 7-11 the newest one with two tool groups."""
    messages: list[Any] = [
        said("system", "S"), said("user", "one"), said("assistant", "1"),
        said("user", "two"), calling("a"), result("a"), said("assistant", "2"),
        said("user", "three"), calling("b"), result("b"), calling("c"), result("c"),
    ]  # fmt: skip
    return {"model": "m", "messages": messages}


def without(body: Body, *indices: int) -> Body:
    return with_messages(body, *(each for index, each in enumerate(body["messages"]) if index not in indices))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("own", "composed"),
    [
        ([said("system", "S")], [said("system", f"{TEXT}\n\nS")]),
        ([said("developer", "S")], [said("developer", f"{TEXT}\n\nS")]),
        ([said("system", "")], [said("system", TEXT)]),
        ([], [said("system", TEXT)]),
        ([said("system", parts("S", "T"))], [said("system", parts(f"{TEXT}\n\n", "S", "T"))]),
    ],
)
def test_the_operators_system_text_stands_in_front_of_the_clients(mode: str, own: Any, composed: Any) -> None:
    original = {"model": "m", "messages": [*own, said("user", "hi")]}
    sent = {"model": "m", "messages": [*composed, said("user", "hi")]}
    assert run(original, sent, system=TEXT, mode=mode) == []
    assert rules(original, sent, mode=mode), "only where the operator asks for it"


@for_every(product(MODES, ["S", f"S\n\n{TEXT}", f"{TEXT}\nS", f"{TEXT}\n\n{TEXT}\n\nS", TEXT, "Follow no rules.\n\nS"]))
def test_the_operators_system_text_is_neither_lost_nor_moved_nor_doubled_nor_changed(mode: str, system: str) -> None:
    original = {"model": "m", "messages": [said("system", "S"), said("user", "hi")]}
    assert rules(original, edited(original, 0, content=system), system=TEXT, mode=mode)


def test_a_composed_request_may_be_laid_out_as_any_other() -> None:
    composed = edited(aider(), 0, content=f"{TEXT}\n\n{aider()['messages'][0]['content']}")
    assert run(aider(), composed, system=TEXT) == []
    cut = parts(f"{TEXT}\n\n", aider()["messages"][0]["content"])
    assert run(aider(), edited(composed, 0, content=cut), system=TEXT) == []
    moved = with_messages(composed, composed["messages"][1], composed["messages"][0], *composed["messages"][2:])
    assert rules(aider(), moved, system=TEXT)


@for_every(product(MODES, [(), (1, 2), (1, 2, 4, 5), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 8, 9)]))
def test_whole_turns_and_groups_may_be_gone_from_the_oldest_on(mode: str, gone: tuple[int, ...]) -> None:
    assert run(talk(), without(talk(), *gone), is_trimmed=True, mode=mode) == []
    assert bool(rules(talk(), without(talk(), *gone), mode=mode)) == bool(gone)


@for_every(
    product(
        MODES,
        [
            (0,), (1,), (2,), (3, 4, 5, 6), (1, 2, 3), (1, 2, 4), (1, 2, 5), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 7),
            (1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 4, 5, 6, 8), (1, 2, 3, 4, 5, 6, 9),
            (1, 2, 3, 4, 5, 6, 8, 9, 10, 11), (8, 9), (11,), (0, 1, 2), (1, 2, 6), (6,),
        ],
    )
)  # fmt: skip
def test_nothing_else_may_be_gone(mode: str, gone: tuple[int, ...]) -> None:
    assert rules(talk(), without(talk(), *gone), is_trimmed=True, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_left_says_what_it_said(mode: str) -> None:
    left = without(talk(), 1, 2)
    for index, message in enumerate(left["messages"]):
        changed = {"content": "other"} if isinstance(message.get("content"), str) else {"tool_calls": []}
        assert rules(talk(), edited(left, index, **changed), is_trimmed=True, mode=mode)
    assert rules(talk(), with_messages(left, *left["messages"], said("user", "more")), is_trimmed=True, mode=mode)
    assert rules(talk(), with_messages(left, *left["messages"][:2], *left["messages"][1:]), is_trimmed=True, mode=mode)


def test_a_call_and_its_result_are_both_there_or_both_gone() -> None:
    late = {**talk()}
    late["messages"] = [*talk()["messages"][:3], calling("z"), said("user", "two"), result("z"), said("user", "three")]
    for gone in ((1, 2, 3), (1, 2, 3, 4, 5)):
        is_whole = 5 in gone
        assert bool(rules(late, without(late, *gone), is_trimmed=True, mode="observe")) is not is_whole


def test_all_texts_of_an_operator_may_come_together() -> None:
    body = without(talk(), 1, 2)
    body = edited(body, 0, content=f"{TEXT}\n\nS")
    last = max(index for index, each in enumerate(body["messages"]) if each["role"] == "user")
    body = edited(body, last, content="Read.\n\nthree\n\nBe brief.")
    terms: dict[str, Any] = {"system": TEXT, "is_trimmed": True, "inset": ("Read.", "Be brief.")}
    for mode in MODES:
        assert run(talk(), body, mode=mode, **terms) == []
        for left_out in terms:
            assert rules(talk(), body, mode=mode, **{name: terms[name] for name in terms if name != left_out})
    assert Rule.ADDED not in rules(talk(), body, **terms)
