"""Estimates the requests that follow.

The inputs are the observations of a session and of its client. The outputs are probabilities: that the next request
repeats the prompt up to each position, that the client pauses, and that it returns at all. This package learns nothing
itself. It combines the estimates that ``sessions`` and ``stability`` have learnt.
"""
