"""Decides what is sent for a request.

The inputs are a parsed body, the route and the state of the session. The output is a plan: the bytes to send, the
reason for them, and what the shadow cache is told when the exchange ends. The candidates are priced on the shadow
cache. The client's own layout is always one of them. This package never reads a clock, never calls a provider, and
never returns a plan that loses, repeats or re-orders what the fidelity rules fix.
"""
