"""The litellm transport: every provider that litellm supports.

litellm translates the requests: a chat request becomes one ``litellm.acompletion`` call, and its answer becomes OpenAI
JSON or server-sent events again. This transport promises equal JSON, not equal bytes.

    upstream.py    LitellmUpstream: open a call, its answer as response bytes; litellm's exceptions as ours
    library.py     the only import of litellm, lazy because it takes seconds of CPU; a client's body as arguments
"""
