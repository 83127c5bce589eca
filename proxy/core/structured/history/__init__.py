"""The rules by which the history of a conversation is shortened, repaired and frozen, where a client asks for that.

What comes in is the messages of a request and what the client says of them. What goes out is the messages that are
sent, and which rule has changed how many of them. A request that does not ask for it keeps every message as it came.
"""
