"""The rules by which the history of a conversation is shortened, repaired and frozen, where a client asks for that.

The input is the messages of a request and what the client says of them. The output is the messages that are
sent, and which rule has changed how many of them. A request that does not ask for it keeps every message as it came.

The modules work in this order. ``groups`` reads what a message is, and puts calls together with their results.
``rules`` applies what the client says, has each group mended by ``repair``, and counts what was changed. ``compaction``
then leaves out the oldest part, where a former answer has led to that. ``freezing`` makes panels of what is old and
long. Behind the answer ``compaction_proposal`` looks for the next place to cut, asks a model, and reads its answer.
"""
