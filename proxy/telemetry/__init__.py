"""Metrics and traces of the proxy.

Ended exchanges come in; metrics for Prometheus go out, summed over all workers. Labels have bounded values, and no text
of a prompt and no key is exported.
"""
