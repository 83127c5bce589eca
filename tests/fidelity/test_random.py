"""Random requests: the same body and every valid re-layout pass, every spoilt one is caught."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from tests.examples import examples, sampled

from .chats import AiderChat
from .checker import MODES, PROFILES, check
from .mutations import MUTATIONS, Mutation
from .relayouts import relaid_aider, relaid_plain
from .strategies import Body, aider_chats, bodies, fenced_chats, plain_chats, sessions, tool_loops

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(bodies(), st.sampled_from(MODES), st.sampled_from(sorted(PROFILES)))
def test_the_same_body_is_faithful(body: Body, mode: str, profile: str) -> None:
    assert check(body, copy.deepcopy(body), mode=mode, profile=profile) == []


@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_any_relayout_of_aider_that_keeps_the_rules_is_faithful(data: st.DataObject) -> None:
    chat = data.draw(aider_chats(free_fence=True))
    sent = data.draw(relaid_aider(chat))
    assert check(chat.body(), sent, mode="tier", profile="anthropic") == []


@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_cuts_tags_and_markers_that_keep_the_rules_are_faithful(data: st.DataObject) -> None:
    body = data.draw(st.one_of(plain_chats(), tool_loops(), fenced_chats()))
    sent = data.draw(relaid_plain(body))
    assert check(body, sent, mode="tier", profile="anthropic") == []


@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_cuts_and_markers_are_faithful_in_mode_mark(data: st.DataObject) -> None:
    body = data.draw(st.one_of(plain_chats(), tool_loops()))
    sent = data.draw(relaid_plain(body, relocate=False))
    assert check(body, sent, mode="mark", profile="anthropic") == []


def _aider(data: st.DataObject) -> tuple[Body, Body]:
    chat: AiderChat = data.draw(aider_chats(free_fence=True, least_files=2))
    return chat.body(), data.draw(relaid_aider(chat))


def _tool_loop(data: st.DataObject) -> tuple[Body, Body]:
    body = data.draw(tool_loops())
    return body, data.draw(relaid_plain(body))


def _any(data: st.DataObject) -> tuple[Body, Body]:
    if data.draw(st.booleans()):
        return _aider(data)
    body = data.draw(st.one_of(plain_chats(), tool_loops(), fenced_chats()))
    return body, data.draw(relaid_plain(body))


# Where a mutation has something to do in most requests.
SOURCES = {"other_header": _aider, "drop_tool_call": _tool_loop, "swap_tool_results": _tool_loop}
# The tag stands in too few random requests: test_relocation.py repeats it.
EVERYWHERE = [mutation for mutation in MUTATIONS if mutation.__name__ != "repeat_tag"]


@pytest.mark.parametrize("mutation", sampled(EVERYWHERE, 4), ids=lambda mutation: mutation.__name__)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_what_is_spoilt_is_caught(mutation: Mutation, data: st.DataObject) -> None:
    original, sent = SOURCES.get(mutation.__name__, _any)(data)
    draw: Any = data.draw
    spoilt = mutation(draw, copy.deepcopy(sent))
    assume(spoilt is not None and json.dumps(spoilt) != json.dumps(sent))
    assert spoilt is not None
    found = check(original, spoilt, mode="tier", profile="anthropic")
    for violation in found:
        event(violation.rule)
    assert found


@settings(max_examples=examples(30), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(sessions())
def test_sessions_are_requests_of_one_conversation(session: list[Body]) -> None:
    assert session
    for earlier, later in zip(session, session[1:], strict=False):
        assert len(later["messages"]) >= len(earlier["messages"]) - 2
        assert check(earlier, later, mode="tier", profile="anthropic")
