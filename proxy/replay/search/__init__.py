"""Searches for the cheapest feasible way to serve a recorded session.

A session with all of its future comes in; the cheapest way that was found goes out. The search may do what the product
may do, with the product's own material: the same movable pieces, the same valid orders, markers where they can be
written. It is a beam search, so what it finds is feasible and not proven to be the best. The product never searches
like this.
"""
