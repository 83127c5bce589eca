"""Orders the content of a request and places breakpoints.

The elements of a request and their probabilities of change come in; an order, breakpoints and finally bytes go out.
Every order keeps the fidelity rules: turns keep their order, the last exchange stays last, and each byte of the client
is sent once. This package never decides whether an order pays: it offers orders, and the planner prices them.
"""
