"""Reads a request as the planner needs it.

The client's bytes come in; messages, tools, elements with digests and token counts go out. What was read of an earlier
request of the same conversation is taken over instead of being read again. This package never changes a byte.
"""
