"""Keeps what lasts between the requests of a conversation.

The outcome of a request and the texts that its client has sent come in; what is remembered goes out, as values or as
the bytes of a store. All of it is bounded, and texts are never logged.
"""
