"""Reads an answer while it passes through the proxy.

The upstream's bytes come in. The bytes for the client go out unchanged, and after them the facts that the answer told:
usage, price tier, objects, cache diagnostics. This package keeps no more of an answer than it needs and never waits.
"""
