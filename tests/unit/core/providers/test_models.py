"""What is particular to single models."""

from dataclasses import fields

import pytest

from proxy.core.providers import PROFILES, CacheProfile, fitted
from proxy.core.providers.models import PARTICULARS
from tests.examples import for_every


@for_every(
    [
        ("anthropic", "claude-opus-5", 512),
        ("anthropic", "claude-opus-5-5", 512),
        ("anthropic", "claude-sonnet-5-5-20260901", 512),
        ("anthropic", "claude-sonnet-5", 1024),
        ("anthropic", "claude-sonnet-4-5-20250929", 1024),
        ("anthropic", "claude-opus-4-1", 1024),
        ("anthropic", "claude-opus-4-20250514", 1024),
        ("anthropic", "claude-opus-4-8", 1024),
        ("anthropic", "claude-opus-4-7", 2048),
        ("bedrock", "us.anthropic.claude-opus-4-7-v1:0", 4096),
        ("bedrock", "us.anthropic.claude-opus-5-v1:0", 512),
        ("vertex", "claude-opus-4-7@20260101", 2048),
        ("anthropic", "claude-opus-4-6", 4096),
        ("openrouter-anthropic", "anthropic/claude-haiku-4.5", 4096),
        ("anthropic", "claude-3-5-haiku-20241022", 2048),
        ("anthropic", "claude-mythos-preview", 2048),
        ("anthropic", "claude-fable-5-1", 512),
        ("anthropic", "claude-opus-50", 1024),
        ("gemini", "gemini-2.5-pro", 2048),
        ("gemini", "gemini-3.8-flash", 4096),
        ("vertex-gemini", "gemini-3.8-flash", 6144),
        ("vertex-gemini", "gemini-2.5-flash", 2048),
        ("openai", "gpt-5", 1024),
        ("deepseek", "deepseek-chat", 128),
    ]
)
def test_the_shortest_prefix_that_is_cached(profile: str, model: str, tokens: int) -> None:
    assert fitted(PROFILES[profile], model).min_tokens == tokens


@for_every(
    [
        ("anthropic", "claude-opus-5", 0.1),
        ("anthropic", "claude-opus-5-5", 0.05),
        ("bedrock", "anthropic.claude-sonnet-5-5", 0.05),
        ("anthropic", "claude-fable-5", 0.1),
        ("anthropic", "claude-fable-5.1", 0.025),
        ("openai", "gpt-4o-mini", 0.5),
        ("openai", "gpt-4.1-nano", 0.25),
        ("openai", "o4-mini", 0.25),
        ("azure", "o3", 0.25),
        ("openai", "gpt-5.4", 0.1),
        ("openai-explicit", "gpt-6.1-sol", 0.05),
        ("openai-explicit", "gpt-6-sol", 0.1),
        ("deepseek", "deepseek-v4-pro", 0.033),
        ("xai", "grok-4.5", 0.15),
        ("xai", "grok-4.7", 0.25),
        ("kimi", "kimi-k3", 0.1),
        ("kimi", "kimi-k2.7-code", 0.2),
    ]
)
def test_the_price_of_a_read(profile: str, model: str, read: float) -> None:
    assert fitted(PROFILES[profile], model).read == read


@pytest.mark.parametrize(
    ("model", "is_safe"),
    [
        ("claude-opus-4-8", True),
        ("claude-opus-5-5", True),
        ("claude-sonnet-5-5", True),
        ("claude-sonnet-5", False),
        ("claude-opus-4-7", False),
        ("claude-haiku-5-5", False),
    ],
)
def test_system_messages_within_the_conversation(model: str, is_safe: bool) -> None:
    assert fitted(PROFILES["anthropic"], model).mid_system is is_safe


def test_gpt_5_5_has_wide_steps() -> None:
    assert [fitted(PROFILES["openai"], f"gpt-5.{minor}").step for minor in (4, 5)] == [128, 2048]


def test_a_model_of_which_nothing_is_known_has_the_profile_itself() -> None:
    for profile in PROFILES.values():
        assert fitted(profile, "somebody/else") is profile


@for_every(PARTICULARS)
def test_every_particular_is_reached(particular) -> None:
    assert particular.field in {field.name for field in fields(CacheProfile)}
    for profile in particular.profiles:
        for name in particular.names:
            assert getattr(fitted(PROFILES[profile], f"x-{name}-y"), particular.field) == particular.value
