"""Finds keys in requests and takes them out of texts.

A text, a header or a query comes in; the same text without keys goes out. There is one list of the places that may hold
a key. This package stores no key.
"""
