"""Passes the upstream's answer on to the client.

The input is an open answer. The client gets its bytes as they arrive, and the exchange records what they say. An answer
that another attempt may replace is held back. The proxy answers the model's calls of panels on the way.
"""
