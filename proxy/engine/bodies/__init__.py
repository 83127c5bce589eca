"""Reads the bodies of requests, as far as that is necessary.

What the client sends comes in. The body that goes upstream, and what is known of it, go out. A body in which two
servers could find different things is refused.
"""
