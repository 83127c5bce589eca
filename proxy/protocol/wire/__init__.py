"""JSON as the bytes that the client sent.

A body comes in; its members go out as slices of the same bytes, and edits are spliced into them. Nothing is parsed and
serialised again, so number formats, escapes and the order of members are kept.
"""
