"""Context window budgets: what comes in are the parts of a request and the budget of a capability profile; what comes
out are the parts that are sent, and nothing that would exceed the budget. Nothing here knows of upstreams or files.
"""
