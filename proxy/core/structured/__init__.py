"""Structured context: a client says what its pieces are, and the proxy assembles the prompt from them.

The input is the section ``stratiform`` of a chat request, together with the request's messages. The output is a list of
messages, in tiers or flat, and a breakdown of the same blocks. The package never fetches anything, never keeps a text
longer than its bound allows, and never plans. The assembled messages go through the planner like those of any other
client; the planner only observes messages in tiers and flat ones. ``README.md`` explains the rules and how they were
measured.

The modules work in this order. ``form`` reads the section. ``session`` has the texts for the digests in the section,
and the state from earlier requests of the conversation; both together give the ``context``, to which the map of the
repository belongs, and the request's messages, divided into system messages, history and prompt. If a client sends live
panels or describes its messages, ``history`` shortens and repairs the conversation, and ``panels`` places the panels.
``placement`` says how stable each item is. ``assembly`` makes ``blocks`` from all of this. The request with the
messages of these blocks stands in ``session``, too.
"""
