"""Reads an answer while it streams by.

The upstream's bytes come in; the bytes for the client go out unchanged, and behind them what the answer said: usage,
price tier, objects, cache diagnostics. This package keeps no more of an answer than it needs and never waits.
"""
