"""A search for the cheapest feasible way to serve a recorded session, with knowledge of its future.

It may do what the product may do, from the product's own material: the same movable pieces, the same valid orders,
markers where they can be written. It is a beam search, so what it finds is feasible but not proven to be the best.
"""
