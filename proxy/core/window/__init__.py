"""Context window budgets: what comes in are the messages and parts of a request and a capability profile; what comes
out is what is sent, and nothing that would exceed the budget. Nothing here knows of upstreams or files.

Values: ``profile`` (``built_in`` are the four that come along, ``rules`` says who has which), ``parts`` (what a
request names, read by ``form``), ``texts`` (the words around parts), ``fitted`` (what comes out). Fitting: ``budget``
says how many tokens a prompt may have, ``shortening`` in which order texts give way, ``turns`` which messages go
together, ``trimming`` how many of them go and for how long, ``newest`` writes parts into the newest message,
``virtual_files`` makes their JSON, and ``fitting`` does all of it. ``token_factor`` learns how a model's count
differs from the proxy's.
"""
