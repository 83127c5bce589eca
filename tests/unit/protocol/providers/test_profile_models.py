"""What is particular to single models."""

from dataclasses import fields

from proxy.protocol.providers import PROFILES, CacheProfile, fitted
from proxy.protocol.providers.profile import PARTICULARS
from tests.examples import for_every

FACTS: dict[tuple[str, str], dict[str, object]] = {
    ("min_tokens", "anthropic"): {
        "claude-opus-5": 512, "claude-opus-5-5": 512, "claude-sonnet-5-5-20260901": 512, "claude-sonnet-5": 1024,
        "claude-sonnet-4-5-20250929": 1024, "claude-opus-4-1": 1024, "claude-opus-4-20250514": 1024,
        "claude-opus-4-8": 1024, "claude-opus-4-7": 2048, "claude-opus-4-6": 4096, "claude-3-5-haiku-20241022": 2048,
        "claude-mythos-preview": 2048, "claude-fable-5-1": 512, "claude-opus-50": 1024,
    },
    ("min_tokens", "bedrock"): {"us.anthropic.claude-opus-4-7-v1:0": 4096, "us.anthropic.claude-opus-5-v1:0": 512},
    ("min_tokens", "vertex"): {"claude-opus-4-7@20260101": 2048},
    ("min_tokens", "openrouter-anthropic"): {"anthropic/claude-haiku-4.5": 4096},
    ("min_tokens", "gemini"): {"gemini-2.5-pro": 2048, "gemini-3.8-flash": 4096},
    ("min_tokens", "vertex-gemini"): {"gemini-3.8-flash": 6144, "gemini-2.5-flash": 2048},
    ("min_tokens", "openai"): {"gpt-5": 1024},
    ("min_tokens", "deepseek"): {"deepseek-chat": 128},
    ("read", "anthropic"): {
        "claude-opus-5": 0.1, "claude-opus-5-5": 0.05, "claude-fable-5": 0.1, "claude-fable-5.1": 0.025,
    },
    ("read", "bedrock"): {"anthropic.claude-sonnet-5-5": 0.05},
    ("read", "openai"): {"gpt-4o-mini": 0.5, "gpt-4.1-nano": 0.25, "o4-mini": 0.25, "gpt-5.4": 0.1},
    ("read", "azure"): {"o3": 0.25},
    ("read", "openai-explicit"): {"gpt-6.1-sol": 0.05, "gpt-6-sol": 0.1},
    ("read", "deepseek"): {"deepseek-v4-pro": 0.033},
    ("read", "xai"): {"grok-4.5": 0.15, "grok-4.7": 0.25},
    ("read", "kimi"): {"kimi-k3": 0.1, "kimi-k2.7-code": 0.2},
    ("mid_system", "anthropic"): {
        "claude-opus-4-8": True, "claude-opus-5-5": True, "claude-sonnet-5-5": True, "claude-sonnet-5": False,
        "claude-opus-4-7": False, "claude-haiku-5-5": False,
    },
    ("step", "openai"): {"gpt-5.4": 128, "gpt-5.5": 2048},
}  # fmt: skip


@for_every(FACTS)
def test_the_facts_about_single_models(field: str, profile: str) -> None:
    found = {model: getattr(fitted(PROFILES[profile], model), field) for model in FACTS[field, profile]}
    assert found == FACTS[field, profile]


def test_a_model_of_which_nothing_is_known_has_the_profile_itself() -> None:
    for profile in PROFILES.values():
        assert fitted(profile, "somebody/else") is profile


@for_every(PARTICULARS)
def test_every_particular_is_reached(particular) -> None:
    assert particular.field in {field.name for field in fields(CacheProfile)}
    for profile in particular.profiles:
        for name in particular.names:
            assert getattr(fitted(PROFILES[profile], f"x-{name}-y"), particular.field) == particular.value
