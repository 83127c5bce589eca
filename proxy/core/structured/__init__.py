"""Structured context: a client says what its pieces are, and the proxy assembles the prompt from them.

What comes in is the section ``stratiform`` of a chat request, together with the request's messages. What goes out is a
list of messages, in tiers or flat, and a breakdown of the same blocks. The package never fetches anything, never keeps
a text longer than its bound allows, and never plans: the messages that it assembles go through the planner as those of
any other client do.

The modules work in this order. ``form`` reads the section (``form_json`` has its types, ``paths`` its paths,
``refusals`` its errors), ``uploads`` puts contents in the place of digests, and ``conversation`` parts the messages
into system messages, history and prompt. ``gathering`` makes a ``context`` of them with the ``review`` of the
``session``; symbols and references come from an index (``symbol_index``), whose paths ``path_aliases`` shortens.
``tracking`` says how stable each item is, beginning with ``graph``, and gives a ``placement``. ``map_chunks`` cuts
the symbol map for the policy ``economic``. Then one of ``economic``, ``tiered`` and ``flat`` makes an ``assembly``:
of the ``blocks`` of single items, which ``standing`` puts in their places, ``sections`` join under the headers of
``texts``, and ``head`` and ``tail`` put into messages; ``markers`` places the markers of the tiers. ``chat`` is the
request with these messages, and ``breakdown`` says what it consists of. ``kept_texts`` writes and checks the texts
that a store keeps, where the operator wants that.

Where a client sends live panels, describes its messages or wants a compaction, ``live_form`` reads these fields, and
``dialogue`` stands between ``gathering`` and the assembly: it has the package ``history`` shorten and repair the
conversation, then the package ``panels`` say where the panels stand, and hands both on as one ``Dialogue``. ``tail``
puts it into messages. ``live_state`` is what a session remembers of its panels and its compaction, and ``live_blobs``
writes and reads it.
"""
