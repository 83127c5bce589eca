"""Context window budgets: the messages and parts of a request and a capability profile come in; what is sent goes out,
and nothing that would exceed the budget. Nothing here knows of upstreams or files.

``profile`` has the budgets, and the rules that give them to requests; ``form`` reads the parts that a request names.
``fitting`` fits the messages of a chat and ``completion`` those of a completion: ``shortening`` says in which order
texts give way, ``trimming`` which of the oldest messages go, and ``newest`` writes parts into the newest message.
``exact_tokens`` counts tokens, and ``token_factor`` learns how a model's own count differs.
"""
