"""The litellm transport: every provider that litellm supports.

litellm translates the requests: a chat request becomes one ``litellm.acompletion`` call, and its answer becomes OpenAI
JSON or server-sent events again. This transport promises equal JSON, not equal bytes.

    upstream.py    LitellmUpstream: open a call, its answer as response bytes; litellm's exceptions as ours
    arguments.py   a client's body as arguments; settings that a client may not change
    library.py     the only import of litellm, lazy because it takes seconds of CPU
"""

from proxy.upstream.litellm_.upstream import LitellmUpstream

__all__ = ["LitellmUpstream"]
