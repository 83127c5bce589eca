"""Recognises sessions and keeps what each of them teaches.

A recognised request comes in; the session that it belongs to goes out, with what changed since the request before.
What is learnt is kept per session and per client scope, leaves as blobs without any prompt text, and comes back from
other processes in the same form. Nothing learnt in one scope is ever used in another.
"""
