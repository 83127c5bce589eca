"""OpenRouter's sticky routing: a conversation stays with one provider for 10 idle minutes, where it says which it is.

"``session_id`` in the body or ``x-session-id`` (up to 256 characters), else ``prompt_cache_key``"; without one it
begins after the first hit that is seen (https://openrouter.ai/docs/features/prompt-caching).
"""

from proxy.core.providers.profile import Routing

STICKY = Routing(
    "body", "session_id", max_chars=256, servers=("openrouter",), aliases=("prompt_cache_key",), reads_hint=True
)
