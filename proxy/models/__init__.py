"""Computes what tokens cost and what a request may cost.

Prices, usage and limits come in; amounts go out, in USD or in nano-dollars. An estimate for a hard limit is never below
the bill, and a saving is never overstated. This package reserves nothing: it only computes.
"""
