"""Random requests with panels and a described history: a valid form passes, and every spoilt one is caught."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from tests.examples import examples, sampled

from .live import LiveTerms, check_live
from .live_chats import NOW_S, LiveChat
from .live_mutations import GENERAL, OWN, part_an_exchange
from .live_strategies import live_chats
from .mutations import Mutation

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TERMS = LiveTerms(NOW_S, tokens=lambda message: 1, allows_compaction=True)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(live_chats())
def test_a_valid_form_is_faithful(chat: LiveChat) -> None:
    assert check_live(chat.original(), chat.sent(), TERMS) == []


@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(live_chats(is_long=True))
def test_a_valid_form_that_is_frozen_or_compacted_is_faithful(chat: LiveChat) -> None:
    assert check_live(chat.original(), chat.sent(), TERMS) == []


@pytest.mark.parametrize("mutation", sampled([*GENERAL, *OWN], 12), ids=lambda mutation: mutation.__name__)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_what_is_spoilt_is_caught(mutation: Mutation, data: st.DataObject) -> None:
    is_long = data.draw(st.booleans())
    # Where something between a question and its answer was left out, a panel may stand in its place.
    is_whole = mutation is part_an_exchange
    chat = data.draw(live_chats(is_long=is_long, is_whole=is_whole, has_summaries=False))
    sent = chat.sent()
    draw: Any = data.draw
    spoilt = mutation(draw, copy.deepcopy(sent))
    assume(spoilt is not None and json.dumps(spoilt) != json.dumps(sent))
    assert spoilt is not None
    found = check_live(chat.original(), spoilt, TERMS)
    for violation in found:
        event(violation.rule)
    assert found
