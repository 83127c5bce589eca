"""The rules by which the history of a conversation is shortened, repaired and frozen, if a client asks for that.

The input is the messages of a request and what the client says about them. The output is the messages that are sent,
and how many of them each rule has changed. A request that does not ask for it keeps every message as it came.

The modules work in this order. ``rules`` reads the kind of each message, applies the client's wishes, puts calls
together with their results, and counts the changed messages. ``compaction`` then leaves out the oldest part, if an
earlier answer has led to a compaction. ``freezing`` makes panels of the old part of a long conversation. After the
answer, ``compaction`` looks for the next place to cut, prepares a question for a model, and reads the model's answer.
"""
