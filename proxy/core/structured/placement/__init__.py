"""Finds the place of each item of a context.

The input is the items of a request and what earlier responses have shown. The output is the tier of each item and its
place within the tier. This package never writes a text.
"""
