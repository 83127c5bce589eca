"""Cache profiles by provider, name and host; what is particular to single models."""

import pytest

from proxy.core.profiles import ANTHROPIC, DEEPSEEK, OPENAI, PROFILES
from proxy.deployments.choice import choose_profile, minimum_tokens, provider_of
from proxy.ports import Transport

LITELLM, HTTP, EMBEDDED = Transport.LITELLM, Transport.HTTP, Transport.EMBEDDED


@pytest.mark.parametrize(
    ("transport", "provider", "model", "host", "profile"),
    [
        (LITELLM, "anthropic", "claude-sonnet-4-5", "", "anthropic"),
        (LITELLM, "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "", "anthropic"),
        (LITELLM, "bedrock", "converse/us.anthropic.claude-opus-4-5-20251101-v1:0", "", "anthropic"),
        (LITELLM, "vertex_ai", "claude-sonnet-4-5@20250929", "", "anthropic"),
        (LITELLM, "openrouter", "anthropic/claude-sonnet-4.5", "", "anthropic"),
        (LITELLM, "databricks", "databricks-claude-sonnet-4-5", "", "none"),
        (LITELLM, "groq", "llama-4", "", "none"),
        (LITELLM, "openai", "gpt-5.6", "", "openai-explicit"),
        (LITELLM, "openai", "gpt-6.1-sol", "", "openai-explicit"),
        (LITELLM, "openai", "gpt-5.5", "", "openai"),
        (LITELLM, "openai", "gpt-5", "", "openai"),
        (LITELLM, "openai", "gpt-5-mini-2025-08-07", "", "openai"),
        (LITELLM, "openai", "gpt-4o", "", "openai"),
        (LITELLM, "openai", "o4-mini", "", "openai"),
        (LITELLM, "openai", "chatgpt-4o-latest", "", "openai"),
        (LITELLM, "azure", "gpt-5.6", "", "openai"),
        (LITELLM, "groq", "openai/gpt-oss-120b", "", "none"),
        (LITELLM, "deepseek", "deepseek-chat", "", "deepseek"),
        (LITELLM, "openrouter", "deepseek/deepseek-chat", "", "deepseek"),
        (LITELLM, "fireworks_ai", "deepseek-v4-flash", "", "none"),
        (LITELLM, "gemini", "gemini-2.5-pro", "", "none"),
        (HTTP, "openai", "gpt-6-sol", "api.openai.com", "openai-explicit"),
        (HTTP, "openai", "gpt-6-sol", "gateway.internal", "openai"),
        (HTTP, "openai", "openai/gpt-5.6", "openrouter.ai", "openai"),
        (HTTP, "openai", "anthropic/claude-sonnet-4.5", "openrouter.ai", "anthropic"),
        (HTTP, "openai", "claude-sonnet-4-5", "gateway.internal", "none"),
        (HTTP, "openai", "claude-sonnet-4-5", "notopenrouter.ai", "none"),
        (HTTP, "openai", "claude-sonnet-4-5", "api.anthropic.com", "none"),
        (HTTP, "openai", "deepseek-chat", "api.deepseek.com", "deepseek"),
        (HTTP, "openai", "deepseek-r1", "localhost", "none"),
        (HTTP, "openai", "qwen3-coder", "localhost", "none"),
        (HTTP, "openai", "octopus", "localhost", "none"),
        (EMBEDDED, "embedded", "claude-sonnet-4-5", "", "anthropic"),
        (EMBEDDED, "embedded", "gpt-5.6", "", "openai-explicit"),
        (EMBEDDED, "embedded", "gpt-4o", "", "openai"),
        (EMBEDDED, "embedded", "deepseek-chat", "", "deepseek"),
        (EMBEDDED, "embedded", "anything", "", "anthropic"),
    ],
)  # fmt: skip
def test_a_model_has_the_profile_of_its_provider(
    transport: Transport, provider: str, model: str, host: str, profile: str
) -> None:
    assert choose_profile(transport, provider, model, host) is PROFILES[profile]


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
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
        ("anthropic", "claude-opus-4-6", 4096),
        ("openrouter", "anthropic/claude-haiku-4.5", 4096),
        ("anthropic", "claude-3-5-haiku-20241022", 2048),
        ("anthropic", "claude-mythos-preview", 2048),
        ("anthropic", "claude-fable-5-1", 512),
        ("anthropic", "claude-opus-50", 1024),
    ],
)
def test_claudes_have_their_own_minimum(provider: str, model: str, tokens: int) -> None:
    assert minimum_tokens(ANTHROPIC, provider, model) == tokens


def test_others_have_their_profiles() -> None:
    assert minimum_tokens(OPENAI, "openai", "gpt-5") == OPENAI.min_tokens
    assert minimum_tokens(DEEPSEEK, "deepseek", "deepseek-chat") == DEEPSEEK.min_tokens


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("openai/gpt-5", "", ("openai", "gpt-5")),
        ("openrouter/anthropic/claude", "", ("openrouter", "anthropic/claude")),
        ("gpt-5", "", ("openai", "gpt-5")),
        ("o3", "", ("openai", "o3")),
        ("claude-x", "", ("anthropic", "claude-x")),
        ("llama", "", ("", "llama")),
        ("llama", "ollama", ("ollama", "llama")),
        ("ollama/llama", "ollama", ("ollama", "llama")),
        ("meta/llama", "openai", ("openai", "meta/llama")),
    ],
)
def test_the_provider_is_the_prefix(model: str, given: str, expected: tuple[str, str]) -> None:
    assert provider_of(model, given) == expected
