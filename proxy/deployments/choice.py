"""Which cache profile a model has where the configuration does not say, and what is particular to single models.

Facts: Anthropic https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-08-21), OpenAI
https://developers.openai.com/api/docs/guides/prompt-caching (2026-09-20), DeepSeek
https://api-docs.deepseek.com/guides/kv_cache, litellm 1.109 (which of its providers keep ``cache_control``).

The rules, in short; ``model_info.cache_profile`` overrides them:

- Claude: ``anthropic`` on the litellm transport through a provider that keeps markers, and on http behind OpenRouter.
  On http behind any other host ``none``: most OpenAI-compatible gateways in front of Claude take ``cache_control``, but
  not all do, and only the operator knows. Anthropic's own OpenAI-compatible endpoint does not cache
  (https://docs.claude.com/en/api/openai-sdk): use ``model: anthropic/...``.
- GPT-5.6 and newer: ``openai-explicit`` at OpenAI itself, ``openai`` elsewhere (Azure has breakpoints on some plans
  only; gateways may refuse the field). Older GPT and o models: ``openai``. gpt-oss is served by others: ``none``.
- DeepSeek at DeepSeek itself or through OpenRouter: ``deepseek``. Elsewhere the weights are the same, the cache is not.
- The embedded provider plays whatever the model's name says, Claude if it says nothing.
- Everything else: ``none``.
"""

import re

from proxy.core.profiles import ANTHROPIC, DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT, CacheProfile
from proxy.ports import Transport

# litellm's adapters that turn ``cache_control`` into what the provider wants.
_KEEP_MARKERS = frozenset(
    {"anthropic", "azure_ai", "bedrock", "bedrock_converse", "litellm_proxy", "openrouter", "vertex_ai"}
)
_OPENROUTER = "openrouter.ai"

_GPT = re.compile(r"^(?:chatgpt|gpt|o[1-9]|codex)(?:-|$)")
_GPT_VERSION = re.compile(r"^gpt-(\d+)(?:\.(\d+))?(?!\d|o)")
_OPEN_WEIGHTS = "gpt-oss"
_FIRST_EXPLICIT = (5, 6)

# The shortest prefix that is cached, by model; others have the profile's own.
_CLAUDE_MINIMUM = (
    (512, ("opus-5", "sonnet-5-5", "haiku-5-5", "fable-5", "mythos-5")),
    (2048, ("opus-4-7", "mythos-preview", "haiku-3-5", "3-5-haiku")),
    (4096, ("opus-4-6", "opus-4-5", "haiku-4-5")),
)
# AWS states more than Anthropic for this one (docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html).
_BEDROCK_MINIMUM = {"opus-4-7": 4096}


def provider_of(model: str, given: str = "") -> tuple[str, str]:
    """The provider of a model as LiteLLM writes it, and its bare name: ``openai/gpt-5`` is ``("openai", "gpt-5")``.

    ``given`` is ``custom_llm_provider``. Without a prefix the name must do; the provider is empty where it does not.
    """
    prefix, slash, rest = model.partition("/")
    if given:
        return given, rest if slash and prefix == given else model
    if slash:
        return prefix, rest
    name = model.lower()
    if _GPT.match(name):
        return "openai", model
    if name.startswith("claude"):
        return "anthropic", model
    return "", model


def choose_profile(transport: Transport, provider: str, model: str, host: str) -> CacheProfile:
    """The profile of a model by its provider, bare name and host (empty: the provider's own)."""
    name = _last_part(model)
    at_openrouter = provider == "openrouter" or _is_below(host, _OPENROUTER)
    if transport is Transport.EMBEDDED:
        return _by_name(name)
    if "claude" in name:
        keeps = provider in _KEEP_MARKERS if transport is Transport.LITELLM else at_openrouter
        return ANTHROPIC if keeps else NONE
    if _is_gpt(name):
        at_openai = host == "api.openai.com" or (not host and provider == "openai")
        return OPENAI_EXPLICIT if at_openai and _is_explicit(name) else OPENAI
    if name.startswith("deepseek"):
        at_deepseek = host == "api.deepseek.com" or (not host and provider == "deepseek")
        return DEEPSEEK if at_deepseek or at_openrouter else NONE
    return NONE


def minimum_tokens(profile: CacheProfile, provider: str, model: str) -> int:
    """The shortest prefix of that model that is cached."""
    if profile.name != ANTHROPIC.name:
        return profile.min_tokens
    name = model.lower().replace(".", "-")
    if provider.startswith("bedrock"):
        for part, tokens in _BEDROCK_MINIMUM.items():
            if _names(name, part):
                return tokens
    found = [(len(part), tokens) for tokens, parts in _CLAUDE_MINIMUM for part in parts if _names(name, part)]
    return max(found)[1] if found else profile.min_tokens


def _by_name(name: str) -> CacheProfile:
    if _is_gpt(name):
        return OPENAI_EXPLICIT if _is_explicit(name) else OPENAI
    return DEEPSEEK if name.startswith("deepseek") else ANTHROPIC


def _is_gpt(name: str) -> bool:
    return bool(_GPT.match(name)) and not name.startswith(_OPEN_WEIGHTS)


def _is_explicit(name: str) -> bool:
    match = _GPT_VERSION.match(name)
    return match is not None and (int(match[1]), int(match[2] or 0)) >= _FIRST_EXPLICIT


def _last_part(model: str) -> str:
    """``anthropic/claude-x`` behind OpenRouter, ``us.anthropic.claude-x`` on Bedrock: the name itself, lower case."""
    return model.rpartition("/")[2].lower()


def _names(name: str, part: str) -> bool:
    """Whether the part stands in the name as a whole: ``opus-4`` is not in ``opus-4-5`` by accident of digits."""
    return re.search(rf"(?<![a-z0-9]){re.escape(part)}(?!\d)", name) is not None


def _is_below(host: str, domain: str) -> bool:
    return host == domain or host.endswith("." + domain)
