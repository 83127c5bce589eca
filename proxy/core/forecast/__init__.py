"""Estimates the requests that follow.

The observations of a session and of its client come in; probabilities go out: how likely the next request repeats the
prompt up to each position, how long the client pauses, and whether it returns at all. This package learns nothing
itself: it combines what ``sessions`` and ``stability`` have learnt.
"""
