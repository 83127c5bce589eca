"""Decides what is sent for a request.

The inputs are a parsed body, the route and the state of the session. The output is a plan: the bytes to send, the
reason for them, and what the shadow cache is told when the exchange ends. The candidates are priced on the shadow
cache. The client's own layout is always one of them. This package never reads a clock, never calls a provider, and
never returns a plan that loses, repeats or re-orders what the fidelity rules fix.

Four kinds of files help the planner, and none of them decides whether an order pays. ``session`` and its neighbours
recognise sessions and keep what is learnt from each; nothing learnt in one client's scope is ever used in another.
``change_rates`` estimates how likely each piece changes. ``orders``, ``layout`` and ``render`` offer orders with their
breakpoints and write them. ``record`` and ``diagnose`` find out afterwards why a prompt was not read from the cache.
"""
