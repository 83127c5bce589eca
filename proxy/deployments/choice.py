"""Chooses the cache profile of a model if the configuration names none.

``proxy.core.providers`` describes the profiles and the particulars of single models. This module only finds out which
provider's cache serves the model: by the provider (litellm's name for it, or the host that is called), then by the
model's name. The first rule that fits wins; ``model_info.cache_profile`` overrides all rules.

- No marker is sent to a server that may refuse it. Claude on the http transport has the profile ``none``, unless the
  host is OpenRouter's: most OpenAI-compatible gateways accept ``cache_control``, but not all, and only the operator
  knows which. Anthropic's own OpenAI-compatible endpoint does not cache (https://docs.claude.com/en/api/openai-sdk):
  use ``model: anthropic/...``.
- GPT-5.6 and newer accept breakpoints at OpenAI and OpenRouter, and on some plans of Azure (configure
  ``azure-explicit``). At an unknown host, every GPT has the profile of GPT-5.5 and older: a stable order of the prompt
  saves money there, and a marker might be refused.
- A cache belongs to the server, not to the model's weights: DeepSeek, Kimi or Qwen have the profile of the server.
- Groq caches only some models. MiniMax reads markers only on its Anthropic-compatible API (``minimax``).
- The embedded provider imitates the provider that the model's name suggests, or Claude.

The names of providers that the installed litellm knows are read from its files, because importing it takes seconds.

"""

import re
from collections.abc import Callable

import orjson

from proxy.core.providers import PROFILES, CacheProfile
from proxy.core.providers.affinity_key import EMBEDDED
from proxy.core.providers.hosts import provider_at
from proxy.core.value import dataclass
from proxy.deployments.litellm_files import litellm_file
from proxy.ports import Transport

_NAMES = "types/utils.py"
_DATA = "llms/openai_like/providers.json"
_ENUMERATION = re.compile(r"^class LlmProviders\b.*?(?=^\S)", re.DOTALL | re.MULTILINE)
_VALUE = re.compile(r"^ +[A-Z0-9_]+ *= *[\"']([^\"']+)[\"']", re.MULTILINE)


def provider_names() -> frozenset[str]:
    """The names of litellm's providers. The set is empty if litellm's files do not have the form that is known
    today."""
    source, data = litellm_file(_NAMES), litellm_file(_DATA)
    if source is None or data is None:
        return frozenset()
    try:
        found = _ENUMERATION.search(source.read_text(encoding="utf-8"))
        described = orjson.loads(data.read_bytes())
    except (OSError, ValueError):
        return frozenset()
    names = _VALUE.findall(found[0]) if found is not None else []
    return frozenset({*names, *described}) if names and isinstance(described, dict) else frozenset()


_GPT = re.compile(r"^(?:chatgpt|gpt|o[1-9]|codex)(?:-|$)")
_GPT_VERSION = re.compile(r"^gpt-(\d+)(?:\.(\d+))?(?!\d|o)")
_OPEN_WEIGHTS = "gpt-oss"
_FIRST_EXPLICIT = (5, 6)
# These adapters of litellm also call other servers: if a host is given, the adapter's name says nothing about the
# provider.
_ANYONES = frozenset({"openai", "custom_openai", "deepseek"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """A profile, the model names to which it applies, and the providers that have it (empty: all providers)."""

    profile: str
    is_named: Callable[[str], bool]
    providers: tuple[str, ...] = ()
    transports: tuple[Transport, ...] = (Transport.HTTP, Transport.LITELLM)


def _named(*parts: str) -> Callable[[str], bool]:
    return lambda name: any(part in name for part in parts)


def _is_gpt(name: str) -> bool:
    return bool(_GPT.match(name)) and not name.startswith(_OPEN_WEIGHTS)


def _is_explicit(name: str) -> bool:
    match = _GPT_VERSION.match(name)
    return match is not None and (int(match[1]), int(match[2] or 0)) >= _FIRST_EXPLICIT


_LITELLM, _EMBEDDED = (Transport.LITELLM,), (Transport.EMBEDDED,)
_VERTEX = ("vertex_ai", "vertex_ai_beta")
_CLAUDE, _ANYTHING = _named("claude"), _named("")

_RULES = (
    # litellm's adapters that translate ``cache_control`` into the provider's form.
    _Rule("anthropic", _CLAUDE, ("anthropic", "litellm_proxy"), _LITELLM),
    _Rule("bedrock", _CLAUDE, ("bedrock", "bedrock_converse"), _LITELLM),
    _Rule("vertex", _CLAUDE, _VERTEX, _LITELLM),
    _Rule("foundry", _CLAUDE, ("azure_ai",), _LITELLM),
    _Rule("openrouter-anthropic", _CLAUDE, ("openrouter",)),
    _Rule("none", _CLAUDE),
    _Rule("openai-explicit", _is_explicit, ("openai",)),
    _Rule("openrouter-openai-explicit", _is_explicit, ("openrouter",)),
    _Rule("openrouter-openai", _is_gpt, ("openrouter",)),
    _Rule("azure", _is_gpt, ("azure",)),
    _Rule("openai", _is_gpt),
    _Rule("openrouter-deepseek", _named("deepseek"), ("openrouter",)),
    _Rule("openrouter-gemini", _named("gemini"), ("openrouter",)),
    _Rule("openrouter-xai", _named("grok"), ("openrouter",)),
    _Rule("deepseek", _named("deepseek"), ("deepseek",)),
    _Rule("gemini", _named("gemini"), ("gemini",)),
    _Rule("vertex-gemini", _named("gemini"), _VERTEX),
    _Rule("xai", _named("grok"), ("xai",)),
    _Rule("mistral", _ANYTHING, ("mistral", "codestral")),
    _Rule("groq", _named(_OPEN_WEIGHTS, "kimi-k2"), ("groq",)),
    _Rule("kimi", _named("kimi"), ("moonshot",)),
    _Rule("glm", _named("glm"), ("zai",)),
    _Rule("qwen", _named("qwen"), ("dashscope",)),
    _Rule("qwen-implicit", _ANYTHING, ("dashscope",)),
    _Rule("minimax-passive", _ANYTHING, ("minimax",)),
    _Rule("fireworks", _ANYTHING, ("fireworks_ai",)),
    _Rule("together", _ANYTHING, ("together_ai",)),
    _Rule("vllm", _ANYTHING, ("hosted_vllm", "vllm")),
    _Rule("llamacpp", _ANYTHING, ("llamafile",)),
    _Rule("ollama", _ANYTHING, ("ollama", "ollama_chat")),
    # The providers that the embedded provider imitates.
    _Rule("openai-explicit", _is_explicit, (), _EMBEDDED),
    _Rule("openai", _is_gpt, (), _EMBEDDED),
    _Rule("deepseek", _named("deepseek"), (), _EMBEDDED),
    _Rule("gemini", _named("gemini"), (), _EMBEDDED),
    _Rule("xai", _named("grok"), (), _EMBEDDED),
    _Rule("mistral", _named("mistral", "ministral", "codestral", "devstral", "magistral"), (), _EMBEDDED),
    _Rule("kimi", _named("kimi"), (), _EMBEDDED),
    _Rule("glm", _named("glm"), (), _EMBEDDED),
    _Rule("qwen", _named("qwen"), (), _EMBEDDED),
    _Rule("minimax-passive", _named("minimax"), (), _EMBEDDED),
    _Rule("anthropic", _ANYTHING, (), _EMBEDDED),
)


def provider_of(model: str, given: str = "") -> tuple[str, str]:
    """The provider of a model as LiteLLM writes it, and its bare name: ``openai/gpt-5`` is ``("openai", "gpt-5")``.

    ``given`` is ``custom_llm_provider``. Without a prefix, the provider is guessed from the name; it is empty if the
    name does not show it.
    """
    prefix, slash, rest = model.partition("/")
    if given:
        return given, rest if slash and prefix == given else model
    if slash:
        return prefix, rest
    name = model.lower()
    if _GPT.match(name):
        return "openai", model
    return "anthropic" if name.startswith("claude") else "", model


def choose_profile(transport: Transport, provider: str, model: str, host: str) -> CacheProfile:
    """The profile of a model by its provider, bare name and host (empty: the provider's own)."""
    # The last part of ``anthropic/claude-x`` (OpenRouter). ``us.anthropic.claude-x`` (Bedrock) stays as it is.
    name = model.rpartition("/")[2].lower()
    server = _server(provider, host)
    for rule in _RULES:
        if transport in rule.transports and (not rule.providers or server in rule.providers) and rule.is_named(name):
            return PROFILES[rule.profile]
    return PROFILES["none"]


def server_of(transport: Transport, provider: str, host: str) -> str:
    """The provider that is called: found by its host, or litellm's name if no host is given. Empty for an unknown
    host."""
    if transport is Transport.EMBEDDED:
        return EMBEDDED
    return provider_at(host) if host else provider


def _server(provider: str, host: str) -> str:
    """The provider whose server is called. A known host decides; for an unknown host, litellm's adapter decides."""
    at_host = provider_at(host)
    if at_host or not host:
        return at_host or provider
    return "" if provider in _ANYONES else provider
