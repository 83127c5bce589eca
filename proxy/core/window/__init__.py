"""Context window budgets. The messages and parts of a request and a capability profile come in; messages that do not
exceed the budget go out. Nothing here knows about upstreams or files.

``profile`` has the budgets, the rules that give them to requests, and the parts that a request names. ``fitting`` fits
the messages of a chat, of which the oldest are left out, and the texts of a completion. ``shortening`` decides the
order in which texts are shortened, and writes parts into messages. ``token_factor`` counts tokens exactly, and learns
how a model's own count differs.
"""
