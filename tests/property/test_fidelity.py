"""Whatever a client sends, in whatever mode and to whatever provider: what goes out still says what the client said."""

import json
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.kit.errors import UpstreamRejected
from proxy.kit.modes import Mode, Reason
from proxy.protocol.providers import EMBEDDED, PROFILES
from proxy.protocol.request import Inset
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import Provider
from tests.examples import examples
from tests.fidelity.checker import check
from tests.property.conversations import Step, conversations
from tests.talk import Talk, as_parts

# The five that the checker knows, each with and without a minimum: without, short prompts show what long ones would.
NAMES = ("anthropic", "openai", "openai-explicit", "deepseek", "none")
MODES = (Mode.PASSTHROUGH, Mode.OBSERVE, Mode.MARK, Mode.TIER, Mode.TIER, Mode.TIER)


@st.composite
def settings_of(draw: st.DrawFn) -> Talk:
    """A planner behind one of the providers."""
    profile = replace(PROFILES[draw(st.sampled_from(NAMES))], min_tokens=draw(st.sampled_from([1, 1, 64, 1024])))
    talk = Talk(
        profile=profile, mode=draw(st.sampled_from(MODES)), policy=draw(st.sampled_from(["economic", "classic"]))
    )
    inset = Inset(draw(st.sampled_from(["", "", "Read this."])), draw(st.sampled_from(["", "", "Be brief."])))
    server = draw(st.sampled_from(["", EMBEDDED]))
    talk.route = replace(talk.route, model=draw(st.sampled_from(["m", "x"])), inset=inset, server=server)
    return talk


def accepts(provider: Provider, body: bytes, now: float) -> bool:
    """Whether the provider takes it; what it took, it caches."""
    try:
        provider.chat(body, "account", now, 1).store(now)
    except UpstreamRejected:
        return False
    return True


def hold(talk: Talk, steps: list[Step]) -> None:
    """One conversation under the rules."""
    provider, twin = (Provider(talk.profile, bytes_over_four) for _ in range(2))
    for step in steps:
        raw = json.dumps(step.body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        plan = talk.send(raw, after_s=step.after_s)
        assert plan.reason is not Reason.INTERNAL_ERROR
        assert plan.rewritten == (plan.body != plan.original)
        inset = talk.route.inset
        # Whichever turn it is, no other text was ever sent with it.
        earlier = dict.fromkeys(range(len(step.body["messages"])), (inset.before, inset.after))
        found = check(
            step.body, json.loads(plan.body), mode=talk.mode.name.lower(), profile=talk.profile.name,
            inset=(inset.before, inset.after), earlier=earlier,
        )  # fmt: skip
        assert found == [], (plan.reason, *map(str, found))
        if talk.mode <= Mode.OBSERVE:
            assert plan.body == plan.original
        # What the provider took from the client it takes from us.
        if accepts(twin, plan.original, talk.now):
            assert accepts(provider, plan.body, talk.now), plan.reason


SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(settings_of(), conversations())
@settings(max_examples=examples(400), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_rules_hold(talk: Talk, steps: list[Step]) -> None:
    hold(talk, steps)


@given(settings_of(), conversations())
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_rules_hold_where_results_stand_in_users_messages(talk: Talk, steps: list[Step]) -> None:
    hold(talk, [replace(step, body={**step.body, "messages": as_parts(*step.body["messages"])}) for step in steps])


@given(settings_of(), conversations())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_two_planners_send_the_same_bytes(talk: Talk, steps: list[Step]) -> None:
    twin = Talk(talk.profile, talk.mode, talk.policy, talk.route)
    for step in steps:
        assert talk.send(step.body, after_s=step.after_s).body == twin.send(step.body, after_s=step.after_s).body
