"""Reads a request as the planner needs it.

The client's bytes come in; messages, tools, elements with digests and token counts go out. Messages that were read with
an earlier request of the same conversation are not read again. This package never changes a byte.
"""
