"""The litellm transport: every provider that litellm speaks.

litellm translates, we carry: a chat request becomes one ``litellm.acompletion`` call, its answer becomes OpenAI JSON or
server-sent events again. On this transport equal JSON is promised, not equal bytes.

    upstream.py    LitellmUpstream: open a call, its answer as response bytes
    arguments.py   a client's body as arguments; what a client may not steer
    errors.py      litellm's exceptions as ours
    library.py     the one import of litellm, lazy: it costs seconds of CPU
"""

from proxy.upstream.litellm_.upstream import LitellmUpstream

__all__ = ["LitellmUpstream"]
