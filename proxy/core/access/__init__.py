"""Finds out which models a request can reach.

The path, the headers and the body of a request come in. Every model that the request names goes out, or a refusal if
two servers could read the request differently. This package grants nothing: ``proxy.engine.rights`` compares the answer
with the rights of the key.
"""
