"""The embedded provider: an OpenAI-compatible provider in this process that really keeps a prompt cache.

The cache profile of a deployment chooses the provider that it imitates (``proxy.protocol.providers``): Claude on any
server (markers as litellm accepts them in OpenAI format), OpenAI up to GPT-5.5 and other automatic caches, OpenAI
GPT-5.6 and newer (``prompt_cache_breakpoint``), DeepSeek (units), vLLM (blocks), or a provider without a cache. Nothing
here asks for a provider's name. A request is checked as that provider would check it, cut into blocks (``turns``), laid
out in the provider's order, billed, and answered with a deterministic text and the provider's own usage fields
(``provider``, ``proxy.protocol.caches``). Cache entries appear at the first byte of the answer, or after its last byte
if the provider keeps only whole exchanges. They are dated by ``Call.now``, so that a replay in virtual time has the
recorded pauses.

``EmbeddedUpstream`` is the transport, with faults and ledgers. ``Provider`` is one provider of it, pure and
usable by itself. Nothing here knows the rest of the proxy: the provider bills the requests that arrive.
"""
