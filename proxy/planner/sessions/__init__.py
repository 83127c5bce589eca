"""Recognises sessions and keeps the facts that it learns from each of them.

A recognised request comes in; its session goes out, with the changes since the previous request. Learnt facts are kept
per session and per client scope. They are handed to other processes as blobs without any prompt text, and come from
other processes in the same form. Nothing learnt in one scope is ever used in another.
"""
