"""Context window budgets. The messages and parts of a request and a capability profile come in; messages that do not
exceed the budget go out. Nothing here knows about upstreams or files.

``profile`` has the budgets, and the rules that give them to requests. ``form`` reads the parts that a request names.
``fitting`` fits the messages of a chat, and ``completion`` fits the texts of a completion. ``shortening`` decides the
order in which texts are shortened, ``trimming`` decides which of the oldest messages are left out, and ``newest``
writes parts into the newest message. ``exact_tokens`` counts tokens, and ``token_factor`` learns how a model's own
count differs.
"""
