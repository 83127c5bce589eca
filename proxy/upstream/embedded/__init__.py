"""The embedded provider: an OpenAI-compatible provider in this process that really keeps a prompt cache.

Each deployment's cache profile chooses the provider that it stands for (``proxy.core.providers``): Claude wherever it
is served (markers as litellm accepts them in OpenAI format), OpenAI up to GPT-5.5 and other automatic caches, OpenAI
GPT-5.6 and newer (``prompt_cache_breakpoint``), DeepSeek (units), vLLM (blocks), or one without a cache; nothing here
asks for a provider's name. A request is checked as that provider would check it, cut into blocks (``turns``,
``marks``), laid out in the provider's order (``layout``), looked up and billed (``proxy.core.caches``), and
answered with a deterministic text and the provider's own usage fields (``completion``, ``usage``, ``wire``). Entries
appear at the first byte of the answer, or behind its last one where the provider keeps only whole exchanges, dated by
``Call.now``, so that a replay in virtual time sees the recorded gaps.

``EmbeddedUpstream`` is the transport, with routes, faults and ledgers; ``Provider`` is one provider behind it, pure and
usable by itself. Nothing here knows the rest of the proxy: what is billed is what arrives.
"""

from proxy.upstream.embedded.layout import PromptReader
from proxy.upstream.embedded.provider import TAIL_TOKENS, Provider, ProviderReply
from proxy.upstream.embedded.upstream import ANONYMOUS, EmbeddedUpstream, Ledger, account_name

__all__ = [
    "ANONYMOUS",
    "TAIL_TOKENS",
    "EmbeddedUpstream",
    "Ledger",
    "PromptReader",
    "Provider",
    "ProviderReply",
    "account_name",
]
