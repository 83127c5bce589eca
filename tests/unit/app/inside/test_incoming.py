"""Who sends a request inside LiteLLM, and what of it is planned."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.factories import price_map, price_source
from proxy.app.inside.incoming import Deployments, StoodDown, body_of, injected_marks, mode_of, principal_of
from proxy.app.settings import Settings
from proxy.kit.modes import Mode
from proxy.models import Transport
from proxy.protocol.providers import ANTHROPIC
from tests.inside import call

WHO = st.dictionaries(
    st.sampled_from(["user_api_key_hash", "user_api_key_team_id", "user_id"]), st.text(max_size=3) | st.none()
)


@given(WHO, WHO, WHO)
def test_nobody_gets_anothers_scope_by_what_he_writes_into_his_own_half(mine: Any, theirs: Any, forged: Any) -> None:
    def identity(told: Any) -> tuple[str, ...]:
        return tuple(told.get(name) or "" for name in ("user_api_key_team_id", "user_api_key_hash"))

    def scope(metadata: Any, beside: Any) -> str:
        return principal_of({"metadata": metadata, "litellm_metadata": beside}).scope

    for victim, attacker in (((mine, {}), (theirs, forged)), (({}, mine), (forged, theirs))):
        is_same = tuple(map(identity, victim)) == tuple(map(identity, attacker))
        assert (scope(*victim) == scope(*attacker)) == is_same


def test_team_key_and_user_are_litellms_own() -> None:
    who = {
        "user_api_key_hash": "h", "user_api_key_team_id": "t1", "user_api_key_team_alias": "Team",
        "user_api_key_user_id": "u",
    }  # fmt: skip
    headers = {"X-Session-Id": "s1"}
    found = principal_of({"metadata": who, "proxy_server_request": {"headers": headers}})
    assert (found.team, found.key_id, found.user, found.session_hint) == ("Team", "h", "u", "s1")
    assert principal_of({"metadata": {"user_id": "x"}, "litellm_metadata": who}).team == "Team"


def test_a_header_lowers_the_mode_and_never_raises_it() -> None:
    def asked(text: str, allowed: Mode) -> Mode:
        return mode_of({"proxy_server_request": {"headers": {"x-stratiform-mode": text}}}, allowed)

    assert asked("observe", Mode.TIER) is Mode.OBSERVE
    assert asked("tier", Mode.MARK) is Mode.MARK
    assert asked("nonsense", Mode.TIER) is Mode.TIER


def test_the_body_has_what_layouts_depend_on_and_no_secret() -> None:
    arguments = {
        "model": "openai/m", "messages": [{"role": "user", "content": "ä"}], "tools": None, "api_key": "sk-secret",
        "litellm_logging_obj": object(), "metadata": {"a": 1}, "temperature": 0.5,
        "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
    found = orjson.loads(body_of(arguments, ANTHROPIC))
    assert set(found) == {"model", "messages", "temperature", "cache_control"}
    for odd in ({1: 2}, {1, 2}, object(), "\ud83d", 1 << 70):
        with pytest.raises(StoodDown):
            body_of({"model": "m", "messages": [odd]}, ANTHROPIC)


def test_injection_points_are_counted_at_their_most() -> None:
    messages = [{"role": role} for role in ("system", "user", "assistant", "user")]

    def marks(*points: Any) -> int:
        return injected_marks({"messages": messages, "cache_control_injection_points": list(points)})

    assert marks({"location": "message", "role": "user"}) == 2
    assert marks({"location": "message", "role": "system"}, {"location": "message", "index": -1}) == 2
    assert marks({"location": "tool_config"}) == 1
    assert marks() == 0


def deployments(told: list[str]) -> Deployments:
    return Deployments(Settings(), price_map(Settings()), told.append)


def test_cache_rules_price_and_mode_are_those_of_the_entry() -> None:
    told = list[str]()
    found = deployments(told)
    claude = found.find(call([], model="anthropic/claude-sonnet-4-5", api_base=None, model_info={"id": "a"}))
    assert claude is not None
    assert (claude.name, claude.id, claude.transport) == ("m", "a", Transport.LITELLM)
    assert (claude.profile.name, claude.mode) == ("anthropic", Mode.TIER)
    assert claude.price_key == "anthropic/claude-sonnet-4-5"
    lowered = found.find(call([], model_info={"id": "b", "stratiform": "mark", "mode": "chat"}))
    assert lowered is not None
    assert lowered.mode is Mode.MARK
    assert found.find(call([], model_info={"id": "c", "stratiform": False})) is None
    assert told == []


def test_what_costs_nothing_is_not_priced_by_its_name() -> None:
    free = {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
    found = deployments([]).find(call([], model="openai/gpt-4o", **free))
    assert found is not None
    price = price_source(price_map(Settings()))(found)
    assert price is not None
    assert (price.input, price.output) == (0, 0)


@pytest.mark.parametrize(
    "more", [{"model_info": {"id": "a", "stratiform": False}}, {"input_cost_per_token": 7.0}], ids=str
)
def test_an_entry_that_is_changed_while_litellm_runs_is_read_again(more: dict[str, Any]) -> None:
    found = deployments([])
    before = call([], model="anthropic/claude-sonnet-4-5", api_base=None, model_info={"id": "a"})
    first = found.find(before)
    assert found.find({**before, "litellm_call_id": "call-2"}) is first is not None
    assert found.find({**before, **more}) != first
    assert found.find(before) == first


def test_an_entry_that_is_not_understood_is_told_once_and_left_alone() -> None:
    told = list[str]()
    found = deployments(told)
    for _ in range(2):
        assert found.find(call([], model_info={"id": "d", "cache_profile": "nonsense"})) is None
    assert len(told) == 1
    assert found.find({}) is None
