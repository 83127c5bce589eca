"""The names of providers come from the litellm that is installed. Cache profiles by provider, name and host."""

import asyncio
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from proxy.core.providers import PROFILES
from proxy.deployments import price_map as litellm_files
from proxy.deployments.table import choose_profile, provider_names, provider_of
from proxy.ports import Transport
from proxy.upstream.litellm_.library import Library
from tests.examples import for_every

SOURCE = """
class LlmProviders(str, Enum):
    OPENAI = "openai"
    WITH_2 = 'with-2'

class Other(str, Enum):
    NONE = "none"
"""


def test_names_of_code_and_of_data_are_known() -> None:
    found = provider_names()
    assert {"openai", "anthropic", "bedrock", "vertex_ai", "hosted_vllm", "ollama", "openrouter", "publicai"} <= found
    assert not {"antrhopic", "", "chat", "embedded"} & found


@pytest.mark.slow
def test_litellm_itself_knows_the_same_names() -> None:
    litellm = asyncio.run(Library().module())
    assert {str(getattr(name, "value", name)) for name in litellm.provider_list} <= provider_names()


@pytest.mark.parametrize(
    ("source", "data", "expected"),
    [
        (SOURCE, '{"described": {}}', {"openai", "with-2", "described"}),
        (SOURCE.replace("LlmProviders", "Renamed"), "{}", set()),
        (SOURCE, "[]", set()),
        (SOURCE, "{", set()),
        (None, "{}", set()),
    ],
)
def test_files_of_another_form_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, data: str, expected: set[str]
) -> None:
    for name, text in (("types/utils.py", source), ("llms/openai_like/providers.json", data)):
        (tmp_path / name).parent.mkdir(parents=True)
        if text is not None:
            (tmp_path / name).write_text(text)
    spec = ModuleSpec("litellm", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(litellm_files, "find_spec", lambda name: spec)
    assert provider_names() == expected


LITELLM, HTTP, EMBEDDED = Transport.LITELLM, Transport.HTTP, Transport.EMBEDDED


@for_every(
    [
        (LITELLM, "anthropic", "claude-sonnet-4-5", "", "anthropic"),
        (LITELLM, "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "", "bedrock"),
        (LITELLM, "bedrock", "converse/us.anthropic.claude-opus-4-5-20251101-v1:0", "", "bedrock"),
        (LITELLM, "vertex_ai", "claude-sonnet-4-5@20250929", "", "vertex"),
        (LITELLM, "azure_ai", "claude-opus-5", "", "foundry"),
        (LITELLM, "litellm_proxy", "claude-opus-5", "proxy.internal", "anthropic"),
        (LITELLM, "openrouter", "anthropic/claude-sonnet-4.5", "", "openrouter-anthropic"),
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
        (LITELLM, "azure", "gpt-5.6", "", "azure"),
        (LITELLM, "azure", "gpt-5", "x.openai.azure.com", "azure"),
        (HTTP, "openai", "gpt-5", "x.openai.azure.com", "azure"),
        (LITELLM, "groq", "openai/gpt-oss-120b", "", "groq"),
        (LITELLM, "deepseek", "deepseek-chat", "", "deepseek"),
        (LITELLM, "openrouter", "deepseek/deepseek-chat", "", "openrouter-deepseek"),
        (LITELLM, "fireworks_ai", "deepseek-v4-flash", "", "fireworks"),
        (LITELLM, "gemini", "gemini-2.5-pro", "", "gemini"),
        (LITELLM, "vertex_ai", "gemini-3.8-flash", "", "vertex-gemini"),
        (HTTP, "openai", "gemini-3.8-flash", "generativelanguage.googleapis.com", "gemini"),
        (HTTP, "openai", "google/gemini-3.8-flash", "openrouter.ai", "openrouter-gemini"),
        (LITELLM, "xai", "grok-4.7", "", "xai"),
        (HTTP, "openai", "grok-4.7", "api.x.ai", "xai"),
        (LITELLM, "openrouter", "x-ai/grok-4.7", "", "openrouter-xai"),
        (LITELLM, "mistral", "mistral-large-4", "", "mistral"),
        (HTTP, "openai", "codestral-2508", "api.mistral.ai", "mistral"),
        (LITELLM, "groq", "moonshotai/kimi-k2-instruct-0905", "", "groq"),
        (LITELLM, "moonshot", "kimi-k3", "", "kimi"),
        (HTTP, "openai", "kimi-k3", "api.moonshot.cn", "kimi"),
        (LITELLM, "moonshot", "moonshot-v1-8k", "", "none"),
        (LITELLM, "openrouter", "moonshotai/kimi-k3", "", "none"),
        (LITELLM, "zai", "glm-5.3", "", "glm"),
        (LITELLM, "dashscope", "qwen3.8-max", "", "qwen"),
        (HTTP, "openai", "qwen3.8-max", "dashscope-intl.aliyuncs.com", "qwen"),
        (LITELLM, "dashscope", "deepseek-v4-pro", "", "qwen-implicit"),
        (LITELLM, "openrouter", "qwen/qwen3.8-max", "", "none"),
        (LITELLM, "minimax", "MiniMax-M3", "", "minimax-passive"),
        (LITELLM, "together_ai", "moonshotai/Kimi-K3", "", "together"),
        (HTTP, "openai", "accounts/fireworks/models/glm-5p3", "api.fireworks.ai", "fireworks"),
        (LITELLM, "hosted_vllm", "qwen3-coder", "gpu.internal", "vllm"),
        (LITELLM, "deepseek", "deepseek-chat", "gateway.internal", "none"),
        (HTTP, "openai", "gpt-6-sol", "api.openai.com", "openai-explicit"),
        (HTTP, "openai", "gpt-6-sol", "gateway.internal", "openai"),
        (HTTP, "openai", "openai/gpt-5.6", "openrouter.ai", "openrouter-openai-explicit"),
        (HTTP, "openai", "openai/gpt-5", "openrouter.ai", "openrouter-openai"),
        (HTTP, "openai", "anthropic/claude-sonnet-4.5", "openrouter.ai", "openrouter-anthropic"),
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
        (EMBEDDED, "embedded", "gemini-3.8-flash", "", "gemini"),
        (EMBEDDED, "embedded", "qwen3.8-max", "", "qwen"),
        (EMBEDDED, "embedded", "anything", "", "anthropic"),
    ]
)
def test_a_model_has_the_profile_of_its_provider(
    transport: Transport, provider: str, model: str, host: str, profile: str
) -> None:
    assert choose_profile(transport, provider, model, host) is PROFILES[profile]


@for_every(
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
    ]
)
def test_the_provider_is_the_prefix(model: str, given: str, expected: tuple[str, str]) -> None:
    assert provider_of(model, given) == expected
