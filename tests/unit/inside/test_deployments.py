"""The deployment that LiteLLM calls, by its arguments."""

from proxy.app.factories import price_map
from proxy.core.modes import Mode
from proxy.inside.deployments import Deployments
from proxy.ports import Transport
from proxy.settings import Settings
from tests.inside import call


def test_cache_rules_price_and_mode_are_those_of_the_entry() -> None:
    settings, told = Settings(), list[str]()
    found = Deployments(settings, price_map(settings), told.append)
    claude = found.find(call([], model="anthropic/claude-sonnet-4-5", api_base=None, model_info={"id": "a"}))
    assert claude is not None
    assert (claude.name, claude.id, claude.transport) == ("m", "a", Transport.LITELLM)
    assert (claude.profile.name, claude.mode, claude.price_key) == (
        "anthropic",
        Mode.TIER,
        "anthropic/claude-sonnet-4-5",
    )
    lowered = found.find(call([], model_info={"id": "b", "stratiform": "mark", "mode": "chat"}))
    assert lowered is not None
    assert lowered.mode is Mode.MARK
    assert found.find(call([], model_info={"id": "c", "stratiform": False})) is None
    assert told == []


def test_an_entry_that_is_not_understood_is_told_once_and_left_alone() -> None:
    settings, told = Settings(), list[str]()
    found = Deployments(settings, price_map(settings), told.append)
    for _ in range(2):
        assert found.find(call([], model_info={"id": "d", "cache_profile": "nonsense"})) is None
    assert len(told) == 1
    assert found.find({}) is None
