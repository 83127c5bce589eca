"""Handles the messages around a context.

The client's messages come in; what stands in front of the context, within it and behind it goes out, with the markers
that may stand there and the messages that the proxy writes itself. This package never changes the client's words.
"""
