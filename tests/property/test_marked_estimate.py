"""What mode mark would have cost is the same, whether the plan's own findings are taken over or found out again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.modes import Reason
from proxy.planner.plan import PlannerOptions
from proxy.protocol.providers import ANTHROPIC, CacheProfile
from tests.edited_talks import SYSTEM, A, C, exchange
from tests.fidelity.chats import File
from tests.talk import MARK, TINY, Talk, analysis_of, chat, lines, shown, text_part, user

_TURNS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from([5.0, 200.0, 400.0, 4000.0])), min_size=1, max_size=7
)


@pytest.mark.parametrize("profile", [TINY, replace(ANTHROPIC, min_tokens=400)])
@given(turns=_TURNS)
def test_the_estimate_of_mode_mark_does_not_depend_on_what_is_taken_over(
    profile: CacheProfile, turns: list[tuple[bool, bool, float]]
) -> None:
    talk, talked, version = Talk(profile, options=PlannerOptions(prices_mark=True)), [], 0
    for number, (is_edited, is_marked, pause_s) in enumerate(turns):
        version += is_edited
        files = shown(File("b.py", lines(60, "b") + f"edit {version}\n"), A, C)
        asked = f"question {number}"
        last = user([text_part(asked, **MARK)]) if is_marked else user(asked)
        plan = talk.plan(chat(SYSTEM, *files, *talked, last))
        analysis, in_flight = analysis_of(plan), plan.in_flight
        assert in_flight is not None
        talk.planner.on_accepted(plan, talk.now)
        own, caches = analysis.own, talk.planner._caches_of(analysis.incoming)
        pricing = replace(analysis.pricing(), cache=caches.marked, outlook=None)
        natural = pricing.read(own.arrived, is_natural=True)
        anew = pricing.best_marks(natural, Reason.MARKED, own.marks, own.mark_count)
        found = talk.planner.on_completed(plan, None, talk.now).marked
        assert found == anew.bill or (found is None and own.mark_count >= pricing.slots)
        talk.now += pause_s
        talked += exchange(number)
