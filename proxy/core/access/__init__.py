"""Finds out which models a request can reach.

The path, the headers and the body of a request come in; every model that the request names goes out, or a refusal where
two servers could read the request differently. This package grants nothing: ``proxy.engine.rights`` holds the answer
against the key.
"""
