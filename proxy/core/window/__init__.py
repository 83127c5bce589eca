"""Context window budgets. The messages and parts of a request and a capability profile come in; messages that do not
exceed the budget go out. Nothing here knows about upstreams or files.

``profile`` has the budgets, the rules that give them to requests, the parts that a request names, the order in which
they are shortened, and how parts are written into messages. ``fitting`` fits the messages of a chat, of which the
oldest are left out, and the texts of a completion. ``token_factor`` counts tokens exactly, and learns how a model's own
count differs.
"""
