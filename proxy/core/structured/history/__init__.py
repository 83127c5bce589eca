"""The rules by which the history of a conversation is shortened, repaired and frozen, where a client asks for that.

What comes in is the messages of a request and what the client says of them. What goes out is the messages that are
sent, and which rule has changed how many of them. A request that does not ask for it keeps every message as it came.

The modules work in this order. ``metas`` is what a client says of its messages. ``shape`` reads what a message is,
and ``groups`` puts calls together with their results. ``rules`` applies what the client says, has each group mended by
``repair`` and ``merging``, and counts what was changed. ``compaction`` then leaves out the oldest part, where a former
answer has led to that, and puts the words of ``compaction_texts`` in its place. ``freezing`` makes panels of what is
old and long, which ``chunk_text`` writes.

Behind the answer a new compaction is prepared. ``compaction_attempts`` says whether the conversation may be looked at
again, and ``compaction_terms`` are the operator's limits. ``compaction_proposal`` looks for a place among the ``cuts``
and asks ``compaction_gain`` whether it pays. ``compaction_question`` is what a model is asked, ``compaction_call`` the
body of that call, and ``compaction_finding`` what the model has found.
"""
