import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.profiles import PROFILES
from proxy.core.routing import RoutingKey, routing_key, written


@given(st.text(), st.text())
def test_a_key_is_safe_and_short(scope: str, session: str) -> None:
    key = routing_key(scope, session)
    assert re.fullmatch(r"st-[0-9a-f]{32}", key)
    assert key == routing_key(scope, session)


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), unique=True, min_size=2, max_size=20))
def test_sessions_and_scopes_are_apart(pairs) -> None:
    assert len({routing_key(scope, session) for scope, session in pairs}) == len(pairs)


def test_where_a_key_goes() -> None:
    key = routing_key("team", "session")
    assert written(PROFILES["openai"].routing, key) == RoutingKey(member=("prompt_cache_key", key))
    assert written(PROFILES["xai"].routing, key) == RoutingKey(header=("x-grok-conv-id", key))
    assert written(PROFILES["anthropic"].routing, key) == RoutingKey()


def test_a_key_is_cut_to_what_the_provider_takes() -> None:
    member = written(PROFILES["openai"].routing, "k" * 100).member
    assert member == ("prompt_cache_key", "k" * 64)
