"""The deployments of models, what tokens cost there, and what a request may cost.

The model list, prices, usage and limits come in; deployments and amounts go out, in USD or in nano-dollars. An estimate
for a hard limit is never below the bill, and a saving is never overstated. This package reserves nothing: it only
computes.
"""
