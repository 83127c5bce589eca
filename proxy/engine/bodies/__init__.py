"""Reads the bodies of requests, as far as necessary.

The input is the client's body. The output is the body that goes upstream, and what is known about it. A body that two
servers could read differently is refused.
"""
