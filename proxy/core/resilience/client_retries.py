"""What a client's own retries leave to the proxy's: a pure decision.

SDKs repeat a call that failed. Were each of their tries repeated here as well, one call would become nine. So a client
that repeats its calls by itself is left to it, and the proxy adds only what the client cannot do: it asks another
deployment. The SDKs that Stainless generates (OpenAI's, Anthropic's and those of many others) say in
``x-stainless-retry-count`` how often they have tried before, and obey ``x-should-retry``. The AI SDK
(https://ai-sdk.dev) and Codex retry as well and do neither: they are known by their name.
"""

from dataclasses import replace

from proxy.core.resilience.retry import RetryPolicy

RETRY_COUNT = "x-stainless-retry-count"
USER_AGENT = "user-agent"

_MOST = 100
_REPEATING = ("ai/", "ai-sdk/", "codex_")


def beside_client(policy: RetryPolicy, count: str | None, agent: str | None) -> RetryPolicy:
    """The policy for a request with this retry count and user agent."""
    if count is not None and count.isascii() and count.isdigit():
        return replace(policy, stays="beside-others", spent=int(count) if len(count) <= 3 else _MOST)
    if any(word.startswith(_REPEATING) for word in (agent or "").lower().split()):
        return replace(policy, stays="never")
    return policy
