"""The rules by which the history of a conversation is shortened, repaired and frozen, where a client asks for that.

What comes in is the messages of a request and what the client says of them. What goes out is the messages that are
sent, and which rule has changed how many of them. A request that does not ask for it keeps every message as it came.

The modules work in this order. ``metas`` is what a client says of its messages. ``shape`` reads what a message is,
and ``groups`` puts calls together with their results. ``rules`` applies what the client says, has each group mended by
``repair`` and ``merging``, and counts what was changed. ``compaction`` puts a summary in place of the oldest part:
``compaction_proposal`` says whether that pays, ``compaction_question`` what a model is asked, and
``compaction_finding`` what it has found. ``freezing`` makes panels of what is old and long, which ``chunk_text``
writes.
"""
