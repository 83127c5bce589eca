"""Finds the place of each item of a context.

The items of a request and what earlier responses have shown come in; the tier of each item and its place within the
tier go out. This package never writes a text.
"""
