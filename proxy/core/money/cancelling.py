"""What providers do with a call whose client has left: some stop, others go on to the end and bill all of it.

The list is OpenRouter's, which calls all of them: https://openrouter.ai/docs/api-reference/streaming ("Stream
Cancellation"). The same page says that a call which does not stream always runs on. The names of providers are those of
``proxy.core.providers.hosts``. OpenRouter itself does what the provider behind it does, and nobody sees which one that
is.
"""

_RUN_ON = frozenset({"gemini", "groq", "mistral", "minimax", "dashscope", "openrouter"})


def runs_on(server: str, *, is_stream: bool) -> bool:
    """Whether the provider finishes a call, and bills it, although its client has left. Unknown servers are taken to
    stop a stream, as vLLM, SGLang and llama.cpp do."""
    return not is_stream or server in _RUN_ON
