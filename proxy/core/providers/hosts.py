"""The provider whose server answers at a host, by its name in LiteLLM."""

HOSTS = (
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("openai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("openrouter.ai", "openrouter"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "xai"),
    ("api.mistral.ai", "mistral"),
    ("api.groq.com", "groq"),
    ("api.z.ai", "zai"),
    ("moonshot.ai", "moonshot"),
    ("moonshot.cn", "moonshot"),
    ("aliyuncs.com", "dashscope"),
    ("minimax.io", "minimax"),
    ("minimaxi.com", "minimax"),
    ("api.fireworks.ai", "fireworks_ai"),
    ("api.together.xyz", "together_ai"),
    ("api.cerebras.ai", "cerebras"),
)
"""The provider of each host. It is also the provider of all hosts below that host."""
_PROVIDERS = dict(HOSTS)


def provider_at(host: str) -> str:
    """The provider at a host. Empty if the host belongs to no known provider."""
    while host and host not in _PROVIDERS:
        host = host.partition(".")[2]
    return _PROVIDERS.get(host, "")
