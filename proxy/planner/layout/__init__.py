"""Orders the content of a request and places breakpoints.

The inputs are the elements of a request and their probabilities of change. The outputs are an order, breakpoints and
finally bytes. Every order keeps the fidelity rules: turns keep their order, the last exchange stays last, and each byte
of the client is sent once. This package never decides whether an order pays: it offers orders, and the planner prices
them.
"""
