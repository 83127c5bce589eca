"""Structured context: a client says what its pieces are, and the proxy assembles the prompt from them.

The input is the section ``stratiform`` of a chat request, together with the request's messages. The output is a
list of messages, in tiers or flat, and a breakdown of the same blocks. The package never fetches anything, never keeps
a text longer than its bound allows, and never plans: the messages that it assembles go through the planner as those of
any other client do, and it only observes those in tiers or flat. ``README.md`` explains the rules and what they were
measured by.

The packages work in this order. ``form`` reads the section. ``session`` has the texts that stand for its digests, and
what earlier requests of the conversation have left; it makes the ``context`` of both. ``messages`` parts the request's
messages into system messages, history and prompt. ``symbols`` has the map of the repository. Where a client sends live
panels or describes its messages, ``history`` shortens and repairs the conversation and ``panels`` places the panels.
``placement`` says how stable each item is. ``assembly`` makes ``blocks`` of all of this, and ``chat`` is the request
with the messages of these blocks.
"""
