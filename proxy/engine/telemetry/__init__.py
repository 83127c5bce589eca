"""Metrics and traces of the proxy.

This package gets ended exchanges, and exports metrics for Prometheus, summed over all workers. Labels have bounded
values, and no text of a prompt and no key is exported.
"""
