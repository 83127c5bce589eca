"""Structured context: a client says what its pieces are, and the proxy assembles the prompt from them.

What comes in is the section ``stratiform`` of a chat request, together with the request's messages. What goes out is a
list of messages, in tiers or flat, and a breakdown of the same blocks. The package never fetches anything, never keeps
a text longer than its bound allows, and never plans: the messages that it assembles go through the planner as those of
any other client do.
"""
