"""Recognises the texts of single clients, and indexes source code.

A message or a file comes in; the pieces or the symbols in it go out. A plugin never changes a byte of a request, and
never imports another plugin.
"""
