"""The clause on signed thinking passes what keeps it, and catches what does not."""

from typing import Any

import pytest

from tests.signed_thinking import SignedForm, signed

from .chats import said
from .checker import Rule
from .signed import SignedThinking, seals_of

Body = dict[str, Any]
FILES = [said("user", "Here are the files:\n\na.py\n~~~~\nx\n~~~~\n"), said("assistant", "Ok.")]
HEAD, TURN = said("system", "Be kind."), [said("user", "q"), said("assistant", "a")]


def chat(*messages: Body, **more: Any) -> Body:
    return {"model": "m", **more, "messages": list(messages)}


FIRST = chat(HEAD, *TURN, *FILES, said("user", "r"))
LAID_OUT = chat(HEAD, *FILES, *TURN, said("user", "r"))
ANSWER = [said("assistant", "b"), said("user", "s")]


def later(body: Body, form: SignedForm = SignedForm.THINKING_BLOCKS) -> Body:
    """The next request, with what came back signed."""
    answer = signed(chat(*ANSWER), form)["messages"]
    return chat(*body["messages"], *answer)


def faults(*pairs: tuple[Body, Body], mode: str = "tier") -> set[Rule]:
    history = SignedThinking()
    for original, sent in pairs[:-1]:
        assert history.check(original, sent, mode="tier", profile="anthropic") == []
    return {violation.rule for violation in history.check(*pairs[-1], mode=mode, profile="anthropic")}


@pytest.mark.parametrize("form", SignedForm)
def test_a_front_stays_as_it_went_out(form: SignedForm) -> None:
    second = later(FIRST, form)
    assert any(seals_of(message) for message in second["messages"])
    for mode in ("tier", "mark", "observe", "passthrough"):
        assert faults((FIRST, LAID_OUT), (second, later(LAID_OUT, form)), mode=mode) == set()
        assert Rule.SIGNED in faults((FIRST, LAID_OUT), (second, second), mode=mode)
        assert Rule.SIGNED in faults((FIRST, FIRST), (second, later(LAID_OUT, form)), mode=mode)
        assert faults((FIRST, FIRST), (second, second), mode=mode) == set()


def test_what_is_not_signed_binds_nothing() -> None:
    second = chat(*FIRST["messages"], *ANSWER)
    assert faults((FIRST, LAID_OUT), (second, second)) == set()


def test_what_the_client_has_changed_is_not_bound() -> None:
    first, other = (chat(said("system", text), *FIRST["messages"][1:]) for text in ("Be kind.", "Be quick."))
    laid_out = chat(said("system", "Be quick."), *LAID_OUT["messages"][1:])
    assert faults((first, first), (later(other), later(laid_out))) == set()


def test_markers_may_move_and_tools_may_not() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = chat({**HEAD, "content": [{"type": "text", "text": "Be kind.", **mark}]}, *LAID_OUT["messages"][1:])
    assert faults((FIRST, marked), (later(FIRST), later(LAID_OUT))) == set()
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    first, second = ({**body, "tools": tools} for body in (FIRST, later(FIRST)))
    assert Rule.SIGNED in faults((first, first), (second, {**second, "tools": tools[::-1]}))


def test_a_front_that_was_laid_out_is_not_a_leave_to_change_the_rest() -> None:
    spoilt = later(LAID_OUT)
    spoilt["messages"][-1] = said("user", "t")
    assert faults((FIRST, LAID_OUT), (later(FIRST), spoilt))
